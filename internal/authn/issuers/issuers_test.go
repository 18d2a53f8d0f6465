package issuers

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
	"github.com/tidemark-dev/tidemark/internal/await"
)

var quiet = slog.New(slog.DiscardHandler)

const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"

// file writes a configuration and returns its path.
func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const accounts = "https://kubernetes.default.svc.cluster.local"

// TestConfigurations compares the errors with those of kube-apiserver in
// testdata/configurations.txt.
func TestConfigurations(t *testing.T) {
	b, err := os.ReadFile("testdata/configurations.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(b), "\n== ")[1:]
	if len(cases) < 50 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, one := range cases {
		name, rest, _ := strings.Cut(one, " ==\n")
		text, want, _ := strings.Cut(rest, "-- want --\n")
		t.Run(name, func(t *testing.T) {
			path := file(t, text)
			i, err := Open(Config{File: path, Disallowed: []string{accounts}, Log: quiet})
			got := ""
			if err != nil {
				got = strings.ReplaceAll(err.Error(), path, "FILE")
			} else {
				i.Close()
			}
			if want = strings.TrimRight(want, "\n"); strings.TrimRight(got, "\n") != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// TestTooMany checks kube-apiserver's limit of the number of issuers.
func TestTooMany(t *testing.T) {
	text := header + "jwt:\n"
	for n := range 65 {
		text += fmt.Sprintf("- issuer: {url: 'https://i%d.test', audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", n)
	}
	_, err := Open(Config{File: file(t, text), Log: quiet})
	if err == nil || err.Error() != "invalid authentication configuration: jwt: Too many: 65: must have at most 64 items" {
		t.Error(err)
	}
}

// TestLargeFile checks the limit of the size of a file.
func TestLargeFile(t *testing.T) {
	path := file(t, header+strings.Repeat("# comment\n", maxFileBytes/10))
	if _, err := Open(Config{File: path, Log: quiet}); err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Error(err)
	}
}

// entry returns the part of a configuration for an issuer.
func entry(i *oidctest.Issuer, prefix string) string {
	return fmt.Sprintf("- issuer:\n    url: %s\n    audiences: [tidemark]\n    certificateAuthority: |\n      %s\n  claimMappings: {username: {claim: sub, prefix: '%s'}}\n",
		i.URL, strings.ReplaceAll(i.CA, "\n", "\n      "), prefix)
}

// ready waits until all issuers are discovered.
func (i *Issuers) ready(t testing.TB) {
	t.Helper()
	i.current.Load().ready(t)
}

func (s *set) ready(t testing.TB) {
	t.Helper()
	for url, one := range s.issuers {
		await.Value(t, url, one.Ready())
	}
}

func (i *Issuers) who(token string) string {
	u, _, err := i.AuthenticateToken(context.Background(), authn.NewToken(token), nil)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case u == nil:
		return "unknown"
	}
	return u.Name
}

// TestSeveralIssuers checks that the issuer in a token selects the verifier.
func TestSeveralIssuers(t *testing.T) {
	a, b, other := oidctest.Listen(t), oidctest.Listen(t), oidctest.Listen(t)
	i, err := Open(Config{File: file(t, header+"jwt:\n"+entry(a, "a:")+entry(b, "b:")), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	i.ready(t)
	now := time.Now()
	for _, row := range []struct{ token, want string }{
		{a.Token(t, now, nil), "a:ann"},
		{b.Token(t, now, nil), "b:ann"},
		{other.Token(t, now, nil), "unknown"},
		{oidctest.Sign(t, b.Key(), a.Claims(now, nil)), "error: oidc: verify token: failed to verify signature: failed to verify id token signature"},
		{"no.jwt", "unknown"},
		{"", "unknown"},
	} {
		if got := i.who(row.token); got != row.want {
			t.Errorf("got %s, want %s", got, row.want)
		}
	}
}

// TestResults checks that a cached token needs no verification and no allocation, and is rejected
// once it has expired or its key is removed.
func TestResults(t *testing.T) {
	issuer := oidctest.Listen(t)
	now := time.Now()
	i, err := Open(Config{JWT: []apiserver.JWTAuthenticator{{
		Issuer:        apiserver.Issuer{URL: issuer.URL, CertificateAuthority: issuer.CA, Audiences: []string{"tidemark"}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: "sub", Prefix: new(string)}},
	}}, Now: func() time.Time { return now }, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	i.ready(t)
	token := authn.NewToken(issuer.Token(t, now, map[string]any{"groups": []string{"x"}}))
	u, _, err := i.AuthenticateToken(t.Context(), token, nil)
	if err != nil || u.Name != "ann" || !slices.Equal(u.Groups, []string{authn.Authenticated}) {
		t.Fatalf("%+v, %v", u, err)
	}
	if n := testing.AllocsPerRun(100, func() { i.AuthenticateToken(context.Background(), token, nil) }); n > 0 {
		t.Errorf("a known token costs %v allocations", n)
	}
	later := issuer.Token(t, now.Add(3*time.Hour), nil)
	if got := i.who(later); got != "ann" {
		t.Fatal(got)
	}
	now = now.Add(2 * time.Hour)
	if got := i.who(token.Text); !strings.Contains(got, "token is expired") {
		t.Errorf("after two hours: %s", got)
	}
	issuer.Rotate(t, "RS256")
	if got := i.who(issuer.Token(t, now, nil)); got != "ann" {
		t.Errorf("with the new key: %s", got)
	}
	if got := i.who(later); !strings.Contains(got, "failed to verify id token signature") {
		t.Errorf("with the old key: %s", got)
	}
}

// TestResultsAreBounded checks that the cache of tokens is bounded, and keeps the ones in use.
func TestResultsAreBounded(t *testing.T) {
	issuer := oidctest.Listen(t)
	now := time.Now()
	i, err := Open(Config{File: file(t, header+"jwt:\n"+entry(issuer, "")), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	i.ready(t)
	u := authn.NewToken(issuer.Token(t, now, nil))
	if i.who(u.Text) != "ann" {
		t.Fatal(i.who(u.Text))
	}
	s := i.current.Load()
	one := s.results.get(u.Sum)
	for n := range 3 * maxResults {
		s.results.put(authn.NewToken(fmt.Sprint(n)), one)
		if n%100 == 0 && s.results.get(u.Sum) == nil {
			t.Fatalf("after %d tokens, the one in use is gone", n)
		}
	}
	if n := len(s.results.recent) + len(s.results.older); n > 2*maxResults {
		t.Errorf("%d results are kept", n)
	}
	large := authn.NewToken(issuer.Token(t, now, map[string]any{"large": strings.Repeat("x", maxResultBytes)}))
	if i.who(large.Text) != "ann" || s.results.get(large.Sum) != nil {
		t.Error("the result of a large token is kept")
	}
}

// TestHowTo: the configuration of the how-to is valid.
func TestHowTo(t *testing.T) {
	b, err := os.ReadFile("../../../docs/how-to/oidc.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "```yaml\napiVersion: apiserver")
	text, _, _ := strings.Cut(rest, "```")
	i, err := Open(Config{File: file(t, "apiVersion: apiserver"+text), Disallowed: []string{accounts}, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	if len(i.current.Load().issuers) != 2 || i.Anonymous() == nil {
		t.Errorf("%d issuers", len(i.current.Load().issuers))
	}
}
