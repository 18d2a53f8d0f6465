// Package servertest starts servers in tests and sends requests to them.
package servertest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
)

// Start starts s, and stops it with [Stop] when the test ends. It returns s.
func Start(t testing.TB, s *tidemark.Server) *tidemark.Server {
	t.Helper()
	if err := s.Start(t.Context()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { Stop(t, s) })
	return s
}

// Stop closes s, and fails the test if that returns an error.
func Stop(t testing.TB, s *tidemark.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// Anonymous returns a client configuration without credentials.
func Anonymous(s *tidemark.Server) *rest.Config {
	with := s.RESTConfig()
	c := rest.AnonymousClientConfig(with)
	c.Transport = with.Transport // of a server in process
	return c
}

// WithToken returns a client configuration whose only credential is a bearer token.
func WithToken(s *tidemark.Server, token string) *rest.Config {
	c := Anonymous(s)
	c.BearerToken = token
	return c
}

// Client returns client-go's HTTP client for a configuration. It shares no
// connection with other clients.
func Client(t testing.TB, c *rest.Config) *http.Client {
	t.Helper()
	c = rest.CopyConfig(c)
	c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } // keeps client-go from sharing transports
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.CloseIdleConnections)
	return h
}

// Get sends a GET and returns the status code and the body.
func Get(t testing.TB, c *rest.Config, path string) (code int, body string) {
	t.Helper()
	return GetAs(t, c, path, "")
}

// GetAs is Get with an Accept header, or without one if accept is empty.
func GetAs(t testing.TB, c *rest.Config, path, accept string) (code int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	resp, err := Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// WantCode sends a GET and checks the status code, and the message of the Status
// unless message is empty.
func WantCode(t testing.TB, c *rest.Config, path string, code int, message string) {
	t.Helper()
	got, body := Get(t, c, path)
	if got != code {
		t.Errorf("GET %s: %d, want %d\n%s", path, got, code, body)
	}
	if message == "" {
		return
	}
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || status.Message != message || status.Code != int32(code) {
		t.Errorf("GET %s: %s (%v), want the message %q", path, body, err, message)
	}
}
