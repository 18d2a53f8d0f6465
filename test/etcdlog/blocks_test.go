package etcdlog_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestBlocks: readers of one collection, who share what is read of etcd, get the same changes as a reader of all
// collections, who shares nothing. The changes are too large for one block.
func TestBlocks(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	first, err := l.Head(t.Context())
	must(t, err)
	large := strings.Repeat("x", 100<<10)
	last := first
	for i := range 60 {
		writes := []store.Write{put("configmaps", fmt.Sprintf("default/a%d", i), large, 0)}
		if i%3 == 0 { // two changes of one revision
			writes = append(writes, put("configmaps", fmt.Sprintf("default/b%d", i), "small", 0))
		}
		if i%5 == 0 {
			writes = append(writes, put("secrets", fmt.Sprintf("default/s%d", i), "small", 0))
		}
		last = propose(t, l, writes...)
	}
	random := testrand.New(t)
	seeds := make([]uint64, 8)
	for i := range seeds {
		seeds[i] = random.Uint64()
	}
	var readers sync.WaitGroup
	for _, seed := range seeds {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 10 {
				after := first + store.Revision(random.Uint64N(uint64(last-first)))
				upTo := after + store.Revision(random.Uint64N(uint64(last-after)+1))
				most := random.IntN(80)
				for _, collection := range []string{"configmaps", "secrets", "pods"} {
					got, want := changesOf(t, l, collection, collection, after, upTo, most), changesOf(t, l, "", collection, after, upTo, most)
					if got != want {
						t.Errorf("%s after %d up to %d, at most %d:\ngot  %s\nwant %s", collection, after, upTo, most, got, want)
					}
				}
			}
		})
	}
	readers.Wait()
}

// changesOf reads changes, and returns those of a collection, as text, at most some.
func changesOf(t *testing.T, l *etcdlog.Log, read, of string, after, upTo store.Revision, most int) string {
	var text strings.Builder
	n := 0
	for e, err := range l.Changes(t.Context(), read, after, upTo) {
		if err != nil {
			t.Error(err)
			break
		}
		if e.Collection != of {
			continue
		}
		if n == most {
			break
		}
		n++
		fmt.Fprintf(&text, "%d %s %d; ", e.Revision, e.Key, len(e.Object.Held))
	}
	return text.String()
}
