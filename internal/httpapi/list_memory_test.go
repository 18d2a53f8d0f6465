package httpapi_test

import (
	"context"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// mostOfAList bounds the memory of a list in addition to the stored bytes and the budget.
const mostOfAList = 512 << 10

// weigher is a client that looks at the server's memory while it reads.
type weigher struct {
	discard
	weigh  func() uint64
	writes int
	most   uint64
}

// Write implements io.Writer.
func (w *weigher) Write(b []byte) (int, error) {
	if w.writes++; w.writes%5 == 1 {
		w.most = max(w.most, w.weigh())
	}
	return w.discard.Write(b)
}

// heap returns the bytes of the heap in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC() // the contents of pools are freed by the second run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestListMemory: a list of megabytes holds a few hundred kilobytes while it is written,
// in every representation, compressed or not, when nothing may be kept.
func TestListMemory(t *testing.T) {
	tier.Full(t)
	const pods = 1200 // 4 MB
	c := newConfig(newStore(t))
	withCBOR(&c)
	c.RepresentationBytes = 1
	c.Now = func() time.Time { return time.Now().Add(24 * time.Hour) } // the pods are not new
	target := registry.Target{Type: builtin.Catalog().Lookup("", "v1", "namespaces")}
	create := func(body string) {
		t.Helper()
		if _, err := c.Registry.Create(context.Background(), target, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(`{"metadata":{"name":"default"}}`)
	target = registry.Target{Type: builtin.Catalog().Lookup("", "v1", "pods"), Namespace: "default"}
	for i := range pods {
		create(aPod(i))
	}
	h := httpapi.New(c)
	t.Cleanup(h.Drain)
	all := append(accepts[:len(accepts):len(accepts)], struct{ name, accept string }{"yaml", "application/yaml"})
	for _, a := range all {
		for _, encoding := range []string{"identity", "gzip"} {
			t.Run(a.name+"/"+encoding, func(t *testing.T) {
				r := getRequest("/api/v1/pods")
				r.Header.Set("Accept", a.accept)
				r.Header.Set("Accept-Encoding", encoding)
				measure := func() int64 {
					w := &weigher{discard: discard{header: http.Header{}}, weigh: heap}
					before := heap()
					h.ServeHTTP(w, r)
					if w.code != 200 || w.writes == 0 {
						t.Fatalf("%d after %d writes", w.code, w.writes)
					}
					return int64(w.most) - int64(before)
				}
				for range 2 { // the first request fills the caches
					own := measure()
					for range 2 { // the heap is that of the process
						if own > mostOfAList {
							own = min(own, measure())
						}
					}
					if own > mostOfAList {
						t.Errorf("the list holds %d KiB of its own", own>>10)
					}
				}
			})
		}
	}
}
