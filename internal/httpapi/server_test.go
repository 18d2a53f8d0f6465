package httpapi_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/http2"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// tokens knows three users by their bearer tokens: an administrator, one without rights, and editor,
// who may do everything and is not exempt from limits.
type tokens struct{}

// Authenticate implements authn.Authenticator.
func (tokens) Authenticate(r *http.Request) (*authn.User, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok:
		return authn.Anonymous, nil
	case token == "admin":
		return &authn.User{Name: "admin", Groups: []string{"system:masters"}}, nil
	case token == "bob":
		return &authn.User{Name: "bob"}, nil
	case token == "editor":
		return &authn.User{Name: "editor", Groups: []string{"editors"}}, nil
	}
	return nil, errors.New("no such token")
}

// editors allows everything to the group of this name.
type editors struct{}

// Authorize implements authz.Authorizer.
func (editors) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if slices.Contains(a.User.Groups, "editors") {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// server is a handler behind a listener on the loopback interface.
type server struct {
	*httptest.Server
	handler  *httpapi.Handler
	registry *registry.Registry
	store    *store.Store
	client   *http.Client
	// ended gets the method and path of each request whose handler has returned.
	ended chan string
}

// wiring is how a test's server differs from the usual.
type wiring struct {
	http1  bool
	http2  *http2.Server // nil: ourHTTP2
	wrap   func(http.ResponseWriter) http.ResponseWriter
	config func(*httpapi.Config)
}

func newStore(t testing.TB) *store.Store {
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newConfig(s *store.Store) httpapi.Config {
	return httpapi.Config{
		Registry: &registry.Registry{Store: s},
		Catalog:  func() *resource.Catalog { return builtin.Catalog() },
		Authn:    tokens{},
		Authz:    authz.Union{authz.Masters{}, editors{}, public{}},
		Version:  "v1.37.2+tidemark.0.0.0",
	}
}

// public allows all users the same as the bootstrap roles: the health endpoints and /version.
type public struct{}

func (public) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	first, _, _ := strings.Cut(strings.TrimPrefix(a.Path, "/"), "/")
	if !a.IsResource && a.Verb == "get" && slices.Contains([]string{"healthz", "livez", "readyz", "version"}, first) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

func start(t testing.TB, w wiring) *server {
	s := newStore(t)
	c := newConfig(s)
	if w.config != nil {
		w.config(&c)
	}
	h := httpapi.New(c)
	ended := make(chan string, 1000)
	wrap := w.wrap
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- r.Method + " " + r.URL.Path }()
		if wrap != nil {
			w = wrap(w)
		}
		h.ServeHTTP(w, r)
	}))
	ts.EnableHTTP2 = !w.http1
	if w.http2 == nil {
		w.http2 = ourHTTP2(t)
	}
	if !w.http1 {
		ts.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": w.http2.Serve}
		ts.Config.RegisterOnShutdown(w.http2.Shutdown)
	}
	ts.StartTLS()
	t.Cleanup(func() {
		h.Drain()
		w.http2.Shutdown()
		ts.CloseClientConnections()
		ts.Close()
	})
	srv := &server{Server: ts, handler: h, registry: c.Registry, store: s, client: ts.Client(), ended: ended}
	srv.namespace(t, "default")
	return srv
}

// response is a response that was read.
type response struct {
	code   int
	header http.Header
	body   string
}

// do sends a request as the administrator, with further headers "Name: value".
func (s *server) do(t testing.TB, method, path, body string, headers ...string) response {
	t.Helper()
	resp := s.open(t, context.Background(), method, path, strings.NewReader(body), headers...)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response{resp.StatusCode, resp.Header, string(b)}
}

func (s *server) open(t testing.TB, ctx context.Context, method, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("User-Agent", "test")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if value == "none" {
			r.Header.Del(name)
			continue
		}
		r.Header.Set(name, value)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// status reads a Status from a body.
func (a response) status(t testing.TB) (code int, reason, message string) {
	t.Helper()
	var s struct {
		Kind, APIVersion, Status, Reason, Message string
		Code                                      int
	}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" {
		t.Errorf("not a Status (%v): %s", err, a.body)
	}
	return s.Code, s.Reason, s.Message
}

// create stores a config map of about size bytes.
func (s *server) create(t testing.TB, namespace, name string, size int) {
	t.Helper()
	body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{"k":%q}}`, name, strings.Repeat("x", size))
	if a := s.do(t, "POST", "/api/v1/namespaces/"+namespace+"/configmaps", body); a.code != http.StatusCreated {
		t.Fatalf("create %s/%s: %d %s", namespace, name, a.code, a.body)
	}
}

// namespace makes a namespace.
func (s *server) namespace(t testing.TB, name string) {
	t.Helper()
	target := registry.Target{Type: builtin.Catalog().Lookup("", "v1", "namespaces")}
	body := registry.Body{Media: wire.JSON, Bytes: fmt.Appendf(nil, `{"metadata":{"name":%q}}`, name)}
	if _, err := s.registry.Create(t.Context(), target, body, registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waitEnded waits until the handler of a request ("GET /path") has returned.
func (s *server) waitEnded(t testing.TB, request string) {
	t.Helper()
	for await.Value(t, "the end of the handler of "+request, s.ended) != request {
	}
}

// oneConnection is a client whose requests share one HTTP/2 connection.
func (s *server) oneConnection(t testing.TB) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: s.client.Transport.(*http.Transport).TLSClientConfig.RootCAs},
		ForceAttemptHTTP2: true,
		MaxConnsPerHost:   1,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// endless is a body that never ends; it unblocks when closed.
type endless struct{ done chan struct{} }

func (e *endless) Read(p []byte) (int, error) {
	<-e.done
	return 0, io.EOF
}

func compact(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		t.Fatalf("%v: %s", err, s)
	}
	return b.String()
}
