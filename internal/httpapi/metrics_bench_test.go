package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// BenchmarkCreate measures a create without the log: the store is in memory.
func BenchmarkCreate(b *testing.B) {
	h := filled(b, 1, 100)
	w := &discard{header: http.Header{}}
	data := strings.Repeat("x", 1000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		r := getRequest(maps)
		r.Method = "POST"
		r.Header.Set("Content-Type", "application/json")
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%09d"},"data":{"k":%q}}`, i, data)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		w.reset()
		h.ServeHTTP(w, r)
		if w.code != http.StatusCreated {
			b.Fatal(w.code)
		}
	}
}

// BenchmarkScrape measures the metrics of a handler after a request of one kind.
func BenchmarkScrape(b *testing.B) {
	h := filled(b, 100, 100)
	h.ServeHTTP(httptest.NewRecorder(), getRequest(maps))
	w, r := &discard{header: http.Header{}}, getRequest("/metrics")
	b.ReportAllocs()
	for b.Loop() {
		w.reset()
		h.ServeHTTP(w, r)
	}
	b.SetBytes(int64(w.bytes))
}
