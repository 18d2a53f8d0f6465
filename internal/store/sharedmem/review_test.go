package sharedmem_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestUnreadableInHistory: HasUnreadable reports a stand-in that only the history has, because its object was deleted.
func TestUnreadableInHistory(t *testing.T) {
	worlds(t, 1, func(t *testing.T, w *world) {
		start := w.commit(0, write("secrets", "ns/a", "one", 0)).Modified
		shared := &sealed{Member: w.log.Open(), keys: []string{"ns/b"}}
		s := storetest.Open(t, store.Options{Shared: shared})
		b := w.commit(0, write("secrets", "ns/b", "one", 0))
		w.commit(0, store.Write{Collection: "secrets", Key: "ns/b", If: b.Modified})
		synctest.Wait()
		time.Sleep(time.Minute)
		buf := make([]*store.Change, 10)
		n, err := watch(w, s, "secrets", start).TryNext(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range buf[:n] {
			if !s.HasUnreadable() && (c.After.Unreadable() != "" || c.Before.Unreadable() != "") {
				t.Errorf("a watch gets a stand-in of %s at revision %d, and nothing is unreadable", c.Key(), c.Revision)
			}
		}
	})
}

// TestHealedFeed: a feed, by which controllers follow the store, does not pass over an object that can be read again.
func TestHealedFeed(t *testing.T) {
	worlds(t, 1, func(t *testing.T, w *world) {
		w.commit(0, write("secrets", "ns/a", "one", 0))
		shared := &sealed{Member: w.log.Open(), keys: []string{"ns/a"}}
		s := storetest.Open(t, store.Options{Shared: shared})
		f, err := s.Feed(s.Any().Revision())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		shared.unseal("ns/a")
		time.Sleep(time.Minute)
		if s.Any().Get("secrets", "ns/a").Unreadable() != "" {
			t.Fatal("the object cannot be read")
		}
		if n, err := f.TryNext(t.Context(), make([]store.CollectionChange, 10)); n == 0 && err == nil {
			t.Error("the feed goes on, and its reader keeps the stand-in")
		}
	})
}
