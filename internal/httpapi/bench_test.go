package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// discard discards its response. Its header is a map for each request, as in net/http.
type discard struct {
	header http.Header
	code   int
	bytes  int
}

// SetWriteTimeout is a method of responses of HTTP/2.
func (d *discard) SetWriteTimeout(time.Duration) {}

func (d *discard) Header() http.Header  { return d.header }
func (d *discard) WriteHeader(code int) { d.code = code }
func (d *discard) Write(b []byte) (int, error) {
	d.bytes += len(b)
	return len(b), nil
}
func (d *discard) reset() {
	clear(d.header)
	d.code, d.bytes = 0, 0
}

// filled is a handler over a store with n config maps of about size bytes.
func filled(t testing.TB, n, size int) *httpapi.Handler {
	t.Helper()
	c := newConfig(newStore(t))
	ctx := context.Background()
	create := func(resource, ns, body string) {
		target := registry.Target{Type: builtin.Catalog().Lookup("", "v1", resource), Namespace: ns}
		if _, err := c.Registry.Create(ctx, target, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("namespaces", "", `{"metadata":{"name":"default"}}`)
	for i := range n {
		create("configmaps", "default", fmt.Sprintf(`{"metadata":{"name":"m-%05d"},"data":{"k":%q}}`, i, strings.Repeat("x", size)))
	}
	h := httpapi.New(c)
	t.Cleanup(h.Drain)
	return h
}

func getRequest(path string) *http.Request {
	r := httptest.NewRequest("GET", path, nil)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("User-Agent", "test")
	r.Header.Set("Accept", "application/json")
	return r
}

// TestAllocations holds the budgets of the read paths. The allocations of net/http itself (about 20
// for a request over HTTP/2) come on top.
func TestAllocations(t *testing.T) {
	if tier.Detector {
		return // sync.Pool forgets at random
	}
	w := &discard{header: http.Header{}}
	measure := func(h *httpapi.Handler, path string) float64 {
		r := getRequest(path)
		n := testing.AllocsPerRun(200, func() {
			w.reset()
			h.ServeHTTP(w, r)
		})
		if w.code != 200 {
			t.Fatalf("GET %s: %d", path, w.code)
		}
		return n
	}
	small, large := filled(t, 10, 1000), filled(t, 2000, 1000)
	for range 5000 { // the first requests are among the slowest, which the server keeps
		w.reset()
		small.ServeHTTP(w, getRequest(maps+"/m-00003"))
	}
	// The audit ID and the length of the response are strings: 2. The tests'
	// authenticator makes a user for each request: 2. The registry: 2 at most.
	if n := measure(small, maps+"/m-00003"); n > 6 {
		t.Errorf("get allocates %v times", n)
	}
	few, many := measure(small, maps), measure(large, maps)
	if perObject := (many - few) / 1990; perObject > 0.01 {
		t.Errorf("a list allocates %.3f times for each object (%v and %v)", perObject, few, many)
	}
	t.Logf("get %v, list of 10 %v, list of 2000 %v", measure(small, maps+"/m-00003"), few, many)
}

func BenchmarkGet(b *testing.B) {
	h := filled(b, 100, 4000)
	w, r := &discard{header: http.Header{}}, getRequest(maps+"/m-00042")
	b.ReportAllocs()
	for b.Loop() {
		w.reset()
		h.ServeHTTP(w, r)
	}
}

func BenchmarkList(b *testing.B) {
	h := filled(b, 10_000, 4000)
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			w, r := &discard{header: http.Header{}}, getRequest(maps)
			r.Header.Set("Accept-Encoding", encoding)
			b.ReportAllocs()
			for b.Loop() {
				w.reset()
				h.ServeHTTP(w, r)
			}
			b.SetBytes(int64(w.bytes))
		})
	}
}

// BenchmarkGetOverHTTP2 is the whole way, TLS and the client included.
func BenchmarkGetOverHTTP2(b *testing.B) {
	s := start(b, wiring{})
	s.create(b, "default", "a", 4000)
	go func() {
		for range s.ended {
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		s.do(b, "GET", maps+"/a", "")
	}
}
