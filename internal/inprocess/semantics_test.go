package inprocess_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/inprocess"
)

// exchange is a handler and a request. The client must get the same result over HTTP/2 and in
// process.
type exchange struct {
	name    string
	handler http.HandlerFunc
	request func(url string) *http.Request // nil: GET /
}

func get(method, path string, body func() io.Reader, header ...string) func(string) *http.Request {
	return func(url string) *http.Request {
		var from io.Reader
		if body != nil {
			from = body()
		}
		r, err := http.NewRequest(method, url+path, from)
		if err != nil {
			panic(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		return r
	}
}

// sized is a body of known length, unsized one of unknown length.
func sized(text string) func() io.Reader {
	return func() io.Reader { return strings.NewReader(text) }
}

func unsized(text string) func() io.Reader {
	return func() io.Reader { return struct{ io.Reader }{strings.NewReader(text)} }
}

// failing is a body that fails after some bytes.
type failing struct {
	text string
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.text == "" {
		return 0, f.err
	}
	n := copy(p, f.text)
	f.text = f.text[n:]
	return n, nil
}

// echo responds with the request as the handler sees it.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %s %v %d %s %q %v\n", r.Method, r.RequestURI, r.URL, r.URL.IsAbs(), r.ContentLength, r.Proto, body, err)
	h := maps.Clone(r.Header)
	delete(h, "Accept-Encoding") // net/http adds it
	_ = h.Write(w)
	_ = r.Trailer.Write(w)
}

var big = strings.Repeat("0123456789abcdef", 1<<16)

var exchanges = []exchange{
	{"nothing", func(http.ResponseWriter, *http.Request) {}, nil},
	{"text", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, nil},
	{"json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "{}")
	}, nil},
	{"big", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, big) }, nil},
	{"big in pieces", func(w http.ResponseWriter, _ *http.Request) {
		for i := range 1000 {
			fmt.Fprintf(w, "%d %s\n", i, big[:i])
		}
	}, nil},
	{"declared", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(big)))
		io.WriteString(w, big)
	}, nil},
	{"declared and short", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		io.WriteString(w, "short")
		w.(http.Flusher).Flush()
	}, nil},
	{"malformed length", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "five")
		io.WriteString(w, "right")
	}, nil},
	{"flushed", func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		io.WriteString(w, "later")
	}, nil},
	{"flushed and empty", func(w http.ResponseWriter, _ *http.Request) { w.(http.Flusher).Flush() }, nil},
	{"no content", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic(err)
		}
	}, nil},
	{"not modified", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"1"`)
		w.WriteHeader(http.StatusNotModified)
	}, nil},
	{"HEAD", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }, get("HEAD", "/", nil)},
	{"HEAD declared", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "1000") }, get("HEAD", "/", nil)},
	{"HEAD big", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, big) }, get("HEAD", "/", nil)},
	{"WriteHeader twice", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
	}, nil},
	{"headers after WriteHeader", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", "1")
		w.WriteHeader(http.StatusOK)
		w.Header().Set("A", "2")
		w.Header().Set("B", "2")
	}, nil},
	{"early hints", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "hello")
	}, nil},
	{"lower case", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["lower"] = []string{"case", "twice"}
	}, nil},
	{"encoded", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "hello")
	}, nil},
	{"trailers", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-One, X-Two")
		io.WriteString(w, "hello")
		w.Header().Set("X-One", "1")
		w.Header().Set(http.TrailerPrefix+"X-Three", "3")
	}, nil},
	{"trailers alone", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(http.TrailerPrefix+"X-Three", "3") }, nil},
	{"abort", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil},
	{"abort after flush", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "the beginning")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}, nil},
	{"hijack", func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := http.NewResponseController(w).Hijack()
		fmt.Fprint(w, errors.Is(err, http.ErrNotSupported))
	}, nil},

	{"request", echo, get("GET", "/a%2fb/c?d=e&f=%20", nil, "X-Case", "1", "x-case", "2", "accept", " text/plain ")},
	{"request with a body", echo, get("POST", "/", sized("hello"), "Content-Type", "text/plain")},
	{"request without a body", echo, get("POST", "/", nil)},
	{"DELETE without a body", echo, get("DELETE", "/", nil)},
	{"body of unknown length", echo, get("PUT", "/", unsized("hello"))},
	{"big body", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	}, get("PUT", "/", unsized(big))},
	{"no User-Agent", echo, get("GET", "/", nil, "User-Agent", "")},
	{"own User-Agent", echo, get("GET", "/", nil, "User-Agent", "me")},
	{"Host", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host) }, func(url string) *http.Request {
		r := get("GET", "/", nil)(url)
		r.Host = "other.example"
		return r
	}},
	{"body that is longer than declared", echo, func(url string) *http.Request {
		r := get("POST", "/", unsized("hello"))(url)
		r.ContentLength = 3
		return r
	}},
	{"body that fails", echo, get("POST", "/", func() io.Reader { return &failing{"some", io.ErrNoProgress} })},
	{"body that is not read", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		get("POST", "/", unsized(big))},
	{"request trailers", echo, func(url string) *http.Request {
		r := get("POST", "/", unsized("hello"))(url)
		r.Trailer = http.Header{"X-Sum": {"5"}}
		return r
	}},
	{"header value", echo, get("GET", "/", nil, "A", "b\nc")},
	{"header name", echo, get("GET", "/", nil, "A b", "c")},
	{"method", echo, func(url string) *http.Request {
		r := get("GET", "/", nil)(url)
		r.Method = "A B"
		return r
	}},
	{"scheme", echo, func(url string) *http.Request { return get("GET", "/", nil)("ftp" + strings.TrimPrefix(url, "https")) }},
}

// TestSemantics checks that a client sees the same over HTTP/2 and in process.
func TestSemantics(t *testing.T) {
	for _, x := range exchanges {
		t.Run(x.name, func(t *testing.T) {
			s := httptest.NewUnstartedServer(x.handler)
			s.EnableHTTP2 = true
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			s.StartTLS()
			defer s.Close()
			network := s.Client().Transport.(*http.Transport)
			network.DisableCompression = true
			direct := &inprocess.Server{Handler: x.handler}
			defer direct.Stop()
			request := x.request
			if request == nil {
				request = get("GET", "/", nil)
			}
			want := outcome(network, request(s.URL))
			got := outcome(direct.Transport(t.Context(), nil), request("https://in.process"))
			if got != want {
				t.Errorf("in process:\n%s\nover HTTP/2:\n%s", got, want)
			}
		})
	}
}

// outcome formats the result of an exchange for a client.
func outcome(transport http.RoundTripper, r *http.Request) string {
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	resp, err := transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return "failed"
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %d %v %v\n", resp.Proto, resp.Status, resp.ContentLength, resp.TransferEncoding, resp.Uncompressed)
	declared := len(resp.Trailer)
	body, err := io.ReadAll(resp.Body)
	if len(body) > 1000 {
		body = append(body[:500], fmt.Sprintf("... %d", len(body))...)
	}
	resp.Header.Del("Date")
	_ = resp.Header.Write(&b)
	fmt.Fprintf(&b, "%s\n%v\n%d trailers declared\n", body, err != nil, declared)
	_ = resp.Trailer.Write(&b)
	return b.String()
}
