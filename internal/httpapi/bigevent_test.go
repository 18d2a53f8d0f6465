package httpapi_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestLargeEventsShareBytes: an event of a megabyte reaches each watcher whole, and is not copied for each of them.
func TestLargeEventsShareBytes(t *testing.T) {
	for _, http1 := range []bool{true, false} {
		t.Run(fmt.Sprintf("http1=%v", http1), func(t *testing.T) {
			const size = 900_000
			watchers := 2
			if http1 {
				watchers = 16
			}
			s := start(t, wiring{http1: http1})
			const path = "/api/v1/namespaces/default/configmaps"
			body := func(n int) string {
				return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"n":"%d","x":"%s"}}`, n, strings.Repeat("x", size))
			}
			if got := s.do(t, "POST", path, body(0)); got.code != 201 {
				t.Fatal(got.code, got.body)
			}
			change := func(n int) (allocated func() uint64) {
				t.Helper()
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if got := s.do(t, "PUT", path+"/large", body(n)); got.code != 200 {
					t.Fatal(got.code, got.body)
				}
				return func() uint64 {
					runtime.ReadMemStats(&after)
					return after.TotalAlloc - before.TotalAlloc
				}
			}
			without := change(1)()
			var lines []*bufio.Reader
			for range watchers {
				r := s.open(t, t.Context(), "GET", path+"?watch=1&resourceVersion=0", nil)
				defer r.Body.Close()
				if r.StatusCode != http.StatusOK {
					t.Fatal(r.Status)
				}
				lines = append(lines, bufio.NewReaderSize(r.Body, 2*size))
			}
			read := func(n int) {
				t.Helper()
				for i, l := range lines {
					line, err := l.ReadSlice('\n')
					if err != nil && err != io.EOF {
						t.Fatal(err)
					}
					if len(line) < size || !bytes.Contains(line, fmt.Appendf(nil, `"n":"%d"`, n)) || !bytes.HasSuffix(line, []byte("}}\n")) {
						t.Fatalf("watcher %d: %d bytes, %.100s", i, len(line), line)
					}
				}
			}
			read(1)
			with := change(2)
			read(2)
			if bytes := with(); http1 && bytes > without+uint64(watchers*size/2) {
				t.Errorf("a change of %d bytes allocated %d bytes, and %d with %d watchers", size, without, bytes, watchers)
			}
		})
	}
}
