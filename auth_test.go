package tidemark_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// clock is a clock that the test moves. It is safe for concurrent use.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time        { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) turn(by time.Duration) { c.ahead.Add(int64(by)) }

// write writes a file into a directory of the test's, and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNoCredentials checks that only the health endpoints and /version are open to
// anonymous requests.
func TestNoCredentials(t *testing.T) {
	c := servertest.Anonymous(servertest.Start(t, &tidemark.Server{}))
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz?verbose", "/version"} {
		servertest.WantCode(t, c, path, http.StatusOK, "")
	}
	servertest.WantCode(t, c, "/livez/ping", http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "/livez/ping"`)
	servertest.WantCode(t, c, "/metrics", http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "/metrics"`)
	servertest.WantCode(t, c, "/api", http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "/api"`)
	servertest.WantCode(t, c, "/livez/ping", http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "/livez/ping"`)
	servertest.WantCode(t, c, "/apis/apps/v1/deployments", http.StatusForbidden,
		`deployments.apps is forbidden: User "system:anonymous" cannot list resource "deployments" in API group "apps" at the cluster scope`)

	strict := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{DisableAnonymous: true}})
	for _, path := range []string{"/healthz", "/version", "/api"} {
		servertest.WantCode(t, servertest.Anonymous(strict), path, http.StatusUnauthorized, "Unauthorized")
	}
	servertest.WantCode(t, strict.RESTConfig(), "/api", http.StatusOK, "")
}

// TestIgnoredCredentials: other schemes than Bearer are no credentials, nor is a token after two
// spaces, which gets a warning.
func TestIgnoredCredentials(t *testing.T) {
	for path, code := range map[string]int{"/healthz": http.StatusOK, "/api": http.StatusForbidden} {
		s := servertest.Start(t, &tidemark.Server{})
		for header, warning := range map[string]string{
			"Basic YTpi": "",
			"Bearer  x":  `299 - "the provided Authorization header contains extra space before the bearer token, and is ignored"`,
		} {
			config := servertest.Anonymous(s)
			config.WrapTransport = func(next http.RoundTripper) http.RoundTripper { return withHeader{next, header} }
			client, err := rest.HTTPClientFor(config)
			if err != nil {
				t.Fatal(err)
			}
			r, err := client.Get(s.URL() + path)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != code || r.Header.Get("Warning") != warning {
				t.Errorf("%s with %q: %d, warning %q; want %d, %q", path, header, r.StatusCode, r.Header.Get("Warning"), code, warning)
			}
		}
	}
}

// withHeader sets the Authorization header of requests.
type withHeader struct {
	next  http.RoundTripper
	value string
}

// RoundTrip implements http.RoundTripper.
func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", h.value)
	return h.next.RoundTrip(r)
}

func TestWrongCredentials(t *testing.T) {
	s, other := servertest.Start(t, &tidemark.Server{}), servertest.Start(t, &tidemark.Server{})
	for _, path := range []string{"/healthz", "/api", defaultNamespace} {
		servertest.WantCode(t, servertest.WithToken(s, "wrong"), path, http.StatusUnauthorized, "Unauthorized")
		servertest.WantCode(t, servertest.WithToken(s, other.RESTConfig().BearerToken), path, http.StatusUnauthorized, "Unauthorized")
	}
	foreign, err := other.RESTConfigFor("admin", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c := servertest.Anonymous(s)
	c.CertData, c.KeyData = foreign.CertData, foreign.KeyData
	servertest.WantCode(t, c, "/healthz", http.StatusUnauthorized, "Unauthorized")
	c.BearerToken = s.RESTConfig().BearerToken
	servertest.WantCode(t, c, defaultNamespace, http.StatusOK, "") // one that is right is enough
}

func TestClientCertificates(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	master, err := s.RESTConfigFor("ann", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	servertest.WantCode(t, master, defaultNamespace, http.StatusOK, "")
	bob, err := s.RESTConfigFor("bob", "dev")
	if err != nil {
		t.Fatal(err)
	}
	servertest.WantCode(t, bob, "/healthz", http.StatusOK, "")
	servertest.WantCode(t, bob, "/api/v1/nodes/x", http.StatusForbidden,
		`nodes "x" is forbidden: User "bob" cannot get resource "nodes" in API group "" at the cluster scope`)
}

// TestClientCAFile checks that client certificates of another authority are accepted
// once ClientCAFile contains it.
func TestClientCAFile(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	dir := t.TempDir()
	file := write(t, dir, "ca.crt", string(ours.CertificatePEM()))
	var c clock
	s := &tidemark.Server{Authentication: tidemark.Authentication{ClientCAFile: file}}
	s.SetClock(c.now)
	servertest.Start(t, s)
	as := func(a *pki.Authority) *rest.Config {
		config := servertest.Anonymous(s)
		var err error
		if config.CertData, config.KeyData, err = a.IssueClient("ann", []string{"system:masters"}); err != nil {
			t.Fatal(err)
		}
		return config
	}
	servertest.WantCode(t, as(ours), defaultNamespace, http.StatusOK, "")
	servertest.WantCode(t, as(theirs), defaultNamespace, http.StatusUnauthorized, "Unauthorized")
	write(t, dir, "ca.crt", string(theirs.CertificatePEM()))
	c.turn(2 * time.Second)
	servertest.WantCode(t, as(theirs), defaultNamespace, http.StatusOK, "")
	servertest.WantCode(t, as(ours), defaultNamespace, http.StatusUnauthorized, "Unauthorized")
}

// TestFrontProxy: a front proxy names the user in headers. Extension servers read from a ConfigMap how
// it does so.
func TestFrontProxy(t *testing.T) {
	proxies := newAuthority(t)
	dir := t.TempDir()
	file := write(t, dir, "proxies.crt", string(proxies.CertificatePEM()))
	headers := tidemark.RequestHeader{ClientCAFile: file, AllowedNames: []string{"front"}, UsernameHeaders: []string{"X-Remote-User"}, GroupHeaders: []string{"X-Remote-Group"}}
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{RequestHeader: headers}})
	as := func(name string) *rest.Config {
		c := servertest.Anonymous(s)
		var err error
		if c.CertData, c.KeyData, err = proxies.IssueClient(name, nil); err != nil {
			t.Fatal(err)
		}
		c.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
			return transport.NewAuthProxyRoundTripper("joe", "", []string{"system:masters"}, nil, next)
		}
		return c
	}
	servertest.WantCode(t, as("front"), defaultNamespace, http.StatusOK, "")
	servertest.WantCode(t, as("other"), defaultNamespace, http.StatusUnauthorized, "Unauthorized")
	bob, err := s.RESTConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	bob.WrapTransport = as("front").WrapTransport
	servertest.WantCode(t, bob, defaultNamespace, http.StatusForbidden,
		`namespaces "default" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the namespace "default"`)
	_, body := servertest.Get(t, s.RESTConfig(), "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
	var published struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(body), &published); err != nil || published.Data["requestheader-allowed-names"] != `["front"]` ||
		published.Data["requestheader-username-headers"] != `["X-Remote-User"]` || published.Data["requestheader-client-ca-file"] != string(proxies.CertificatePEM()) {
		t.Errorf("%s, %v", body, err)
	}

	headers.AllowedNames = nil
	err = (&tidemark.Server{Authentication: tidemark.Authentication{ClientCAFile: file, RequestHeader: headers}}).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "in common") {
		t.Errorf("clients of the same authority as front proxies: %v", err)
	}
}

func TestTokenAuthFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "tokens.csv", "t-ann,ann,1,\"system:masters,dev\"\nt-bob,bob,2\n")
	var c clock
	s := &tidemark.Server{Authentication: tidemark.Authentication{TokenFile: file}}
	s.SetClock(c.now)
	servertest.Start(t, s)
	servertest.WantCode(t, servertest.WithToken(s, "t-ann"), defaultNamespace, http.StatusOK, "")
	servertest.WantCode(t, servertest.WithToken(s, "t-bob"), defaultNamespace, http.StatusForbidden,
		`namespaces "default" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the namespace "default"`)
	write(t, dir, "tokens.csv", "t-carol,carol,3,system:masters\n")
	c.turn(2 * time.Second)
	servertest.WantCode(t, servertest.WithToken(s, "t-carol"), defaultNamespace, http.StatusOK, "")
	servertest.WantCode(t, servertest.WithToken(s, "t-ann"), defaultNamespace, http.StatusUnauthorized, "Unauthorized")
	write(t, dir, "tokens.csv", "broken\n")
	c.turn(2 * time.Second)
	servertest.WantCode(t, servertest.WithToken(s, "t-carol"), defaultNamespace, http.StatusOK, "") // as it was
}

// TestOwnCertificate serves the certificate of TLS.CertFile, and the new one when the
// file changes. The administrator's kubeconfig works meanwhile.
func TestOwnCertificate(t *testing.T) {
	dir := t.TempDir()
	issue := func() *x509.Certificate {
		c, err := newAuthority(t).GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		writePair(t, dir, c)
		return c.Leaf
	}
	first := issue()
	var c clock
	s := &tidemark.Server{TLS: tidemark.TLS{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key")}}
	s.SetClock(c.now)
	servertest.Start(t, s)
	if !servedBy(t, s, "localhost").Equal(first) {
		t.Error("another certificate is served")
	}
	servertest.WantCode(t, s.RESTConfig(), defaultNamespace, http.StatusOK, "")
	second := issue()
	c.turn(2 * time.Second)
	if !servedBy(t, s, "localhost").Equal(second) {
		t.Error("the old certificate is still served")
	}
	servertest.WantCode(t, s.RESTConfig(), defaultNamespace, http.StatusOK, "")
}

// TestRenewal checks that a kubeconfig from the start trusts a server that runs for
// years.
func TestRenewal(t *testing.T) {
	var c clock
	s := &tidemark.Server{}
	s.SetClock(c.now)
	servertest.Start(t, s)
	config := s.RESTConfig()
	before := servedBy(t, s, "localhost")
	for range 6 {
		c.turn(300 * 24 * time.Hour)
		leaf := servedBy(t, s, "localhost")
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(config.CAData)
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "localhost", CurrentTime: c.now()}); err != nil {
			t.Fatal(err)
		}
		if leaf.Equal(before) {
			t.Error("the certificate was not renewed")
		}
		before = leaf
	}
}

func newAuthority(t *testing.T) *pki.Authority {
	t.Helper()
	a, err := pki.Open(pki.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func writePair(t *testing.T, dir string, c *tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
	write(t, dir, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})))
}
