package oidc

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
)

var quiet = slog.New(slog.DiscardHandler)

// bySub is a configuration whose user is the claim sub.
func bySub() *apiserver.JWTAuthenticator {
	return &apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: oidctest.URL, Audiences: []string{"tidemark"}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new(string)}},
	}
}

// compiled returns the rules of a valid configuration.
func compiled(t testing.TB, a *apiserver.JWTAuthenticator) *Rules {
	t.Helper()
	r, wrong := Compile(field.NewPath("jwt"), a, nil)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return r
}

// open opens the issuer of a configuration, and waits until it is ready.
func open(t testing.TB, from *oidctest.Issuer, a *apiserver.JWTAuthenticator, algorithms ...string) *Issuer {
	t.Helper()
	i, err := New(Config{Issuer: a.Issuer, Rules: compiled(t, a), Algorithms: algorithms, Transport: from, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	<-i.Ready()
	return i
}

// who returns the user's name, or the error.
func who(t testing.TB, i *Issuer, token string) string {
	t.Helper()
	r, err := i.Authenticate(t.Context(), token)
	if err != nil {
		if len(token) > 100 && strings.Contains(err.Error(), token[len(token)-50:]) {
			t.Errorf("the error shows the token: %v", err)
		}
		return err.Error()
	}
	return r.User.Name
}

func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// replaced returns a token with another part: 0 is the header, 1 the payload, 2 the signature.
func replaced(token string, part int, by string) string {
	parts := strings.Split(token, ".")
	parts[part] = by
	return strings.Join(parts, ".")
}

// TestTokens checks each way in which a token can be invalid.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		a := bySub()
		i := open(t, issuer, a, Algorithms...)
		defer i.Close()
		now := time.Now()
		good := issuer.Token(t, now, nil)
		token := func(more map[string]any) string { return issuer.Token(t, now, more) }

		public := issuer.Key().Public()
		document, _ := json.Marshal(public)
		der, _ := x509.MarshalPKIXPublicKey(public.Key)
		hmac := func(secret []byte) string {
			return oidctest.Sign(t, &jose.JSONWebKey{Key: secret, KeyID: public.KeyID, Algorithm: "HS256"}, issuer.Claims(now, nil))
		}
		stranger := &jose.JSONWebKey{Key: oidctest.NewKey(t, jose.RS256), KeyID: public.KeyID, Algorithm: "RS256"}
		unknown := &jose.JSONWebKey{Key: stranger.Key, KeyID: "unknown", Algorithm: "RS256"}
		const badSignature = "oidc: verify token: failed to verify signature: failed to verify id token signature"
		const badAlgorithm = `oidc: verify token: oidc: id token signed with unsupported algorithm, expected ["ES256" "ES384" "ES512" "PS256" "PS384" "PS512" "RS256" "RS384" "RS512"] got `
		expiry := now.Add(-time.Second).Unix()

		for _, row := range []struct{ name, token, want string }{
			{"good", good, "ann"},
			{"several audiences", token(map[string]any{"aud": []string{"x", "tidemark"}}), "ann"},
			{"expired", token(map[string]any{"exp": expiry}), "oidc: verify token: oidc: token is expired (Token Expiry: " + time.Unix(expiry, 0).String() + ")"},
			{"no expiry", token(map[string]any{"exp": nil}), "oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)"},
			{"null expiry", token(map[string]any{"exp": json.RawMessage("null")}), "oidc: verify token: oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)"},
			{"fractional expiry", token(map[string]any{"exp": float64(now.Unix()) + 60.5}), "ann"},
			{"huge expiry", token(map[string]any{"exp": 1e300}), "oidc: verify token: oidc: failed to unmarshal claims: a time is out of range"},
			{"expiry is text", token(map[string]any{"exp": "soon"}), "oidc: verify token: oidc: failed to unmarshal claims: json: invalid number literal, trying to unmarshal \"\\\"soon\\\"\" into Number"},
			{"soon valid", token(map[string]any{"nbf": now.Add(30 * time.Second).Unix()}), "ann"},
			{"not valid yet", token(map[string]any{"nbf": now.Add(time.Hour).Unix()}), "oidc: verify token: oidc: current time " + now.String() + " before the nbf (not before) time: " + time.Unix(now.Add(time.Hour).Unix(), 0).String()},
			{"other audience", token(map[string]any{"aud": "vault"}), `oidc: verify token: oidc: expected audience "tidemark" got ["vault"]`},
			{"no audience", token(map[string]any{"aud": nil}), `oidc: verify token: oidc: expected audience "tidemark" got []`},
			{"other issuer", token(map[string]any{"iss": "https://other.test"}), `oidc: verify token: oidc: id token issued by a different provider, expected "https://issuer.test" got "https://other.test"`},
			{"no issuer", token(map[string]any{"iss": nil}), `oidc: verify token: oidc: id token issued by a different provider, expected "https://issuer.test" got ""`},
			{"claims in other letters", token(map[string]any{"iss": nil, "ISS": issuer.URL}), `oidc: verify token: oidc: id token issued by a different provider, expected "https://issuer.test" got ""`},
			{"claims are no object", oidctest.Sign(t, issuer.Key(), []byte(`[1]`)), "oidc: verify token: oidc: failed to unmarshal claims: json: cannot unmarshal array into Go value of type oidc.idToken"},
			{"key of a stranger", oidctest.Sign(t, stranger, issuer.Claims(now, nil)), badSignature},
			{"unknown key", oidctest.Sign(t, unknown, issuer.Claims(now, nil)), badSignature},
			{"changed payload", replaced(good, 1, segment(`{"iss":"https://issuer.test","aud":"tidemark","sub":"admin","exp":9999999999}`)), badSignature},
			{"no signature", replaced(good, 2, ""), badSignature},
			{"signature of another token", replaced(good, 2, strings.Split(token(map[string]any{"sub": "bob"}), ".")[2]), badSignature},
			{"alg none", replaced(replaced(good, 0, segment(`{"alg":"none"}`)), 2, ""), badAlgorithm + `"none"`},
			{"alg nOnE", replaced(replaced(good, 0, segment(`{"alg":"nOnE"}`)), 2, ""), badAlgorithm + `"nOnE"`},
			{"no alg", replaced(good, 0, segment(`{}`)), badAlgorithm + `""`},
			{"HMAC with the public key in DER", hmac(der), badAlgorithm + `"HS256"`},
			{"HMAC with the public key as JWK", hmac(document), badAlgorithm + `"HS256"`},
			{"ES256 with an RSA key", replaced(good, 0, segment(`{"alg":"ES256","kid":"`+public.KeyID+`"}`)), badSignature},
			{"PS256 in place of RS256", replaced(good, 0, segment(`{"alg":"PS256","kid":"`+public.KeyID+`"}`)), badSignature},
			{"unknown critical header", replaced(good, 0, segment(`{"alg":"RS256","kid":"`+public.KeyID+`","crit":["x"],"x":1}`)), badSignature},
			{"own key in the header", selfSigned(t, issuer, now), badSignature},
			{"header is no JSON", replaced(good, 0, segment(`x`)), "oidc: verify token: oidc: malformed jwt: invalid character 'x' looking for beginning of value"},
			{"header is no base64", replaced(good, 0, "!"), "oidc: verify token: oidc: malformed jwt: illegal base64 data at input byte 0"},
			{"too long", good + strings.Repeat("x", maxTokenBytes), "oidc: verify token: oidc: the token is longer than 1048576 bytes"},
			{"huge claims", token(map[string]any{"x": strings.Repeat("x", 700_000)}), "ann"},
			{"deep claims", oidctest.Sign(t, issuer.Key(), []byte(strings.Repeat("[", 100_000))), "oidc: verify token: oidc: failed to unmarshal claims: invalid character '[' exceeded max depth"},
		} {
			if got := who(t, i, row.token); got != row.want {
				t.Errorf("%s:\ngot  %s\nwant %s", row.name, got, row.want)
			}
		}
	})
}

// selfSigned returns a token whose header brings the key that verifies it.
func selfSigned(t *testing.T, issuer *oidctest.Issuer, now time.Time) string {
	t.Helper()
	o := (&jose.SignerOptions{EmbedJWK: true})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: oidctest.NewKey(t, jose.RS256)}, o)
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(issuer.Claims(now, nil))
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestAlgorithms checks that all algorithms work, and that only the allowed ones are accepted.
func TestAlgorithms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		all := open(t, issuer, bySub(), Algorithms...)
		defer all.Close()
		byDefault := open(t, issuer, bySub())
		defer byDefault.Close()
		for _, a := range Algorithms {
			issuer.Rotate(t, jose.SignatureAlgorithm(a))
			token := issuer.Token(t, time.Now(), nil)
			if got := who(t, all, token); got != "ann" {
				t.Errorf("%s: %s", a, got)
			}
			want := `oidc: verify token: oidc: id token signed with unsupported algorithm, expected ["RS256"] got "` + a + `"`
			if a == "RS256" {
				want = "ann"
			}
			if got := who(t, byDefault, token); got != want {
				t.Errorf("%s: %s", a, got)
			}
		}
	})
}

// TestAudiences checks that one of several audiences is enough.
func TestAudiences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		a := bySub()
		a.Issuer.Audiences, a.Issuer.AudienceMatchPolicy = []string{"z", "a"}, apiserver.AudienceMatchPolicyMatchAny
		i := open(t, issuer, a)
		defer i.Close()
		for aud, want := range map[string]string{"a": "ann", "z": "ann", "x": `oidc: verify token: oidc: expected audience in ["a" "z"] got ["x"]`} {
			if got := who(t, i, issuer.Token(t, time.Now(), map[string]any{"aud": aud})); got != want {
				t.Errorf("%s: got %s, want %s", aud, got, want)
			}
		}
	})
}

// TestGoogle checks that Google's tokens can name their issuer without the scheme.
func TestGoogle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer := oidctest.New(t)
		issuer.URL = "https://accounts.google.com"
		a := bySub()
		a.Issuer.URL = issuer.URL
		i := open(t, issuer, a)
		defer i.Close()
		token := issuer.Token(t, time.Now(), map[string]any{"iss": "accounts.google.com"})
		if got := UnverifiedIssuer(token); got != issuer.URL {
			t.Errorf("the issuer is %q", got)
		}
		if got := who(t, i, token); got != "ann" {
			t.Error(got)
		}
	})
}

func TestUnverifiedIssuer(t *testing.T) {
	for token, want := range map[string]string{
		"a." + segment(`{"iss":"https://x"}`) + ".c":             "https://x",
		"." + segment(`{"iss":"https://x"}`) + ".":               "https://x",
		"a." + segment(`{"iss":"https://x"}`):                    "",
		"a." + segment(`{"iss":"https://x"}`) + ".c.d":           "",
		"a." + segment(`{"ISS":"https://x"}`) + ".c":             "",
		"a." + segment(`{"iss":7}`) + ".c":                       "",
		"a." + segment(`{"iss":"a","iss":"b"}`) + ".c":           "b",
		"a." + segment(`["iss"]`) + ".c":                         "",
		"a.!.c":                                                  "",
		"":                                                       "",
		`{"payload":"x","signatures":[]}`:                        "",
		"a." + segment(`{"iss":"`) + ".c":                        "",
		"a." + segment(strings.Repeat(`{"a":`, 100_000)) + ".c":  "",
		"a." + segment(`{"iss":"accounts.google.com"}`) + ".sig": "https://accounts.google.com",
	} {
		if got := UnverifiedIssuer(token); got != want {
			t.Errorf("%.60s: got %q, want %q", token, got, want)
		}
	}
}
