package tidemark_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// BenchmarkScrape measures the cost of a scrape of a server that has started with 1,000 definitions
// and 100,000 objects, and has 1,000 watches: of 10 definitions, or one of each, after a list.
// cpu-ms/op is the time of the processor, with that of garbage collection and without that of the
// connection.
func BenchmarkScrape(b *testing.B) {
	const definitions, objects, watches = 1000, 100, 1000
	state := manyObjects(b, definitions, objects)
	for _, used := range []int{10, definitions} {
		b.Run(fmt.Sprintf("used=%d", used), func(b *testing.B) {
			s := &tidemark.Server{Storage: &slowLog{Log: memlog.From(state)}, Memory: tidemark.Memory{MaxObjectBytes: -1}, Controllers: []string{"-*"}}
			if err := s.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for i := range used {
				respond(b, s, "GET", kindPath(i), "", 200).Body.Close()
			}
			for i := range watches {
				defer respond(b, s, "GET", kindPath(i%used)+"?watch=true", "", 200).Body.Close()
			}
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Header.Set("Authorization", "Bearer "+s.RESTConfig().BearerToken)
			var bytes int64
			before := testkinds.CPUTime()
			for b.Loop() {
				w := &counted{header: http.Header{}}
				if s.Root().Handler().ServeHTTP(w, r); w.code != 0 && w.code != 200 {
					b.Fatal(w.code)
				}
				bytes = w.bytes
			}
			b.ReportMetric(float64((testkinds.CPUTime()-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(bytes)/1e6, "MB/scrape")
		})
	}
}

// counted counts the bytes of a response.
type counted struct {
	header http.Header
	code   int
	bytes  int64
}

func (c *counted) Header() http.Header           { return c.header }
func (c *counted) WriteHeader(code int)          { c.code = code }
func (c *counted) SetWriteTimeout(time.Duration) {} // as responses of HTTP/2 have it
func (c *counted) Write(b []byte) (int, error) {
	c.bytes += int64(len(b))
	return len(b), nil
}

func kindPath(i int) string { return fmt.Sprintf("/apis/example.com/v1/kind%ds", i) }

// respond sends a request, and checks the status of the response.
func respond(b *testing.B, s *tidemark.Server, method, path, body string, code int) *http.Response {
	b.Helper()
	c := s.RESTConfig()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		b.Fatal(err)
	}
	r, err := http.NewRequestWithContext(b.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil || resp.StatusCode != code {
		b.Fatal(path, resp, err)
	}
	return resp
}

// manyObjects returns the state of a server with definitions, and with objects of each.
func manyObjects(b *testing.B, definitions, objects int) *store.State {
	b.Helper()
	s := &tidemark.Server{InProcess: true, Memory: tidemark.Memory{MaxObjectBytes: -1}, Controllers: []string{"-*"}}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range definitions {
		plural := fmt.Sprintf("kind%ds", i)
		respond(b, s, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"metadata":{"name":"%s.example.com"},"spec":{"group":"example.com","scope":"Cluster",
			"names":{"plural":%q,"kind":"Kind%d"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, plural, plural, i), 201).Body.Close()
	}
	if err := s.Settled(b.Context()); err != nil {
		b.Fatal(err)
	}
	for i := range definitions {
		for j := range objects {
			respond(b, s, "POST", kindPath(i), fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Kind%d","metadata":{"name":"o-%d"}}`, i, j), 201).Body.Close()
		}
	}
	return s.Store().Any()
}
