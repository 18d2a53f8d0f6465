package oidc

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
)

// hosts is an http.RoundTripper for several issuers.
type hosts map[string]*oidctest.Issuer

func (h hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	if i := h[r.URL.Host]; i != nil {
		return i.RoundTrip(r)
	}
	return nil, errors.New("no such host")
}

// TestDistributedClaims checks that distributed groups are fetched from their source, and that its
// token must be signed for this server.
func TestDistributedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, other := oidctest.New(t), oidctest.New(t)
		other.URL = "https://other.test"
		a := bySub()
		a.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: new(string)}
		*a.ClaimMappings.Groups.Prefix = "g:"
		i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Transport: hosts{"issuer.test": issuer, "other.test": other}, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		<-i.Ready()
		now := time.Now()
		issuer.Respond("/own", issuer.Token(t, now, map[string]any{"groups": []string{"own"}}))
		other.Respond("/groups", other.Token(t, now, map[string]any{"groups": []string{"a", "b"}}))
		other.Respond("/none", other.Token(t, now, nil))
		other.Respond("/audience", other.Token(t, now, map[string]any{"groups": "a", "aud": "vault"}))
		other.Respond("/stranger", oidctest.Sign(t, issuer.Key(), other.Claims(now, map[string]any{"groups": "a"})))
		other.Respond("/nowhere", other.Token(t, now, map[string]any{"groups": "a", "iss": "https://nowhere.test"}))
		other.Respond("/plain", other.Token(t, now, map[string]any{"groups": "a", "iss": "http://other.test"}))
		other.Respond("/junk", "junk")
		at := func(endpoint string) map[string]any {
			return map[string]any{
				"_claim_names":   map[string]string{"groups": "src"},
				"_claim_sources": map[string]any{"src": map[string]string{"endpoint": endpoint, "access_token": "secret"}},
			}
		}
		const prefix = "oidc: could not expand distributed claims: "
		for _, row := range []struct {
			name   string
			claims map[string]any
			want   string // groups, or an error
		}{
			{"none", nil, ""},
			{"own", at("https://issuer.test/own"), "g:own"},
			{"of another issuer", at("https://other.test/groups"), "g:a g:b"},
			{"no groups", at("https://other.test/none"), prefix + `jwt returned by distributed claim endpoint "https://other.test/none" did not contain claim: groups`},
			{"other audience", at("https://other.test/audience"), prefix + `verify distributed claim token: oidc: expected audience "tidemark" got ["vault"]`},
			{"signed by a stranger", at("https://other.test/stranger"), prefix + "verify distributed claim token: failed to verify signature: failed to verify id token signature"},
			{"unknown issuer", at("https://other.test/nowhere"), prefix + `verifying untrusted issuer https://nowhere.test failed: verifier not initialized for issuer: "https://nowhere.test"`},
			{"issuer without TLS", at("https://other.test/plain"), prefix + "verifying untrusted issuer http://other.test failed: the issuer is not an https URL"},
			{"no token", at("https://other.test/junk"), prefix + `getting untrusted issuer from endpoint https://other.test/junk failed for claim "groups": malformed token`},
			{"missing", at("https://other.test/missing"), prefix + `while getting distributed claim "groups": https://other.test/missing: 404 Not Found`},
			{"without TLS", at("http://other.test/groups"), prefix + `while getting distributed claim "groups": the endpoint is not an https URL`},
			{"no endpoint", at(""), ""},
			{"no source", map[string]any{"_claim_names": map[string]string{"groups": "src"}}, "oidc: verify token: oidc: source does not exist"},
			{"other claim", map[string]any{"_claim_names": map[string]string{"x": "src"}, "_claim_sources": map[string]any{"src": map[string]string{"endpoint": "https://other.test/groups"}}}, ""},
			{"groups are there", map[string]any{"groups": "here", "_claim_names": map[string]string{"groups": "src"}, "_claim_sources": map[string]any{"src": map[string]string{"endpoint": "https://other.test/missing"}}}, "g:here"},
		} {
			got := ""
			r, err := i.Authenticate(t.Context(), issuer.Token(t, now, row.claims))
			if err != nil {
				got = err.Error()
			} else {
				got = strings.Join(r.User.Groups, " ")
			}
			if got != row.want {
				t.Errorf("%s:\ngot  %s\nwant %s", row.name, got, row.want)
			}
		}

		r, err := i.Authenticate(t.Context(), issuer.Token(t, now, at("https://other.test/groups")))
		if err != nil || r.Until.After(time.Now().Add(distributedFor)) {
			t.Errorf("fetched groups are valid until %v, %v", r.Until, err)
		}
		other.Hang.Store(true)
		begin := time.Now()
		if got := who(t, i, issuer.Token(t, now, at("https://other.test/groups"))); !strings.HasPrefix(got, prefix) || time.Since(begin) > waitTimeout {
			t.Errorf("a source that hangs: %s after %v", got, time.Since(begin))
		}
	})
}

// TestUnknownGroupIssuers checks that a source that names issuers which do not exist does not use
// up the room for those of other sources.
func TestUnknownGroupIssuers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, other := oidctest.New(t), oidctest.New(t)
		other.URL = "https://other.test"
		a := bySub()
		a.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: new(string)}
		i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Transport: hosts{"issuer.test": issuer, "other.test": other}, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		<-i.Ready()
		now := time.Now()
		from := func(endpoint string) string {
			return issuer.Token(t, now, map[string]any{
				"_claim_names":   map[string]string{"groups": "src"},
				"_claim_sources": map[string]any{"src": map[string]string{"endpoint": "https://other.test" + endpoint}},
			})
		}
		for n := range 2 * maxGroupIssuers {
			path := "/" + strings.Repeat("x", n+1)
			other.Respond(path, other.Token(t, now, map[string]any{"groups": "a", "iss": "https://nowhere.test" + path}))
			if r, err := i.Authenticate(t.Context(), from(path)); err == nil {
				t.Errorf("an issuer that does not exist: %v", r)
			}
		}
		other.Respond("/groups", other.Token(t, now, map[string]any{"groups": "a"}))
		if _, err := i.Authenticate(t.Context(), from("/groups")); err != nil {
			t.Errorf("another source: %v", err)
		}
	})
}

// TestGroupIssuers checks that tokens cannot make the server track any number of issuers.
func TestGroupIssuers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		a := bySub()
		a.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: "groups", Prefix: new(string)}
		i := open(t, issuer, a)
		defer i.Close()
		find := func(n int) (func(), error) {
			_, leave, err := i.groups.find("https://issuer.test/" + strings.Repeat("x", n+1))
			return leave, err
		}
		var leave func()
		for n := range 2 * maxGroupIssuers {
			done, err := find(n)
			if (err == nil) != (n < maxGroupIssuers) {
				t.Errorf("issuer %d: %v", n, err)
			}
			if n == 0 {
				leave = done
			}
		}
		leave()
		if _, err := find(100); err != nil {
			t.Errorf("after a token has left: %v", err)
		}
		if len(i.groups.others) != maxGroupIssuers {
			t.Errorf("%d issuers", len(i.groups.others))
		}
	})
}
