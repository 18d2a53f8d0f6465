package aggregation_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// awaitText waits until the response to a GET is a text.
func awaitText(t testing.TB, url, want string) {
	t.Helper()
	await.Nil(t, "the response of "+url, func() error {
		r, err := http.Get(url)
		if got := text(t, r, err); got != want {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
}

// TestHeaders: an extension server gets the user that the server names, and nothing by which the client could name another
// one, or its credentials.
func TestHeaders(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{IdentityHeaders: []string{"X-My-User"}, IdentityPrefixes: []string{"X-My-Extra-"}})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) })
	front := w.front("g.example.com", "v1")
	r, err := http.NewRequest(http.MethodPost, front.URL+"/apis/g.example.com/v1/namespaces/a%2Fb/things?z=1&a=x%20y&a=w;bad&b", strings.NewReader("the body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{
		"Authorization": {"Bearer secret"}, "Impersonate-User": {"root"}, "Impersonate-Extra-A": {"b"}, "X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"},
		"X-Remote-Uid": {"0"}, "X-Remote-Extra-Scopes": {"all"}, "x-remote-extra-lower": {"all"}, "X_Remote_User": {"root"}, "X-Remote_Group": {"system:masters"}, "X_my_user": {"root"}, "X-My-User": {"root"}, "X-My-Extra-A": {"b"},
		"Te": {"trailers"}, "Connection": {"X-Hop"}, "X-Hop": {"1"}, "Cookie": {"a=b"}, "Accept-Encoding": {"gzip"}, "Audit-Id": {"of-the-client"},
		"X-Forwarded-For": {"10.0.0.1"}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.c2VjcmV0, other"},
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if got := text(t, response, err); got != "200 text/plain; charset=utf-8 the body" {
		t.Fatal(got)
	}
	seen := e.seen("/apis/g.example.com/v1/namespaces/a/b/things")
	if len(seen) != 1 {
		t.Fatalf("%d requests with the decoded path", len(seen))
	}
	got := seen[0]
	if got.URL.RawQuery != "a=x+y&b=&z=1" || got.Host != e.address() || got.ProtoMajor != 2 {
		t.Errorf("query %q, host %q, HTTP/%d", got.URL.RawQuery, got.Host, got.ProtoMajor)
	}
	for name, want := range map[string][]string{
		"Authorization": nil, "Impersonate-User": nil, "Impersonate-Extra-A": nil, "X-My-User": nil, "X-My-Extra-A": nil, "X-Hop": nil, "Connection": nil,
		"X-Remote-Extra-Scopes": nil, "X-Remote-Extra-Lower": nil, "X_remote_user": nil, "X-Remote_group": nil, "X_my_user": nil,
		"X-Remote-User": {"alice"}, "X-Remote-Group": {"dev", "system:authenticated"}, "X-Remote-Uid": {"u1"},
		"X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id": {"X509SHA256=1"},
		"Te": {"trailers"}, "Cookie": {"a=b"}, "Accept-Encoding": {"gzip"}, "Audit-Id": {"audit-1"},
		"X-Forwarded-For": {"10.0.0.1, 127.0.0.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Uri": {"/apis/g.example.com/v1/namespaces/a/b/things"},
		"X-Forwarded-Host": {strings.TrimPrefix(front.URL, "http://")}, "Sec-Websocket-Protocol": {"other"},
	} {
		if have := got.Header.Values(name); !slices.Equal(have, want) {
			t.Errorf("%s is %q, want %q", name, have, want)
		}
	}
}

// TestDots: a path that an extension server could resolve to another object is not forwarded, however it is escaped.
func TestDots(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })
	front := w.front("g.example.com", "v1")
	for path, code := range map[string]int{
		"things/..": 400, "namespaces/a/things/..%2f..%2f../b/things": 400, "namespaces/a/things/%2e%2E/x": 400, "things/./x": 400, "things/.": 400,
		"things/...": 200, "things/..x": 200, "things/x..": 200, "things/a.b": 200,
	} {
		r, err := http.NewRequest(http.MethodGet, front.URL+"/apis/g.example.com/v1/"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if got := text(t, response, err); !strings.HasPrefix(got, fmt.Sprint(code, " ")) {
			t.Errorf("%s: got %s, want %d", path, got, code)
		}
	}
}

// TestResponses: what clients get from extension servers that redirect, allow other origins, or are not there.
func TestResponses(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.register("v1.g.example.com", nil)
	await.True(t, "the table has the backend", func() bool { return w.Backend("g.example.com", "v1") != nil })
	front := w.front("g.example.com", "v1")
	get := func(path string) string {
		r, err := http.DefaultTransport.RoundTrip(httptest.NewRequest(http.MethodGet, front.URL+path, nil))
		return text(t, r, err)
	}
	const things = "/apis/g.example.com/v1/things"
	if got := get(things); got != "503 text/plain; charset=utf-8 service unavailable" {
		t.Errorf("unavailable: %s", got)
	}
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Warning", `299 - "deprecated"`)
		h.Set("Audit-Id", "of-the-backend")
		if r.URL.Path == "/apis/g.example.com/v1/moved" {
			http.Redirect(w, r, "https://169.254.169.254/", http.StatusFound)
			return
		}
		h.Set("Content-Encoding", "gzip") // it is not looked at
		io.WriteString(w, "not gzip")
	})
	r, err := http.DefaultTransport.RoundTrip(httptest.NewRequest(http.MethodGet, front.URL+"/apis/g.example.com/v1/moved", nil))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Location") != "" {
		t.Error("a client gets the Location of a redirect")
	}
	if got := text(t, r, nil); got != "502 text/plain; charset=utf-8 the backend attempted to redirect this request, which is not permitted" {
		t.Error(got)
	}
	plain := httptest.NewRequest(http.MethodGet, front.URL+things, nil)
	plain.Header.Set("Accept-Encoding", "gzip") // otherwise the client of the test unpacks it
	r, err = http.DefaultTransport.RoundTrip(plain)
	if err != nil {
		t.Fatal(err)
	}
	if h := r.Header; h.Get("Access-Control-Allow-Origin") != "" || h.Get("Warning") == "" || h.Get("Audit-Id") != "of-the-backend" || h.Get("Content-Encoding") != "gzip" {
		t.Errorf("headers %v", h)
	}
	if got := text(t, r, nil); !strings.HasSuffix(got, " not gzip") {
		t.Error(got)
	}
	e.CloseClientConnections()
	e.Listener.Close()
	// The first request may still find the old connection.
	awaitText(t, front.URL+things, fmt.Sprintf("503 text/plain; charset=utf-8 error trying to reach service: dial tcp %s: connect: connection refused", e.address()))
}

// TestForwardedRedirects: redirects reach the client if they are to.
func TestForwardedRedirects(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{ForwardRedirects: true})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere/", http.StatusFound)
	})
	r, err := http.DefaultTransport.RoundTrip(httptest.NewRequest(http.MethodGet, w.front("g.example.com", "v1").URL+"/apis/g.example.com/v1/moved", nil))
	if err != nil || r.StatusCode != http.StatusFound || r.Header.Get("Location") != "https://elsewhere/" {
		t.Errorf("%v, %v", r, err)
	}
}

// TestHang: a request ends with its time, that of a discovery document after 5 s. The request of the extension server ends with
// that of the client.
func TestHang(t *testing.T) {
	defer aggregation.SetDocumentTimeout(10 * time.Millisecond)()
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.available(e)
	ended := make(chan error, 10)
	hang := func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if strings.HasSuffix(r.URL.Path, "/watched") {
			ended <- r.Context().Err()
		}
	}
	e.handle(hang)
	front := w.frontOf("g.example.com", "v1", func(r *http.Request, c *aggregation.Caller) *http.Request {
		if c.Document = strings.HasSuffix(r.URL.Path, "/document"); c.Document {
			return r
		}
		ctx, cancel := context.WithDeadline(r.Context(), time.Unix(0, 0)) // its time is over
		context.AfterFunc(r.Context(), cancel)
		return r.WithContext(ctx)
	})
	for path, want := range map[string]string{
		"document": "503 text/plain; charset=utf-8 error trying to reach service: context deadline exceeded",
		"things":   "504 text/plain; charset=utf-8 returned: context deadline exceeded",
	} {
		r, err := http.Get(front.URL + "/apis/g.example.com/v1/" + path)
		if got := text(t, r, err); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	plain := w.front("g.example.com", "v1")
	ctx, leave := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, plain.URL+"/apis/g.example.com/v1/watched", nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		await.True(t, "the watch reaches the extension server", func() bool { return len(e.seen("/apis/g.example.com/v1/watched")) > 0 })
		leave()
	}()
	if _, err := http.DefaultClient.Do(r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	await.Value(t, "the end of the request of a client that left", ended)
}

// TestStream: both directions run at once, and nothing is held back.
func TestStream(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		http.NewResponseController(w).Flush()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintf(w, "got %s\n", lines.Text())
			http.NewResponseController(w).Flush()
		}
	})
	front := w.front("g.example.com", "v1")
	in, out := io.Pipe()
	s := httptest.NewUnstartedServer(front.Config.Handler) // HTTP/2: HTTP/1.1 has one direction at a time
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	r, err := http.NewRequest(http.MethodPost, s.URL+"/apis/g.example.com/v1/things", in)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for i := range 3 {
		fmt.Fprintf(out, "line %d\n", i)
		if !lines.Scan() || lines.Text() != fmt.Sprintf("got line %d", i) {
			t.Fatalf("line %d: %q, %v", i, lines.Text(), lines.Err())
		}
	}
	out.Close()
}

// TestDies: of a response that breaks off, the client gets the beginning, and does not take it for the whole.
func TestDies(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "beginning")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	r, err := http.Get(w.front("g.example.com", "v1").URL + "/apis/g.example.com/v1/things")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if b, err := io.ReadAll(r.Body); string(b) != "beginning" || err == nil {
		t.Errorf("%q, %v", b, err)
	}
}

// TestDrain: a long-running response ends cleanly when the server ends them.
func TestDrain(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "event\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	drained, drain := context.WithCancel(t.Context())
	front := w.frontOf("g.example.com", "v1", func(r *http.Request, c *aggregation.Caller) *http.Request {
		ctx, cancel := context.WithCancel(r.Context())
		context.AfterFunc(drained, cancel)
		c.Long, c.Drained = true, drained
		return r.WithContext(ctx)
	})
	r, err := http.Get(front.URL + "/apis/g.example.com/v1/things?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	line, err := bufio.NewReader(r.Body).ReadString('\n')
	if line != "event\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	drain()
	if b, err := io.ReadAll(r.Body); len(b) > 0 || err != nil {
		t.Errorf("after the drain: %q, %v", b, err)
	}
}

// TestLoop: a request that the server has forwarded to itself is refused.
func TestLoop(t *testing.T) {
	w := newWorld(t, aggregation.Config{})
	own := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = w.Backend("g.example.com", "v1").Serve(rw, r, aggregation.Caller{User: alice})
	}))
	own.StartTLS() // as behind a load balancer, whose address is not that of the server
	t.Cleanup(own.Close)
	w.register("v1.g.example.com", w.toService("api", own.Listener.Addr().String()))
	w.wantCondition("v1.g.example.com", "False FailedDiscoveryCheck *bad status from *: 503")
	e := startExtension(t, "api")
	w.available(e)
	e.handle(func(rw http.ResponseWriter, r *http.Request) { // it sends the request back
		again, err := http.NewRequest(http.MethodGet, own.URL+r.URL.Path, nil)
		if err != nil {
			t.Error(err)
			return
		}
		again.Header = r.Header
		back, err := own.Client().Do(again)
		if err != nil {
			t.Error(err)
			return
		}
		rw.WriteHeader(back.StatusCode)
		io.Copy(rw, back.Body)
		back.Body.Close()
	})
	r, err := http.Get(w.front("g.example.com", "v1").URL + "/apis/g.example.com/v1/things")
	if got := text(t, r, err); got != "508 text/plain; charset=utf-8 the Service of the APIService v1.g.example.com is this server itself" {
		t.Error(got)
	}
}

// TestUpgrade: a connection is upgraded at the extension server and then copied. Anything but 101 ends it (CVE-2018-1002105).
func TestUpgrade(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{Own: func(netip.AddrPort) bool { return false }})
	w.available(e)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" { // a check of the extension server
			return
		}
		if strings.HasSuffix(r.URL.Path, "/refused") {
			http.Error(w, "no such thing", http.StatusNotFound)
			return
		}
		conn, b, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nhello %s\n", r.Header.Get("X-Remote-User"))
		io.Copy(conn, b)
	})
	front := w.front("g.example.com", "v1")
	open := func(path string) (net.Conn, *bufio.Reader) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		fmt.Fprintf(conn, "GET /apis/g.example.com/v1/things/%s HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", path)
		return conn, bufio.NewReader(conn)
	}
	conn, in := open("accepted")
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", r, err)
	}
	for _, want := range []string{"hello alice\n", "ping\n"} {
		if got, err := in.ReadString('\n'); got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		io.WriteString(conn, "ping\n")
	}
	conn, in = open("refused")
	if r, err = http.ReadResponse(in, nil); err != nil || r.StatusCode != http.StatusNotFound || !r.Close {
		t.Fatalf("%v, %v", r, err)
	}
	io.Copy(io.Discard, r.Body)
	io.WriteString(conn, "GET /apis/g.example.com/v1/secrets HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\n\r\n") // the tunnel of the attack
	if _, err := in.ReadByte(); err == nil {
		t.Error("the connection goes on")
	}
	if n := len(e.seen("/apis/g.example.com/v1/secrets")); n != 0 {
		t.Errorf("%d requests went through the tunnel", n)
	}
}

// TestCrowd: requests that wait for one extension server have a limit. Watches do not count.
func TestCrowd(t *testing.T) {
	const most, more = 10, 5
	defer aggregation.SetMaxRunning(most)()
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	w.available(e)
	release := make(chan struct{})
	e.handle(func(http.ResponseWriter, *http.Request) { <-release })
	b := w.Backend("g.example.com", "v1")
	results := make(chan error, most+2*more)
	send := func(c aggregation.Caller) {
		results <- b.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/apis/g.example.com/v1/things", nil), c)
	}
	for range most + more {
		go send(aggregation.Caller{User: alice})
	}
	for range more {
		if err := await.Value(t, "a refusal", results); err == nil || !strings.Contains(err.Error(), "too many requests wait") {
			t.Error(err)
		}
	}
	for range more {
		go send(aggregation.Caller{User: alice, Long: true})
	}
	close(release)
	for range most + more {
		if err := await.Value(t, "the end of a request", results); err != nil {
			t.Error(err)
		}
	}
}
