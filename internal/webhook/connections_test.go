package webhook

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/await"
)

// serve starts a webhook with HTTP/2. It counts its connections.
func serve(t *testing.T, handle http.HandlerFunc) (s *httptest.Server, ca []byte, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	s = httptest.NewUnstartedServer(handle)
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pemOf(s), connections
}

func endpoint(t *testing.T, c *Connections, target Target) *Endpoint {
	t.Helper()
	e, err := c.Endpoint(target, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.CloseIdleConnections)
	return e
}

// inTwoMinutes is a context that always ends in a little less than two minutes.
type inTwoMinutes struct{ context.Context }

func (inTwoMinutes) Deadline() (time.Time, bool) {
	return time.Now().Add(119*time.Second + 500*time.Millisecond), true
}

// overAt is a context whose deadline passes when a channel is closed.
type overAt struct {
	inTwoMinutes
	over chan struct{}
}

func (c overAt) Done() <-chan struct{} { return c.over }

func (c overAt) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestSharedConnections: endpoints of one target share a connection, whatever their paths. The
// certificate of the webhook is its own authority.
func TestSharedConnections(t *testing.T) {
	var paths []string
	s, ca, connections := serve(t, func(_ http.ResponseWriter, r *http.Request) { paths = append(paths, r.Proto+" "+r.URL.String()) })
	address := s.Listener.Addr().String()
	c := NewConnections(func(namespace, name string, port int32) (string, error) {
		if namespace != "n" || name != "example" || port != 443 {
			return "", fmt.Errorf("asked for %s/%s:%d", namespace, name, port)
		}
		return address, nil
	}, nil)
	defer c.Close()
	ctx := inTwoMinutes{t.Context()}
	for _, path := range []string{"/a", "/b/", ""} {
		if _, err := endpoint(t, c, Target{URL: s.URL + path, CABundle: ca}).Post(ctx, 10, []byte("x"), []byte("y")); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := strings.Join(paths, ", "), "HTTP/2.0 /a?timeout=2m0s, HTTP/2.0 /b?timeout=2m0s, HTTP/2.0 /?timeout=2m0s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	_, err := endpoint(t, c, Target{Service: &Service{Namespace: "n", Name: "example"}, CABundle: ca}).Post(ctx, 10)
	if err == nil || !strings.Contains(err.Error(), "certificate is valid for") { // the name is example.n.svc
		t.Errorf("a Service with another name: %v", err)
	}
	_, err = endpoint(t, c, Target{Service: &Service{Namespace: "o", Name: "example", Port: 5, Path: "p"}, CABundle: ca}).Post(ctx, 10)
	if want := `Post "https://example.o.svc:5/p?timeout=2m0s": asked for o/example:5`; err == nil || err.Error() != want {
		t.Errorf("a Service that is not found: %v, want %s", err, want)
	}
	_, err = endpoint(t, c, Target{URL: s.URL}).Post(ctx, 10)
	if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("the authorities of the system: %v", err)
	}
}

// TestResponses: redirects are not followed, and large responses are errors.
func TestResponses(t *testing.T) {
	begun := make(chan struct{}) // the request to /hung
	s, ca, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		case "/pause":
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusTooManyRequests)
		case "/long":
			w.Header().Set("Content-Length", "201")
			io.WriteString(w, strings.Repeat("x", 201))
		case "/chunks":
			io.WriteString(w, strings.Repeat("x", 101))
			w.(http.Flusher).Flush()
			io.WriteString(w, strings.Repeat("x", 100))
		case "/most":
			io.WriteString(w, strings.Repeat("x", 200))
		case "/hung":
			close(begun)
			<-r.Context().Done()
		default:
			t.Errorf("%s was asked with %s", r.URL.Path, body)
		}
	})
	c := NewConnections(nil, nil)
	defer c.Close()
	get := func(path string) (*Response, error) {
		return endpoint(t, c, Target{URL: s.URL + path, CABundle: ca}).Post(t.Context(), 200, []byte("x"))
	}
	if a, err := get("/moved"); err != nil || a.Code != http.StatusTemporaryRedirect {
		t.Errorf("a redirect: %+v, %v", a, err)
	}
	if a, err := get("/pause"); err != nil || a.Code != http.StatusTooManyRequests || !a.Demands || a.RetryAfter != 7*time.Second {
		t.Errorf("a pause: %+v, %v", a, err)
	}
	if a, err := get("/most"); err != nil || len(a.Body) != 200 {
		t.Errorf("the largest response: %+v, %v", a, err)
	}
	for _, path := range []string{"/long", "/chunks"} {
		if _, err := get(path); err == nil || err.Error() != "the response has more than 200 bytes" {
			t.Errorf("%s: %v", path, err)
		}
	}
	hung, want := endpoint(t, c, Target{URL: s.URL + "/hung", CABundle: ca}), fmt.Sprintf(`Post "%s/hung?timeout=2m0s": context deadline exceeded`, s.URL)
	if _, err := hung.Post(overAt{inTwoMinutes{t.Context()}, begun}, 200); !errors.Is(err, context.DeadlineExceeded) || err.Error() != want {
		t.Errorf("a webhook that hangs: %v, want %s", err, want)
	}
}

// TestCallLimit: a call that waits for others ends with its context, or with an error that says so.
func TestCallLimit(t *testing.T) {
	c := NewConnections(nil, nil)
	defer c.Close()
	e, err := c.Endpoint(Target{URL: "https://127.0.0.1:1"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) error {
		t.Error("a call ran beside another one")
		return nil
	}
	err = e.Call(t.Context(), time.Minute, func(context.Context) error {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Call(gone, time.Minute, never); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
		if err := e.Call(t.Context(), 0, never); !errors.Is(err, ErrBusy) {
			t.Errorf("a caller that has waited: %v", err)
		}
		return io.EOF
	})
	if !errors.Is(err, io.EOF) {
		t.Errorf("the first call: %v", err)
	}
	if err := e.Call(t.Context(), time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Errorf("after the first call: %v", err)
	}
}

// TestLargeResponses: a target that sends much without end uses up its own budget and that of no other target. What is
// charged is what has arrived.
func TestLargeResponses(t *testing.T) {
	const bodyBytes, callers = 1 << 20, 8
	body := strings.Repeat("x", bodyBytes)
	ctx, leave := context.WithCancel(t.Context())
	sick, sickCA, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, body)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/hang" {
			<-ctx.Done()
		}
	})
	well, wellCA, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })
	c := NewConnections(nil, nil)
	defer c.Close()
	hang := endpoint(t, c, Target{URL: sick.URL + "/hang", CABundle: sickCA})
	charged := &hang.transport.large
	ended := make(chan error)
	for n := int64(1); n <= callers; n++ { // one after the other: a buffer that grows is charged with the one before
		go func() { _, err := hang.Post(ctx, 8*bodyBytes); ended <- err }()
		await.True(t, "buffers of twice what arrived", func() bool { return charged.Load() == n*2*bodyBytes })
	}
	charged.Add(maxTargetBytes)
	if _, err := endpoint(t, c, Target{URL: sick.URL, CABundle: sickCA}).Post(ctx, 8*bodyBytes); !errors.Is(err, ErrBusy) {
		t.Errorf("another path of the target: %v", err)
	}
	if a, err := endpoint(t, c, Target{URL: well.URL, CABundle: wellCA}).Post(t.Context(), 8*bodyBytes); err != nil || len(a.Body) != bodyBytes {
		t.Errorf("another target: %v", err)
	}
	charged.Add(-maxTargetBytes)
	leave()
	for range callers {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
	}
	if n := charged.Load(); n != 0 {
		t.Errorf("%d bytes are charged after the last call", n)
	}
}

// TestUsers: the most specific name takes precedence.
func TestUsers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"user":"current"}}],"users":[
		{"name":"a.n.svc","user":{"token":"exact"}},{"name":"a.n.svc:8443","user":{"token":"port"}},{"name":"*.n.svc","user":{"token":"domain"}},
		{"name":"*.svc","user":{"token":"services"}},{"name":"current","user":{"token":"current"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	users, err := ReadUsers(file)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"a.n.svc:443": "exact", "a.n.svc:8443": "port", "b.n.svc:443": "domain", "b.m.svc:443": "services", "b.n.svc:80": "current", "example.com:443": "current",
	} {
		c, err := users.config(target)
		if err != nil || c.BearerToken != want {
			t.Errorf("%s: %q, %v, want %q", target, c.BearerToken, err, want)
		}
	}
	users.file.AuthInfos["*"] = users.file.AuthInfos["a.n.svc"]
	if c, err := users.config("example.com:443"); err != nil || c.BearerToken != "exact" {
		t.Errorf("the user of all hosts: %q, %v", c.BearerToken, err)
	}
	var none *Users
	if c, err := none.config("example.com:443"); err != nil || c.BearerToken != "" {
		t.Errorf("without users: %q, %v", c.BearerToken, err)
	}
}

// TestCredentials: a webhook gets the token of its own host only.
func TestCredentials(t *testing.T) {
	var got string
	s, ca, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization") + " " + r.Header.Get("User-Agent")
	})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","users":[{"name":"127.0.0.1:` + port + `","user":{"tokenFile":"token"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	users, err := ReadUsers(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		users *Users
		want  string
	}{{users, "Bearer secret kube-apiserver-admission"}, {nil, " kube-apiserver-admission"}} {
		c := NewConnections(nil, row.users)
		if _, err := endpoint(t, c, Target{URL: s.URL, CABundle: ca}).Post(t.Context(), 10); err != nil || got != row.want {
			t.Errorf("got %q, %v, want %q", got, err, row.want)
		}
		c.Close()
	}
}

func TestServiceAddresses(t *testing.T) {
	service := func(spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: spec}
	}
	ports := []corev1.ServicePort{{Port: 443}}
	for name, row := range map[string]struct {
		spec    corev1.ServiceSpec
		address string
		err     string
	}{
		"cluster IP":    {corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: ports}, "10.0.0.1:443", ""},
		"IPv6":          {corev1.ServiceSpec{ClusterIP: "fd00::1", Ports: ports}, "[fd00::1]:443", ""},
		"external name": {corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}, "example.com:443", ""},
		"headless":      {corev1.ServiceSpec{ClusterIP: "None", Ports: ports}, "", `cannot route to service with ClusterIP "None"`},
		"other port":    {corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80}}}, "", `no service port 443 found for service "s"`},
	} {
		address, err := addressOf(service(row.spec), 443)
		if address != row.address || (err == nil) != (row.err == "") || err != nil && err.Error() != row.err {
			t.Errorf("%s: %q, %v", name, address, err)
		}
	}
}

// pemOf returns the certificate of a server.
func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
