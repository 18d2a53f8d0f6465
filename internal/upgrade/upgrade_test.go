package upgrade_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// front returns the address of a server that forwards with a proxy to the backend, and has the path prefix /front.
func front(t *testing.T, backend http.Handler, change func(*upgrade.Proxy)) string {
	t.Helper()
	b := httptest.NewTLSServer(backend)
	t.Cleanup(b.Close)
	trusted := b.Client().Transport.(*http.Transport)
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Audit-Id", "1")
		target, _ := url.Parse(b.URL)
		target.Path, target.RawQuery = strings.TrimPrefix(r.URL.Path, "/front"), r.URL.RawQuery
		p := &upgrade.Proxy{Target: target, Transport: trusted, Prefix: "/front", Dial: func(ctx context.Context, u *url.URL) (net.Conn, error) {
			return upgrade.Dial(ctx, u, nil, trusted.TLSClientConfig)
		}}
		if change != nil {
			change(p)
		}
		if err := p.Serve(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(f.Close)
	return f.Listener.Addr().String()
}

// ask sends a request as it is, and returns the response and the connection.
func ask(t *testing.T, address, request string) (*http.Response, net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(c)
	resp, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp, c, from
}

const askUpgrade = "GET /front/chat?a=b HTTP/1.1\nHost: front\nConnection: keep-alive, Upgrade, X-Secret\nUpgrade: chat\nX-Secret: 1\nX-Forwarded-For: 10.0.0.1\n\n"

// hijack takes the connection of a backend and writes the head of its response.
func hijack(w http.ResponseWriter, head string) (net.Conn, *bufio.ReadWriter) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	if _, err := io.WriteString(c, strings.ReplaceAll(head, "\n", "\r\n")); err != nil {
		panic(err)
	}
	return c, rw
}

// TestUpgrade checks that an upgraded connection is the same byte for byte, with what follows the headers at once.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	at := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		c, rw := hijack(w, "HTTP/1.1 101 Switching Protocols\nconnection: UPGRADE\nupgrade: chat\nx-oDD: v\n\nfirst")
		defer c.Close()
		_, _ = io.Copy(c, rw)
	}), func(p *upgrade.Proxy) {
		p.Prepare = func(r *http.Request) { r.Header["X-Remote-User"] = []string{"alice"} }
	})
	resp, c, from := ask(t, at, strings.Replace(askUpgrade, "X-Secret\n", "X-Secret, X-Remote-User\n", 1))
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("x-oDD") != "v" || resp.Header.Get("Audit-Id") != "" {
		t.Fatalf("the response is %d %v", resp.StatusCode, resp.Header)
	}
	r := <-got
	if r.URL.String() != "/chat?a=b" || r.Host != "front" || r.Header.Get("X-Secret") != "" || r.Header.Get("X-Remote-User") != "alice" ||
		r.Header.Get("X-Forwarded-For") != "10.0.0.1, 127.0.0.1" || r.Header.Get("Connection") != "Upgrade" || r.Header.Get("Upgrade") != "chat" {
		t.Errorf("the backend got %s %s %v", r.Host, r.URL, r.Header)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(from, first); err != nil || string(first) != "first" {
		t.Fatalf("after the headers came %q, %v", first, err)
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // a mebibyte
	go func() { _, _ = c.Write(sent) }()
	back := make([]byte, len(sent))
	if _, err := io.ReadFull(from, back); err != nil || !bytes.Equal(back, sent) {
		t.Errorf("the bytes changed on their way: %v", err)
	}
}

// TestRefusedUpgrade checks that a backend that refuses an upgrade gets nothing more over the connection
// (CVE-2018-1002105), and that its redirects are not followed (CVE-2020-8559, CVE-2018-1002102).
func TestRefusedUpgrade(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		head       string
		code       int
		body, text string
	}{
		{"HTTP/1.1 403 Forbidden\nContent-Length: 2\nX-Why: because\n\nnoHTTP/1.1 200 OK\nContent-Length: 4\n\nevil", 403, "no", ""},
		{"HTTP/1.1 404 Not Found\n\ngone", 404, "gone", ""},
		{"HTTP/1.1 302 Found\nLocation: https://elsewhere/\nContent-Length: 0\n\n", 500, "", "invalid upgrade response: status code 302"},
		{"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 500, "", "invalid upgrade response: status code 200"},
		{"HTTP/1.1 100 Continue\n\n", 500, "", "invalid upgrade response: status code 100"},
		{"HTTP/1.1 101 Switching Protocols\nX: " + strings.Repeat("x", 65<<10) + "\n\n", 500, "", "more than 65536 bytes of headers"},
		{"no HTTP\n\n", 500, "", "malformed HTTP"},
	} {
		more := make(chan string, 1)
		at := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, rw := hijack(w, c.head)
			if c.code == 404 { // the end of the connection is that of the body
				_ = conn.(*tls.Conn).CloseWrite()
			}
			rest, _ := io.ReadAll(rw)
			conn.Close()
			more <- string(rest)
		}), nil)
		resp, _, from := ask(t, at, askUpgrade+"GET /secrets HTTP/1.1\nHost: b\n\n")
		body, err := io.ReadAll(resp.Body)
		switch {
		case err != nil, resp.StatusCode != c.code, resp.Header.Get("Location") != "":
			t.Errorf("%.30q: the response is %d %v %v", c.head, resp.StatusCode, resp.Header, err)
		case c.text == "" && string(body) != c.body, !strings.Contains(string(body), c.text):
			t.Errorf("%.30q: the body is %q", c.head, body)
		}
		if !resp.Close {
			t.Errorf("%.30q: the connection is not closed", c.head)
		}
		if rest, _ := io.ReadAll(from); len(rest) > 0 {
			t.Errorf("%.30q: after the response came %q", c.head, rest)
		}
		if got := <-more; got != "" {
			t.Errorf("%.30q: the backend got %q after its response", c.head, got)
		}
	}
}

// TestUpgradeEnds checks that an upgraded connection ends with the context of its request, on both sides.
func TestUpgradeEnds(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, rw := hijack(w, "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: chat\n\n")
		defer c.Close()
		_, _ = io.Copy(io.Discard, rw)
		close(ended)
	}))
	t.Cleanup(b.Close)
	ctx, end := context.WithCancel(t.Context())
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		target, _ := url.Parse(b.URL)
		p := &upgrade.Proxy{Target: target, Dial: func(ctx context.Context, u *url.URL) (net.Conn, error) { return upgrade.Dial(ctx, u, nil, nil) }}
		if err := p.Serve(w, r.WithContext(ctx)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(f.Close)
	_, _, from := ask(t, f.Listener.Addr().String(), askUpgrade)
	end()
	if _, err := from.ReadByte(); err == nil {
		t.Error("the connection of the client goes on")
	}
	<-ended
}

// TestPlain checks requests without an upgrade.
func TestPlain(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	at := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", "*")
			h.Set("Set-Cookie", "a=b")
			h.Set("X-Hop", "1")
			h.Set("Connection", "X-Hop")
			w.WriteHeader(http.StatusTeapot)
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %s xff=%q uri=%q ua=%q te=%q custom=%q", r.Method, r.URL, body, r.Header["X-Forwarded-For"], r.Header["X-Forwarded-Uri"], r.Header["User-Agent"], r.Header["Te"], r.Header["X-Custom"])
		case "/slow":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
			<-goOn
			_, _ = io.WriteString(w, "later")
		case "/broken":
			_, _ = io.WriteString(w, "first")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/switch":
			c, _ := hijack(w, "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: evil\n\n")
			c.Close()
		}
	}), nil)
	resp, _, _ := ask(t, at, "PUT /front/echo?q=%20+ HTTP/1.1\nHost: h\nContent-Length: 4\nConnection: X-Custom\nX-Custom: 1\nTE: trailers\nKeep-Alive: 3\n\nbody")
	body, _ := io.ReadAll(resp.Body)
	if want := `PUT /echo?q=%20+ body xff=["127.0.0.1"] uri=["/front/echo"] ua=[] te=["trailers"] custom=[]`; string(body) != want {
		t.Errorf("the backend got\n%s\nwant\n%s", body, want)
	}
	h := resp.Header
	if resp.StatusCode != http.StatusTeapot || h.Get("Access-Control-Allow-Origin") != "" || h.Get("Set-Cookie") != "a=b" || h.Get("X-Hop") != "" || h.Get("Audit-Id") != "1" {
		t.Errorf("the response is %d %v", resp.StatusCode, h)
	}

	resp, _, _ = ask(t, at, "GET /front/slow HTTP/1.1\nHost: h\n\n")
	part := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, part); err != nil || string(part) != "first" {
		t.Errorf("the first part is %q, %v", part, err)
	}
	close(goOn)
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "later" {
		t.Errorf("the second part is %q, %v", rest, err)
	}

	resp, _, _ = ask(t, at, "GET /front/broken HTTP/1.1\nHost: h\n\n")
	if got, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("a response that breaks off is complete: %q", got)
	}

	resp, _, _ = ask(t, at, "GET /front/switch HTTP/1.1\nHost: h\n\n")
	if resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("an upgrade that was not requested: %d", resp.StatusCode)
	}
}

// TestUnreachable checks the error of a backend that does not respond.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	target, _ := url.Parse("http://b")
	down := errors.New("down")
	p := &upgrade.Proxy{Target: target, Transport: transport(func(*http.Request) (*http.Response, error) { return nil, down })}
	err := p.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if unreachable := (*upgrade.Unreachable)(nil); !errors.As(err, &unreachable) || !errors.Is(err, down) || err.Error() != "error trying to reach service: down" {
		t.Errorf("got %v", err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Connection", "upgrade")
	r.Header.Set("Upgrade", "chat")
	p.Dial = func(context.Context, *url.URL) (net.Conn, error) { return nil, down }
	if err := p.Serve(httptest.NewRecorder(), r); err == nil || err.Error() != "error dialing backend: down" {
		t.Errorf("got %v", err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRedirects checks the Location of redirects, and that they can be refused (CVE-2022-3172).
func TestRedirects(t *testing.T) {
	t.Parallel()
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := strings.ReplaceAll(r.URL.Query().Get("to"), "BACKEND", r.URL.Query().Get("host"))
		if to == "SELF" {
			to = "https://" + r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() + "/x"
		}
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusFound)
	})
	at := front(t, backend, nil)
	for to, want := range map[string]string{
		"/x":                "/front/x",
		"/x/?q=1#f":         "/front/x/?q=1#f",
		"x":                 "x",
		"../x":              "../x",
		"https://h/x":       "/front/x",
		"SELF":              "/front/x",
		"https://other/x":   "https://other/x",
		"/front/x":          "/front/x",
		"/frontier":         "/front/frontier",
		"//other/x":         "//other/x",
		"https://u:p@h/x":   "/front/x",
		"javascript:x":      "javascript:x",
		"/front":            "/front",
		"https://h/front/x": "/front/x",
	} {
		resp, _, _ := ask(t, at, "GET /front/r?to="+url.QueryEscape(to)+" HTTP/1.1\nHost: h\n\n")
		if got := resp.Header.Get("Location"); got != want || resp.StatusCode != http.StatusFound {
			t.Errorf("%s became %d %s, want %s", to, resp.StatusCode, got, want)
		}
	}
	refusing := front(t, backend, func(p *upgrade.Proxy) { p.RefuseRedirects = true })
	resp, _, _ := ask(t, refusing, "GET /front/r?to=/x HTTP/1.1\nHost: h\n\n")
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusBadGateway || resp.Header.Get("Location") != "" || string(body) != "the backend attempted to redirect this request, which is not permitted" {
		t.Errorf("got %d %v %s", resp.StatusCode, resp.Header, body)
	}
}

// TestLinks checks the links of HTML.
func TestLinks(t *testing.T) {
	t.Parallel()
	long := "<script>" + strings.Repeat("var x = 1; ", 200_000) + "</script>"
	for _, c := range []struct{ name, encoding, in, want string }{
		{"plain", "", `<!doctype html><p class=x>&amp;<a href="/x?a=1&amp;b=2#f">x</a> <img src=/y alt="/z"> /w`, `<!doctype html><p class=x>&amp;<a href="/front/x?a=1&amp;b=2#f">x</a> <img src="/front/y" alt="/z"> /w`},
		{"others", "", `<a HREF="https://other/x"><A href='x'><a href="%zz"><a name=/x>`, `<a HREF="https://other/x"><A href='x'><a href="%zz"><a name=/x>`},
		{"gzip", "gzip", `<form action="/x"></form>`, `<form action="/front/x"></form>`},
		{"script", "", `<script>"<a href=/x>"</script><script src=/x.js />`, `<script>"<a href=/x>"</script><script src="/front/x.js"/>`},
		{"long", "", `<a href=/x>` + long + `<a href=/x>`, `<a href="/front/x">` + long + `<a href=/x>`},
		{"cut", "", `<a href=/x><a href="/`, `<a href="/front/x"><a href="/`},
	} {
		at := front(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			var to io.Writer = w
			if c.encoding == "gzip" {
				w.Header().Set("Content-Encoding", "gzip")
				z := gzip.NewWriter(w)
				defer z.Close()
				to = z
			}
			_, _ = io.WriteString(to, c.in)
		}), nil)
		resp, _, _ := ask(t, at, "GET /front/page HTTP/1.1\nHost: h\nAccept-Encoding: gzip\n\n")
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != c.want || resp.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: got %.200q %v, want %.200q", c.name, got, err, c.want)
		}
	}
}

// TestLinksTogether checks that a page is sent in large pieces, and what a backend has sent so far at once.
func TestLinksTogether(t *testing.T) {
	t.Parallel()
	page, more := strings.Repeat("<p><a href=/x>x</a>", 5_000), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "<p>end")
	}))
	defer backend.Close()
	target, _ := url.Parse(backend.URL)
	p := &upgrade.Proxy{Target: target, Prefix: "/front", Transport: http.DefaultTransport}
	want := strings.ReplaceAll(page, "=/x", `="/front/x"`)
	w := &flushes{ResponseRecorder: httptest.NewRecorder()}
	w.seen = func() {
		if w.Body.String() == want {
			close(more)
		}
	}
	if err := p.Serve(w, httptest.NewRequestWithContext(t.Context(), "GET", "/front/page", nil)); err != nil {
		t.Fatal(err)
	}
	if got := w.Body.String(); got != want+"<p>end" {
		t.Errorf("got %d bytes, want %d", len(got), len(want)+6)
	}
	if w.n > 100 {
		t.Errorf("%d flushes for %d bytes", w.n, len(want))
	}
}

// flushes counts the calls of Flush.
type flushes struct {
	*httptest.ResponseRecorder
	n    int
	seen func() // called by each Flush
}

func (f *flushes) Flush() {
	f.n++
	f.seen()
}
