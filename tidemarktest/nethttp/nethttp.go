// Package nethttp connects package net/http with tidemarktest: clients for the clusters of tests, and servers for
// the webhooks of tests. It is apart from tidemarktest, because net/http adds megabytes to each test binary.
package nethttp

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// Host is a tidemarktest.Host whose Kubernetes API has another way than the network. Server.Host of package tidemark
// is one.
type Host interface {
	tidemarktest.Host
	// API carries requests to the Kubernetes API of any world, by the URL of the world. Nil: the network does,
	// with TLS.
	API() http.RoundTripper
}

// Transport carries requests to the API of an Env in the process of the test. It does not authenticate. Nil: the
// network carries them, with TLS.
func Transport(env *tidemarktest.Env) http.RoundTripper {
	if h, ok := env.Host().(Host); ok {
		return h.API()
	}
	return nil
}

// Client returns an HTTP client that authenticates as the user of an Env. The clients of all Envs share connections.
func Client(env *tidemarktest.Env) *http.Client {
	transport := Transport(env)
	if transport == nil {
		transport = connect(env)
	}
	return &http.Client{Transport: &bearer{transport, env.Token()}}
}

// bearer adds a token to requests.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// CloseIdleConnections does nothing, because other Envs use the connections too. They are closed with the last Env.
func (b *bearer) CloseIdleConnections() {}

// peer is a server as clients check its certificate.
type peer struct{ ca, name string }

// connection is a connection to a server. Envs share it: a TLS handshake for each costs more than a short test.
type connection struct {
	*http.Transport
	worlds map[string]bool // that use it, by name
}

var connections = struct {
	sync.Mutex
	to map[peer]*connection
}{to: map[peer]*connection{}}

// connect returns the connection to the server of an Env.
func connect(env *tidemarktest.Env) *connection {
	p := peer{string(env.CAData()), env.ServerName()}
	connections.Lock()
	c := connections.to[p]
	if c == nil {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(env.CAData())
		c = &connection{worlds: map[string]bool{}, Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: p.name},
			ForceAttemptHTTP2: true,
		}}
		connections.to[p] = c
	}
	first := !c.worlds[env.Name()]
	c.worlds[env.Name()] = true
	connections.Unlock()
	if first {
		env.OnClose(func() { c.leave(p, env.Name()) })
	}
	return c
}

// leave closes the connection if no other world needs it.
func (c *connection) leave(p peer, world string) {
	connections.Lock()
	defer connections.Unlock()
	if delete(c.worlds, world); len(c.worlds) == 0 {
		delete(connections.to, p)
		c.CloseIdleConnections()
	}
}

// Serve serves the webhooks of an Env with a handler until the test ends.
func Serve(t tidemarktest.TB, s *tidemarktest.WebhookServer, h http.Handler) {
	t.Helper()
	if s == nil {
		t.Fatalf("nethttp: Serve: the Env has no webhooks: World.Webhooks is empty")
		return
	}
	certificate, err := tls.X509KeyPair(s.CAData, s.KeyData)
	if err != nil {
		t.Fatalf("nethttp: the certificate of the webhooks: %v", err)
		return
	}
	server := httptest.NewUnstartedServer(h)
	server.Listener.Close()
	server.Listener = s.Listen()
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
}
