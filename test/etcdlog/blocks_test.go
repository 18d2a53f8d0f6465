package etcdlog_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
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
	var all []store.Entry // of all collections: they are read without blocks
	for e, err := range l.Changes(t.Context(), "", first, last) {
		must(t, err)
		all = append(all, e)
	}
	random := testrand.New(t)
	var readers sync.WaitGroup
	for range 4 {
		seed := random.Uint64()
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 10 {
				after := first + store.Revision(random.Uint64N(uint64(last-first)))
				upTo := after + store.Revision(random.Uint64N(uint64(last-after)+1))
				most := random.IntN(80)
				for _, collection := range []string{"configmaps", "secrets", "pods"} {
					want := textOf(all, func(e store.Entry) bool {
						return e.Collection == collection && e.Revision > after && e.Revision <= upTo
					}, most)
					var read []store.Entry
					for e, err := range l.Changes(t.Context(), collection, after, upTo) {
						if err != nil {
							t.Error(err)
							return
						}
						if len(read) == most {
							break
						}
						read = append(read, e)
					}
					got := textOf(read, func(store.Entry) bool { return true }, most)
					if got != want {
						t.Errorf("%s after %d up to %d, at most %d:\ngot  %s\nwant %s", collection, after, upTo, most, got, want)
					}
				}
			}
		})
	}
	readers.Wait()
}

// textOf returns the changes that are wanted, at most some.
func textOf(all []store.Entry, wanted func(store.Entry) bool, most int) string {
	var text strings.Builder
	n := 0
	for _, e := range all {
		if n < most && wanted(e) {
			n++
			fmt.Fprintf(&text, "%d %s %s %d; ", e.Revision, e.Collection, e.Key, len(e.Object.Held))
		}
	}
	return text.String()
}
