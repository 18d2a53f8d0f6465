package authn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/pki"
)

var quiet = slog.New(slog.DiscardHandler)

// tokens reads a token file with that text.
func tokens(t *testing.T, text string) (authn.Tokens, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return authn.TokenFile(path, nil, quiet)
}

func TestTokenFile(t *testing.T) {
	known, err := tokens(t, "t1,ann,7,\"dev,ops\"\nt2,bob,8\n\nt3,carol,,\n\"t,4\",dave,\"\",system:authenticated,ignored\n")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]authn.User{
		"t1":  {Name: "ann", UID: "7", Groups: []string{"dev", "ops", "system:authenticated"}},
		"t2":  {Name: "bob", UID: "8", Groups: []string{"system:authenticated"}},
		"t3":  {Name: "carol", Groups: []string{"", "system:authenticated"}},
		"t,4": {Name: "dave", Groups: []string{"system:authenticated"}},
	} {
		u, _, _ := known.AuthenticateToken(t.Context(), authn.NewToken(token), nil)
		if u == nil || u.Name != want.Name || u.UID != want.UID || !slices.Equal(u.Groups, want.Groups) {
			t.Errorf("%s is %+v, want %+v", token, u, want)
		}
	}
	if u, _, _ := known.AuthenticateToken(t.Context(), authn.NewToken("t"), nil); u != nil {
		t.Errorf("an unknown token is %+v", u)
	}
}

func TestTokenFileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"good,a,1\nhush,b\n":         "line 2 has 2 columns",
		"good,a,1\n,b,2\n":           "line 2",
		"good,a,1\nhush,,2\n":        "line 2",
		"good,a,1\nhush\"x,b,2\n":    "line 2",
		"hush,a,1\n\n\nhush,b,2\n":   "line 4 has the token of line 1",
		"good,a,1\n\"hush,b,2\nmore": "line 3",
	} {
		_, err := tokens(t, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v; want %q, and no secret", text, err, want)
		}
	}
	if _, err := authn.TokenFile(filepath.Join(t.TempDir(), "absent"), nil, quiet); err == nil {
		t.Error("an absent file is no error")
	}
}

func request(headers ...string) *http.Request {
	r := &http.Request{Header: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// TestBearer compares the results with those of kube-apiserver v1.36.
func TestBearer(t *testing.T) {
	c := authn.Credentials{Tokens: []authn.Tokens{authn.OneToken("other", &authn.User{Name: "other"}), authn.OneToken("right", &authn.User{Name: "ann"})}}
	const websocket = "Sec-WebSocket-Protocol"
	upgrade := func(protocols ...string) []string {
		headers := []string{"Connection", "keep-alive, Upgrade", "Upgrade", "websocket"}
		for _, p := range protocols {
			headers = append(headers, websocket, p)
		}
		return headers
	}
	encoded := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("right"))
	for _, row := range []struct {
		headers []string
		user    string
		wrong   bool
	}{
		{nil, "", false},
		{[]string{"Authorization", "Bearer right"}, "ann", false},
		{[]string{"Authorization", "bearer right"}, "ann", false},
		{[]string{"Authorization", "Bearer right x"}, "ann", false},
		{[]string{"Authorization", "Bearer other"}, "other", false},
		{[]string{"Authorization", "Bearer wrong"}, "", true},
		{[]string{"Authorization", "Bearer wrong", "Authorization", "Bearer right"}, "", true},
		{[]string{"Authorization", "Bearer"}, "", false},
		{[]string{"Authorization", "Bearer "}, "", false},
		{[]string{"Authorization", "Bearer  right"}, "", false},
		{[]string{"Authorization", "Basic YTpi"}, "", false},
		{[]string{"Authorization", "right"}, "", false},
		{upgrade("v4.channel.k8s.io, " + encoded), "ann", false},
		{[]string{websocket, "v4.channel.k8s.io, " + encoded}, "", false}, // opens no WebSocket
		{upgrade(encoded, "v4.channel.k8s.io"), "ann", false},
		{upgrade(encoded), "", true},
		{upgrade(encoded + "," + encoded), "", true},
		{upgrade("base64url.bearer.authorization.k8s.io.!"), "", true},
		{upgrade("v4.channel.k8s.io"), "", false},
		{append(upgrade("v4.channel.k8s.io, "+encoded), "Authorization", "Bearer wrong"), "ann", false},
	} {
		u, err := c.Authenticate(request(row.headers...))
		name := ""
		if u != nil {
			name = u.Name
		}
		if name != row.user || (err != nil) != row.wrong {
			t.Errorf("%q: user %q, error %v; want %q, wrong: %v", row.headers, name, err, row.user, row.wrong)
		}
		if err != nil && (strings.Contains(err.Error(), "right") || strings.Contains(err.Error(), "wrong")) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

// authority is one with a clock that the test turns.
type authority struct {
	*pki.Authority
	at time.Time
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{at: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	var err error
	if a.Authority, err = pki.Open(pki.Config{Now: a.now}); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) now() time.Time { return a.at }

// request is one with a client certificate.
func (a *authority) request(t *testing.T, user string, groups ...string) *http.Request {
	t.Helper()
	cert, _, err := a.IssueClient(user, groups)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(cert)
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	r := request().WithContext(authn.WithConnection(context.Background(), nil))
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	return r
}

func TestCertificate(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	c := authn.Credentials{
		Authorities: []authn.Authority{func() *x509.CertPool { return nil }, a.Pool}, Now: a.now,
		Tokens: []authn.Tokens{authn.OneToken("right", &authn.User{Name: "by token"})},
	}
	r := a.request(t, "ann", "dev", "system:masters")
	for range 2 { // the second time from memory
		u, err := c.Authenticate(r)
		if err != nil || u.Name != "ann" || !slices.Equal(u.Groups, []string{"dev", "system:masters", "system:authenticated"}) {
			t.Fatalf("%+v, %v", u, err)
		}
		if id := u.Extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "X509SHA256=") {
			t.Errorf("extra is %v", u.Extra)
		}
	}
	if u, err := c.Authenticate(a.request(t, "", "dev")); u != nil || err != nil {
		t.Errorf("a certificate without a name: %+v, %v; want no user", u, err)
	}
	foreign := stranger.request(t, "ann", "system:masters")
	if u, err := c.Authenticate(foreign); u != nil || err == nil {
		t.Errorf("a foreign certificate: %+v, %v", u, err)
	}
	foreign.Header.Set("Authorization", "Bearer right")
	if u, err := c.Authenticate(foreign); err != nil || u.Name != "by token" {
		t.Errorf("a foreign certificate with a right token: %+v, %v", u, err)
	}
	r.Header.Set("Authorization", "Bearer wrong")
	if u, err := c.Authenticate(r); err != nil || u.Name != "ann" {
		t.Errorf("a right certificate with a wrong token: %+v, %v", u, err)
	}
}

// TestCertificateExpires checks that a cached result ends with the certificate.
func TestCertificateExpires(t *testing.T) {
	a := newAuthority(t)
	c := authn.Credentials{Authorities: []authn.Authority{a.Pool}, Now: a.now}
	r := a.request(t, "ann")
	if _, err := c.Authenticate(r); err != nil {
		t.Fatal(err)
	}
	a.at = a.at.Add(366 * 24 * time.Hour)
	if u, err := c.Authenticate(r); u != nil || err == nil {
		t.Errorf("a year later: %+v, %v", u, err)
	}
}

// TestAuthorityReplaced checks that a cached result ends when the authority is replaced.
func TestAuthorityReplaced(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	pool := a.Pool()
	c := authn.Credentials{Authorities: []authn.Authority{func() *x509.CertPool { return pool }}, Now: a.now}
	r := a.request(t, "ann")
	if _, err := c.Authenticate(r); err != nil {
		t.Fatal(err)
	}
	pool = other.Pool()
	if u, err := c.Authenticate(r); u != nil || err == nil {
		t.Errorf("after the authority was replaced: %+v, %v", u, err)
	}
}

func TestAuthorityFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := authn.AuthorityFile(path, nil, quiet); err == nil {
		t.Error("an absent file is no error")
	}
	if err := os.WriteFile(path, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := authn.AuthorityFile(path, nil, quiet); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("rubbish: %v", err)
	}
	a := newAuthority(t)
	if err := os.WriteFile(path, a.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	trusted, err := authn.AuthorityFile(path, nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	c := authn.Credentials{Authorities: []authn.Authority{trusted}, Now: a.now}
	if u, err := c.Authenticate(a.request(t, "ann")); err != nil || u.Name != "ann" {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestProxy checks that the headers of a front proxy name the user, and that those of other clients
// are ignored. The results are those of kube-apiserver v1.36.
func TestProxy(t *testing.T) {
	proxies, clients := newAuthority(t), newAuthority(t)
	c := authn.Credentials{
		Proxy: &authn.Proxy{
			Authority: proxies.Pool, Names: []string{"front"}, UsernameHeaders: []string{"X-Remote-User", "x-user"},
			UIDHeaders: []string{"X-Remote-Uid"}, GroupHeaders: []string{"X-Remote-Group"}, ExtraPrefixes: []string{"X-Remote-Extra-"},
		},
		Authorities: []authn.Authority{clients.Pool}, Now: proxies.now,
		Tokens: []authn.Tokens{authn.OneToken("right", &authn.User{Name: "by token"})},
	}
	with := func(r *http.Request, headers ...string) *http.Request {
		r.Header = request(headers...).Header
		return r
	}
	for _, row := range []struct {
		what  string
		r     *http.Request
		user  string // empty: none
		wrong bool
	}{
		{"all headers", with(proxies.request(t, "front"), "X-Remote-User", "joe", "X-Remote-Uid", "u1", "X-Remote-Group", "g1", "X-Remote-Group", "g2",
			"X-Remote-Extra-Acme.com%2fFoo", "a", "X-Remote-Extra-Acme.com%2fFoo", "b", "X-Remote-Extra-Bad%zz", "c"),
			"{joe u1 [g1 g2 system:authenticated] map[acme.com/foo:[a b] bad%zz:[c]]}", false},
		{"the second header", with(proxies.request(t, "front"), "X-Remote-User", "", "X-User", "joe"), "{joe  [system:authenticated] map[]}", false},
		{"the anonymous user", with(proxies.request(t, "front"), "X-Remote-User", "system:anonymous"), "{system:anonymous  [] map[]}", false},
		{"no name", with(proxies.request(t, "front"), "X-Remote-Group", "system:masters"), "", true},
		{"another name", with(proxies.request(t, "other"), "X-Remote-User", "joe"), "", true},
		{"another name and a token", with(proxies.request(t, "other"), "X-Remote-User", "joe", "Authorization", "Bearer right"), "{by token  [system:authenticated] map[]}", false},
		{"a client's certificate", with(clients.request(t, "front"), "X-Remote-User", "joe"), "front", false},
		{"no certificate", request("X-Remote-User", "joe"), "", false},
		{"a token", request("X-Remote-User", "joe", "Authorization", "Bearer right"), "{by token  [system:authenticated] map[]}", false},
	} {
		for range 2 { // the second time from memory
			u, err := c.Authenticate(row.r)
			got := ""
			if u != nil {
				got = fmt.Sprint(*u)
			}
			if got != row.user && (u == nil || u.Name != row.user) || (err != nil) != row.wrong {
				t.Errorf("%s: %s, %v; want %s, wrong: %v", row.what, got, err, row.user, row.wrong)
			}
		}
	}
	later := proxies.request(t, "front")
	later.Header.Set("X-Remote-User", "joe")
	if u, err := c.Authenticate(later); u == nil {
		t.Fatal(err)
	}
	proxies.at = proxies.at.Add(366 * 24 * time.Hour)
	if u, err := c.Authenticate(later); u != nil || err == nil {
		t.Errorf("a front proxy whose certificate has expired: %+v, %v", u, err)
	}
}

// TestAllocations counts the allocations of authentication.
func TestAllocations(t *testing.T) {
	a := newAuthority(t)
	c := authn.Credentials{Authorities: []authn.Authority{a.Pool}, Tokens: []authn.Tokens{authn.OneToken(strings.Repeat("right", 20), &authn.User{Name: "ann"})}}
	c.Now = a.now
	for what, r := range map[string]*http.Request{
		"a token": request("Authorization", "Bearer "+strings.Repeat("right", 20)), "a certificate": a.request(t, "ann"),
	} {
		if n := testing.AllocsPerRun(100, func() { c.Authenticate(r) }); n > 0 {
			t.Errorf("%s costs %v allocations for each request", what, n)
		}
	}
}

func BenchmarkToken(b *testing.B) {
	c := authn.Credentials{Tokens: []authn.Tokens{authn.OneToken("a-token-of-some-length-as-they-are", &authn.User{Name: "ann"})}}
	r := request("Authorization", "Bearer a-token-of-some-length-as-they-are")
	for b.Loop() {
		c.Authenticate(r)
	}
}

// signed are tokens with audiences of their own.
type signed struct{}

// AuthenticateToken implements authn.Tokens.
func (signed) AuthenticateToken(_ context.Context, t authn.Token, audiences []string) (*authn.User, []string, error) {
	switch t.Text {
	case "signed":
		return &authn.User{Name: "signed"}, audiences, nil
	case "elsewhere":
		return &authn.User{Name: "signed"}, []string{"there"}, nil
	case "expired":
		return nil, nil, errors.New("it has expired")
	}
	return nil, nil, nil
}

// TestReview checks that a token is valid for its audiences only, for each kind of tokens.
func TestReview(t *testing.T) {
	here := []string{"here"}
	c := authn.Credentials{Audiences: here, Tokens: []authn.Tokens{
		authn.ForAudiences(here, authn.OneToken("known", &authn.User{Name: "known"})), signed{},
	}}
	for _, row := range []struct {
		token, audiences string // with spaces
		user, good       string
		err              string
	}{
		{"known", "", "known", "here", ""},
		{"known", "there here", "known", "here", ""},
		{"known", "there", "", "", "invalid bearer token"},
		{"signed", "there", "signed", "there", ""},
		{"signed", "", "signed", "here", ""},
		{"expired", "", "", "", "[invalid bearer token, it has expired]"},
		{"elsewhere", "", "", "", "[invalid bearer token, unable to match the audience: [there] , accepted: [here]]"},
		{"neither", "", "", "", "invalid bearer token"},
	} {
		u, good, err := c.Review(t.Context(), row.token, strings.Fields(row.audiences))
		name, text := "", ""
		if u != nil {
			name = u.Name
		}
		if err != nil {
			text = err.Error()
		}
		if name != row.user || strings.Join(good, " ") != row.good || text != row.err {
			t.Errorf("%s for %q: %q, %q, %q; want %q, %q, %q", row.token, row.audiences, name, good, text, row.user, row.good, row.err)
		}
	}
	for token, want := range map[string]string{"signed": "", "expired": "it has expired", "neither": "invalid bearer token"} {
		if _, err := c.Authenticate(request("Authorization", "Bearer "+token)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", token, err, want)
		}
	}
}

// TestAnonymous checks that the policy admits requests without credentials by their exact path, and
// no request with an invalid token.
func TestAnonymous(t *testing.T) {
	for _, row := range []struct {
		policy authn.AnonymousPolicy
		path   string
		want   bool
	}{
		{authn.AnonymousPolicy{}, "/livez", false},
		{authn.AnonymousPolicy{Paths: []string{"/livez"}}, "/livez", false},
		{authn.AnonymousPolicy{Enabled: true}, "/livez", true},
		{authn.AnonymousPolicy{Enabled: true, Paths: []string{"/readyz", "/livez"}}, "/livez", true},
		{authn.AnonymousPolicy{Enabled: true, Paths: []string{"/livez"}}, "/livez/ping", false},
		{authn.AnonymousPolicy{Enabled: true, Paths: []string{"/livez"}}, "/livez/", false},
	} {
		c := authn.Credentials{Anonymous: row.policy, Tokens: []authn.Tokens{authn.OneToken("right", &authn.User{Name: "ann"})}}
		for _, headers := range [][]string{nil, {"Authorization", "Basic YTpi"}, {"Authorization", "Bearer  right"}} {
			r := request(headers...)
			r.URL = &url.URL{Path: row.path}
			if u, err := c.Authenticate(r); (u == authn.Anonymous) != row.want || err != nil {
				t.Errorf("%+v, %s, %q: %+v, %v; want anonymous: %v", row.policy, row.path, headers, u, err, row.want)
			}
		}
		r := request("Authorization", "Bearer wrong")
		r.URL = &url.URL{Path: row.path}
		if u, err := c.Authenticate(r); u != nil || err == nil {
			t.Errorf("%+v, %s: a wrong token is %+v, %v", row.policy, row.path, u, err)
		}
	}
}

// TestWarning: a token after two spaces is ignored, and only that is warned about.
func TestWarning(t *testing.T) {
	for header, want := range map[string]bool{
		"": false, "Bearer x": false, "Bearer x  y": false, "Basic  x": false, "Bearer": false, "Bearer  ": false,
		"Bearer  x": true, "bearer   x": true,
	} {
		if got := authn.Warning(request("Authorization", header)); (got != "") != want {
			t.Errorf("%q: %q", header, got)
		}
	}
}

// TestConnectionIsKnown checks that exactly the requests with valid credentials are reported to the
// listener.
func TestConnectionIsKnown(t *testing.T) {
	a := newAuthority(t)
	c := authn.Credentials{
		Authorities: []authn.Authority{a.Pool}, Now: a.now,
		Tokens: []authn.Tokens{authn.OneToken("right", &authn.User{Name: "ann"})},
	}
	for name, right := range map[string]*http.Request{"token": request("Authorization", "Bearer right"), "certificate": a.request(t, "ann")} {
		calls := 0
		ctx := authn.WithConnection(context.Background(), func() { calls++ })
		for _, r := range []*http.Request{request(), request("Authorization", "Bearer wrong"), newAuthority(t).request(t, "ann")} {
			if u, _ := c.Authenticate(r.WithContext(ctx)); u != nil || calls > 0 {
				t.Errorf("%s: %+v is known, %d calls", name, u, calls)
			}
		}
		for i := range 2 {
			if u, err := c.Authenticate(right.WithContext(ctx)); u == nil || calls != i+1 {
				t.Errorf("%s: %+v, %v, %d calls", name, u, err, calls)
			}
		}
	}
}
