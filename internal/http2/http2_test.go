package http2_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/http2"
)

// server returns a Server with limits that tests may change.
func server(w io.Writer) *http2.Server {
	return &http2.Server{
		MaxStreams: 100, HeaderBytes: 64 << 10, UploadBytes: 256 << 10, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
		Log: slog.New(slog.NewTextHandler(w, nil)),
	}
}

// start serves a handler with s, or with net/http itself when s is nil.
func start(t testing.TB, s *http2.Server, h http.Handler) *httptest.Server {
	ts := httptest.NewUnstartedServer(h)
	ts.EnableHTTP2 = true
	ts.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that go in the middle of a handshake
	if s != nil {
		ts.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": s.Serve}
		ts.Config.RegisterOnShutdown(s.Shutdown)
	}
	ts.StartTLS()
	t.Cleanup(func() {
		if s != nil {
			s.Shutdown()
		}
		ts.CloseClientConnections()
		ts.Close()
	})
	return ts
}

// exchange is a request and its handler.
type exchange struct {
	name    string
	unsized bool // the handler does not say how much it writes
	method  string
	body    func() io.Reader // nil: there is none
	headers http.Header
	handler func(w http.ResponseWriter, r *http.Request, saw func(...any))
}

func big(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16) }

func bytesOf(n int) func() io.Reader { return func() io.Reader { return bytes.NewReader(big(n)) } }

func text(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }

// exchanges are those that end alike here and with net/http, as far as the client
// and the handler can find out.
var exchanges = []exchange{
	{name: "nothing", handler: func(http.ResponseWriter, *http.Request, func(...any)) {}},
	{name: "text", unsized: true, handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) { io.WriteString(w, "hello") }},
	{name: "the type is found out", unsized: true, handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		io.WriteString(w, "<html><body>")
	}},
	{name: "a given type", unsized: true, handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.Header().Set("Content-Type", "application/json")
		w.Header()["X-Many"] = []string{"a", "b"}
		w.Header().Set("Connection", "close-or-not")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
		io.WriteString(w, "{}")
	}},
	{name: "a length", handler: func(w http.ResponseWriter, _ *http.Request, saw func(...any)) {
		w.Header().Set("Content-Length", "5")
		n, err := io.WriteString(w, "hello")
		saw(n, err)
	}},
	{name: "no length", handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.Header().Set("Content-Length", "many")
		w.Header().Set("Content-Type", "a/b")
		w.Write(big(100_000))
	}},
	{name: "a head", method: "HEAD", handler: func(w http.ResponseWriter, _ *http.Request, saw func(...any)) {
		w.Header().Set("Content-Length", "5")
		n, err := io.WriteString(w, "hello")
		saw(n, err)
	}},
	{name: "no content", handler: func(w http.ResponseWriter, _ *http.Request, saw func(...any)) {
		w.WriteHeader(http.StatusNoContent)
		n, err := io.WriteString(w, "hello")
		saw(n, err)
	}},
	{name: "not modified", handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.Header().Set("Etag", `"a"`)
		w.WriteHeader(http.StatusNotModified)
	}},
	{name: "a panic", handler: func(http.ResponseWriter, *http.Request, func(...any)) { panic(http.ErrAbortHandler) }},
	{name: "a late panic", handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.Header().Set("Content-Type", "a/b")
		io.WriteString(w, "hello")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}},
	{name: "an echo", method: "POST", body: bytesOf(1 << 20), handler: func(w http.ResponseWriter, r *http.Request, saw func(...any)) {
		w.Header().Set("Content-Type", "a/b")
		n, err := io.Copy(w, r.Body)
		saw(n, err, r.ContentLength)
	}},
	{name: "an upload of unknown length", method: "PUT", body: func() io.Reader { return io.MultiReader(bytesOf(100_000)(), strings.NewReader("end")) }, handler: func(w http.ResponseWriter, r *http.Request, saw func(...any)) {
		all, err := io.ReadAll(r.Body)
		saw(len(all), err, r.ContentLength)
		n, err := r.Body.Read(make([]byte, 1))
		saw(n, err)
		saw(r.Body.Close())
		n, err = r.Body.Read(make([]byte, 1))
		saw(n, err)
	}},
	{name: "an unread body", method: "POST", body: bytesOf(1 << 20), handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.WriteHeader(http.StatusUnauthorized)
	}},
	{name: "a body that is asked for", method: "POST", body: text("hello"), headers: http.Header{"Expect": {"100-continue"}},
		handler: func(w http.ResponseWriter, r *http.Request, saw func(...any)) {
			all, err := io.ReadAll(r.Body)
			saw(string(all), err, r.Header["Expect"])
		}},
	{name: "a body that is not asked for", method: "POST", body: text("hello"), headers: http.Header{"Expect": {"100-continue"}},
		handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) { w.WriteHeader(http.StatusForbidden) }},
	{name: "a hint", unsized: true, handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hello")
	}},
	{name: "the request", method: "PATCH", body: text("x"), headers: http.Header{"Cookie": {"a=1; b=2"}, "X-Many": {"1", "2"}, "Authorization": {"Bearer x"}},
		handler: func(w http.ResponseWriter, r *http.Request, saw func(...any)) {
			r.Header.Del("User-Agent")
			saw(r.Method, r.URL.String(), r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Header, r.ContentLength, r.TransferEncoding, r.Close)
			saw(r.TLS.NegotiatedProtocol, r.Host != "", r.RemoteAddr != "", r.Context().Value(http.LocalAddrContextKey) != nil, r.Context().Value(http.ServerContextKey) != nil)
		}},
	{name: "headers that no response may have", handler: func(w http.ResponseWriter, _ *http.Request, _ func(...any)) {
		w.Header()["bad name"] = []string{"x"}
		w.Header()["X-Bad"] = []string{"a\nb"}
		w.Header()["X-Large"] = []string{strings.Repeat("x", 100_000)} // CONTINUATION
		w.Header()["Date"] = nil
	}},
	{name: "a write deadline", handler: func(w http.ResponseWriter, r *http.Request, saw func(...any)) {
		w.Header().Set("Content-Type", "a/b")
		io.WriteString(w, "hello")
		c := http.NewResponseController(w)
		c.Flush()
		c.SetWriteDeadline(time.Unix(1, 0))
		<-r.Context().Done()
	}},
	{name: "a read deadline", method: "POST", body: func() io.Reader { return endless{} }, handler: func(w http.ResponseWriter, r *http.Request, saw func(...any)) {
		http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		_, err := io.Copy(io.Discard, r.Body)
		saw(errors.Is(err, os.ErrDeadlineExceeded))
	}},
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return min(len(p), 1000), nil }

// run makes the exchange with a server, and returns everything that client and handler saw.
func (e *exchange) run(t *testing.T, s *http2.Server) []string {
	var mu sync.Mutex
	var seen []string
	done := make(chan struct{})
	saw := func(values ...any) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, "handler: "+fmt.Sprintln(values...))
	}
	ts := start(t, s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		e.handler(w, r, saw)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var body io.Reader
	if e.body != nil {
		body = e.body()
	}
	req, err := http.NewRequestWithContext(ctx, e.method, ts.URL+"/a%2Fb?c=d&e", body)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range e.headers {
		req.Header[k] = v
	}
	ts.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	resp, err := ts.Client().Transport.RoundTrip(req)
	<-done
	if err != nil {
		return append(seen, "no response: "+errorText(err))
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if _, dated := resp.Header["Date"]; dated {
		resp.Header.Set("Date", "some")
	}
	if e.unsized { // net/http sets the length if the body fits into its buffer
		resp.Header.Del("Content-Length")
	}
	seen = append(seen, fmt.Sprintln(resp.Status, resp.Proto, resp.Header, len(all), bytes.Equal(all, big(len(all))), errorText(err)))
	if len(all) < 100 {
		seen = append(seen, string(all))
	}
	return seen
}

// errorText removes the parts that differ from run to run.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "stream error: stream ID 1; ")
}

// TestLengths: a response that is not as long as declared does not look like a whole
// one.
func TestLengths(t *testing.T) {
	ts := start(t, server(t.Output()), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "5")
		if r.URL.Path == "/nothing" {
			return
		}
		if n, err := io.WriteString(w, "hell"); n != 4 || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		if n, err := io.WriteString(w, "o!"); n != 0 || !errors.Is(err, http.ErrContentLength) {
			t.Errorf("%d bytes over the length, %v", n, err)
		}
		if r.URL.Path == "/whole" {
			io.WriteString(w, "o")
		}
	}))
	for path, want := range map[string]string{"/whole": "", "/part": "INTERNAL_ERROR; received from peer", "/nothing": "INTERNAL_ERROR; received from peer"} {
		resp, err := ts.Client().Get(ts.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := errorText(err); !strings.HasSuffix(got, want) || want == "" && err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestAsNetHTTP checks that handlers and clients get the same results as with net/http.
func TestAsNetHTTP(t *testing.T) {
	for _, e := range exchanges {
		t.Run(e.name, func(t *testing.T) {
			got, want := e.run(t, server(t.Output())), e.run(t, nil)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("here:\n%s\nnet/http:\n%s", strings.Join(got, ""), strings.Join(want, ""))
			}
		})
	}
}
