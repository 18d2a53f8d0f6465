package oidc

import (
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
)

// FuzzToken checks that a changed token is never accepted, and that no text causes a panic.
func FuzzToken(f *testing.F) {
	issuer := oidctest.New(f)
	good := issuer.Token(f, time.Now(), nil)
	keys := &keySet{}
	keys.keys = append(keys.keys, issuer.Key().Public())
	f.Add(good)
	f.Add(replaced(good, 0, segment(`{"alg":"none"}`)))
	f.Add(replaced(good, 1, segment(`{"iss":"x"}`)))
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		UnverifiedIssuer(token)
		parsed, err := parseToken(token, Algorithms)
		if err != nil {
			return
		}
		if _, err := keys.verify(parsed); err == nil && token != good {
			t.Errorf("accepted: %s", token)
		}
	})
}

// FuzzClaims checks that no signed payload causes a panic, and that a user has a name.
func FuzzClaims(f *testing.F) {
	a := bySub()
	a.ClaimMappings.Groups.Expression = "claims.?groups.orValue([])"
	rules := compiled(f, a)
	now := time.Unix(2_000_000_000, 0)
	f.Add([]byte(`{"iss":"https://issuer.test","aud":["tidemark"],"exp":2000000001,"nbf":1.5,"sub":"ann","groups":["a",""]}`))
	f.Add([]byte(`{"iss":7,"aud":7,"exp":"x","_claim_names":{"groups":"x"},"_claim_sources":{"x":{}}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		v, err := expected{issuer: oidctest.URL, audiences: []string{"tidemark"}, now: now}.check(payload)
		if err != nil {
			return
		}
		if v.until.Before(now) || v.from.After(now) {
			t.Errorf("valid from %v until %v", v.from, v.until)
		}
		if u, err := rules.user(t.Context(), v.claims); err == nil && u.Name == "" {
			t.Errorf("a user without a name: %s", payload)
		}
	})
}

// FuzzKeys checks that no key set causes a panic.
func FuzzKeys(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		s, err := parseKeys(document)
		if err == nil && len(s.keys) > maxKeys {
			t.Errorf("%d keys", len(s.keys))
		}
	})
}
