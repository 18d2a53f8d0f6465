package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
)

// TestDiscovery checks that the discovery of an unavailable issuer is repeated, and that its tokens
// are rejected at once.
func TestDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		issuer.Down.Store(true)
		a := bySub()
		i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Transport: issuer, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		begin := time.Now()
		if got := who(t, i, issuer.Token(t, begin, nil)); got != "oidc: authenticator not initialized" {
			t.Error(got)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("a token waited for %v", took)
		}
		synctest.Wait()
		if err := i.Health(); err == nil || err.Error() != `oidc: authenticator for issuer "https://issuer.test" is not healthy: https://issuer.test/.well-known/openid-configuration: 503 Service Unavailable` {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		issuer.Down.Store(false)
		time.Sleep(lastRetry)
		synctest.Wait()
		if err := i.Health(); err != nil {
			t.Error(err)
		}
		if got := who(t, i, issuer.Token(t, time.Now(), nil)); got != "ann" {
			t.Error(got)
		}
	})
}

// TestWrongDiscovery checks that a discovery document of another issuer is rejected.
func TestWrongDiscovery(t *testing.T) {
	for body, want := range map[string]string{
		`x`: "oidc: failed to decode provider discovery object: invalid character 'x' looking for beginning of value",
		`{"issuer":"https://other.test","jwks_uri":"https://issuer.test/keys"}`:    `oidc: issuer did not match the issuer returned by provider, expected "https://issuer.test" got "https://other.test"`,
		`{"issuer":"https://issuer.test"}`:                                         "provider did not return JWKS URL",
		`{"issuer":"https://issuer.test","jwks_uri":"http://issuer.test/keys"}`:    "the JWKS URL that the provider returned is not an https URL",
		`{"issuer":"https://issuer.test","jwks_uri":"file:///etc/passwd"}`:         "the JWKS URL that the provider returned is not an https URL",
		`{"issuer":"` + strings.Repeat("x", maxDocumentBytes) + `","jwks_uri":""}`: "https://issuer.test/.well-known/openid-configuration: the response is larger than 1048576 bytes",
	} {
		synctest.Test(t, func(t *testing.T) {
			issuer := oidctest.New(t)
			issuer.Respond("/.well-known/openid-configuration", body)
			a := bySub()
			i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Transport: issuer, Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			synctest.Wait()
			if err := i.Health(); err == nil || !strings.HasSuffix(err.Error(), "is not healthy: "+want) {
				t.Errorf("%.80s: %v", body, err)
			}
		})
	}
}

// TestDiscoveryURL checks a discovery document at another URL.
func TestDiscoveryURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		issuer.Respond("/.well-known/openid-configuration", "{}")
		issuer.Respond("/elsewhere", `{"issuer":"https://issuer.test","jwks_uri":"https://keys.test/keys"}`)
		a := bySub()
		a.Issuer.DiscoveryURL = "https://discovery.test/elsewhere"
		i := open(t, issuer, a)
		defer i.Close()
		if got := who(t, i, issuer.Token(t, time.Now(), nil)); got != "ann" {
			t.Error(got)
		}
	})
}

// TestRotation checks that a token with a new key waits until the key is fetched, and no longer.
func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		i := open(t, issuer, bySub(), Algorithms...)
		defer i.Close()
		synctest.Wait()
		for n := range 3 {
			old := issuer.Token(t, time.Now(), nil)
			if got := who(t, i, old); got != "ann" {
				t.Fatal(got)
			}
			issuer.Rotate(t, jose.ES256)
			begin := time.Now()
			if got := who(t, i, issuer.Token(t, begin, nil)); got != "ann" {
				t.Errorf("rotation %d: %s", n, got)
			}
			if took := time.Since(begin); took > minPause {
				t.Errorf("rotation %d: the token waited for %v", n, took)
			}
			if got := who(t, i, old); !strings.HasSuffix(got, "failed to verify id token signature") {
				t.Errorf("rotation %d: the old token: %s", n, got)
			}
		}
	})
}

// TestFlood checks that tokens with unknown keys share requests, whose rate is limited; tokens with
// known keys do not wait.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		i := open(t, issuer, bySub())
		defer i.Close()
		synctest.Wait()
		before := issuer.Fetches.Load()
		begin := time.Now()
		bad := oidctest.Sign(t, &jose.JSONWebKey{Key: oidctest.NewKey(t, jose.RS256), KeyID: "x", Algorithm: "RS256"}, issuer.Claims(begin, nil))
		good := issuer.Token(t, begin, nil)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				for range 5 {
					who(t, i, bad)
				}
			})
		}
		for range 100 {
			at := time.Now()
			if got := who(t, i, good); got != "ann" {
				t.Fatal(got)
			}
			if took := time.Since(at); took != 0 {
				t.Fatalf("a good token waited for %v", took)
			}
		}
		all.Wait()
		took, fetches := time.Since(begin), issuer.Fetches.Load()-before
		if limit := int64(took/minPause) + 1; fetches > limit || fetches == 0 {
			t.Errorf("%d requests for keys in %v, want 1 to %d", fetches, took, limit)
		}
	})
}

// TestHangingIssuer checks that a limited number of tokens waits for newer keys, for a limited
// time, and that no other request waits.
func TestHangingIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		i := open(t, issuer, bySub())
		defer i.Close()
		synctest.Wait()
		issuer.Hang.Store(true)
		begin := time.Now()
		bad := oidctest.Sign(t, &jose.JSONWebKey{Key: oidctest.NewKey(t, jose.RS256), KeyID: "x", Algorithm: "RS256"}, issuer.Claims(begin, nil))
		var mu sync.Mutex
		responses := map[string]int{}
		var all sync.WaitGroup
		for range maxWaiting + 10 {
			all.Go(func() {
				got := who(t, i, bad)
				mu.Lock()
				defer mu.Unlock()
				responses[got]++
			})
		}
		synctest.Wait()
		if got := who(t, i, issuer.Token(t, begin, nil)); got != "ann" || time.Since(begin) != 0 {
			t.Errorf("a good token: %s after %v", got, time.Since(begin))
		}
		all.Wait()
		if took := time.Since(begin); took > waitTimeout {
			t.Errorf("tokens waited for %v", took)
		}
		const prefix = "oidc: verify token: failed to verify signature: fetching keys "
		if responses[prefix+fmt.Sprintf("the issuer did not respond within %v", waitTimeout)] != maxWaiting || responses[prefix+errWaiting.Error()] != 10 {
			t.Error(responses)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := i.Authenticate(ctx, bad); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request that ends first: %v", err)
		}
		issuer.Hang.Store(false)
		issuer.Rotate(t, jose.RS256)
		if got := who(t, i, issuer.Token(t, time.Now(), nil)); got != "ann" {
			t.Errorf("afterwards: %s", got)
		}
	})
}

// TestIssuerRecovers checks that an issuer whose responses hung, for a moment or for an hour, is
// used again within patience and minPause after it is healthy, and that a slow one has
// fetchTimeout.
func TestIssuerRecovers(t *testing.T) {
	for _, hung := range []time.Duration{time.Second, 7 * time.Second, 29 * time.Second, 62 * time.Second, 10 * time.Minute} {
		for _, path := range []string{"discovery", "keys"} {
			synctest.Test(t, func(t *testing.T) {
				issuer := oidctest.New(t)
				issuer.Hang.Store(path == "discovery")
				a := bySub()
				i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Transport: issuer, Log: quiet})
				if err != nil {
					t.Fatal(err)
				}
				defer i.Close()
				synctest.Wait()
				issuer.Hang.Store(true)
				if path == "keys" {
					issuer.Rotate(t, jose.RS256)
				}
				token := issuer.Token(t, time.Now(), nil)
				for range 10 { // tokens need the keys all the time
					who(t, i, token)
					time.Sleep(hung / 10)
				}
				issuer.Hang.Store(false)
				well := time.Now()
				for who(t, i, token) != "ann" {
					time.Sleep(100 * time.Millisecond)
				}
				if took := time.Since(well); took > patience+lastRetry+minPause {
					t.Errorf("the %s hung for %v, and the first token took %v", path, hung, took)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		a := bySub()
		i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Transport: slow{issuer, fetchTimeout - time.Second}, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		time.Sleep(2 * fetchTimeout)
		synctest.Wait()
		if got := who(t, i, issuer.Token(t, time.Now(), nil)); got != "ann" {
			t.Errorf("a slow issuer: %s", got)
		}
	})
}

// slow is an issuer whose responses take a time.
type slow struct {
	*oidctest.Issuer
	delay time.Duration
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(s.delay):
		return s.Issuer.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestIssuerFails checks that the known keys stay in use, and that an invalid key set is rejected.
func TestIssuerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		i := open(t, issuer, bySub())
		defer i.Close()
		synctest.Wait()
		old := issuer.Token(t, time.Now(), map[string]any{"exp": time.Now().Add(24 * time.Hour).Unix()})
		issuer.Rotate(t, jose.RS256)
		for body, want := range map[string]string{
			`{"keys":7}`: "oidc: failed to decode keys: json: cannot unmarshal number into Go struct field .keys of type []json.RawMessage",
			`<html>`:     "oidc: failed to decode keys: invalid character '<' looking for beginning of value",
			`{"keys":[` + strings.Repeat("{},", maxKeys) + `{}]}`: "oidc: failed to decode keys: 101 keys are more than 100",
		} {
			issuer.Respond("/keys", body)
			got := who(t, i, issuer.Token(t, time.Now(), nil))
			if got != "oidc: verify token: failed to verify signature: fetching keys "+want {
				t.Errorf("%.50s: %s", body, got)
			}
			if got := who(t, i, old); got != "ann" {
				t.Errorf("%.50s: the old token: %s", body, got)
			}
		}
		issuer.Down.Store(true)
		time.Sleep(2 * refreshEvery)
		if got := who(t, i, old); got != "ann" {
			t.Errorf("the issuer is down: %s", got)
		}
	})
}

// TestRemovedKey checks that a key that the issuer removes is not accepted for ever.
func TestRemovedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		i := open(t, issuer, bySub())
		defer i.Close()
		token := issuer.Token(t, time.Now(), nil)
		r, err := i.Authenticate(t.Context(), token)
		if err != nil || !r.Holds() {
			t.Fatal(err)
		}
		time.Sleep(refreshEvery + 2*minPause)
		synctest.Wait()
		if !r.Holds() {
			t.Error("the result does not hold, with the same keys")
		}
		issuer.Rotate(t, jose.RS256)
		time.Sleep(refreshEvery)
		synctest.Wait()
		if got := who(t, i, token); r.Holds() || !strings.HasSuffix(got, "failed to verify id token signature") {
			t.Errorf("%v, %s", r.Holds(), got)
		}
	})
}

// TestClose checks that waiting tokens are rejected, and that no goroutine is left.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		i := open(t, issuer, bySub())
		synctest.Wait()
		issuer.Hang.Store(true)
		issuer.Rotate(t, jose.RS256)
		token := issuer.Token(t, time.Now(), nil)
		result := make(chan error)
		go func() {
			_, err := i.Authenticate(t.Context(), token)
			result <- err
		}()
		synctest.Wait()
		i.Close()
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestKeySets: keys that cannot verify a token are skipped.
func TestKeySets(t *testing.T) {
	good := jose.JSONWebKey{Key: oidctest.NewKey(t, jose.ES256).Public(), KeyID: "good", Algorithm: "ES256"}
	text, err := good.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for document, want := range map[string]int{
		`{}`:                                  0,
		`{"keys":[]}`:                         0,
		fmt.Sprintf(`{"keys":[%s]}`, text):    1,
		fmt.Sprintf(`{"keys":[%s,{}]}`, text): 1,
		fmt.Sprintf(`{"keys":[7,null,%s]}`, text): 1,
		fmt.Sprintf(`{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"new"},{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},%s]}`, text): 1,
		`{"keys":[{"kty":"RSA","e":"AQAB","n":"` + strings.Repeat("A", 100) + strings.Repeat("x", maxRSABits/6+100) + `"}]}`:                                      0,
	} {
		s, err := parseKeys([]byte(document))
		if err != nil || len(s.keys) != want {
			t.Errorf("%.100s: %+v, %v; want %d keys", document, s, err, want)
		}
	}
}
