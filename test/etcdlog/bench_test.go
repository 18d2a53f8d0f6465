package etcdlog_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// BenchmarkResume continues 400 watches after a start, 2,000 changes back, as the clients of a server do that was
// started again. An operation is all of them.
func BenchmarkResume(b *testing.B) {
	const watches, changes = 400, 2000
	c := startCluster(b, 1, nil)
	s, err := stores.Open(b.Context(), store.Options{Shared: openUnowned(b, c)})
	must(b, err)
	from := s.Any().Revision()
	var writers sync.WaitGroup
	for w := range 16 {
		writers.Go(func() {
			for i := w; i < changes; i += 16 {
				name := fmt.Sprintf("default/o%d", i)
				_, err := s.Apply(b.Context(), &store.Txn{Writes: []store.Write{{Collection: "configmaps", Key: name, Value: []byte(`{"r":""}`), RevisionAt: 6}}})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	writers.Wait()
	must(b, s.Close())
	for b.Loop() {
		b.StopTimer()
		s, err := stores.Open(b.Context(), store.Options{Shared: openUnowned(b, c)})
		must(b, err)
		b.StartTimer()
		var readers sync.WaitGroup
		for range watches {
			readers.Go(func() {
				cursor, err := s.Watch("configmaps", "", from)
				if err != nil {
					b.Error(err)
					return
				}
				defer cursor.Close()
				buf := make([]*store.Change, 256)
				for seen := 0; seen < changes; {
					n, err := storetest.Next(b.Context(), cursor, buf)
					if err != nil {
						b.Error(err)
						return
					}
					seen += n
				}
			})
		}
		readers.Wait()
		b.StopTimer()
		must(b, s.Close())
		b.StartTimer()
	}
}
