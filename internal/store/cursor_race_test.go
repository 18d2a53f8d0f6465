package store_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestWatchBesideWrites: a cursor that begins while its object is being written
// gets the change, however the two fall together. A lost one would never come: it
// is the only one of its object.
func TestWatchBesideWrites(t *testing.T) {
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const rounds, objects = 200, 32
	for round := range rounds {
		from := s.Any().Revision()
		var all sync.WaitGroup
		for i := range objects {
			key := fmt.Sprintf("ns/r%d-%d", round, i)
			all.Go(func() {
				if _, err := s.Commit(t.Context(), store.Write{Collection: "pods", Key: key, Value: []byte("{}"), RevisionAt: 1}); err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				c, err := s.Watch("pods", key, from)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if n, err := storetest.Next(t.Context(), c, make([]*store.Change, 1)); n != 1 || err != nil {
					t.Errorf("%s: %d changes, %v", key, n, err)
				}
			})
		}
		if all.Wait(); t.Failed() {
			return
		}
	}
}
