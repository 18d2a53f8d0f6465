package storetest

import (
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// modelFeed is the feed of a run, and how far it was read.
type modelFeed struct {
	*store.Feed
	read store.Revision
}

// openFeed begins, or goes on, where the feed was.
func (r *run) openFeed() {
	f, err := r.store.Feed(r.feed.read)
	if r.expired(err, r.feed.read) {
		r.feed.read = r.store.Any().Revision()
		f, err = r.store.Feed(r.feed.read)
	}
	if err != nil {
		r.Fatalf("feed after %d: %v", r.feed.read, err)
	}
	r.feed.Feed = f
}

// readFeed reads some changes of all collections.
func (r *run) readFeed() {
	f := &r.feed
	i := sort.Search(len(r.model.changes), func(i int) bool { return r.model.changes[i].revision > f.read })
	want := r.model.changes[i:]
	if f.read < r.store.Stats().Window && len(want) > 0 {
		r.counts["feed from the log"]++
	}
	buf := make([]store.CollectionChange, r.chance.IntN(200)+1)
	n, err := f.TryNext(r.Context(), buf)
	if r.expired(err, f.read) {
		f.Close()
		f.read = r.revision()
		r.openFeed()
		return
	}
	if err != nil || n > len(want) || n == 0 && len(want) > 0 {
		r.Fatalf("feed after %d: %d, %v, want %d", f.read, n, err, len(want))
	}
	for i, ch := range buf[:n] {
		w := want[i]
		if ch.Revision != w.revision || ch.Collection != w.collection || ch.Key() != w.key || !sameVersion(ch.Before, w.before) || !sameVersion(ch.After, w.after) {
			r.Fatalf("feed after %d: got %+v, want %+v", f.read, ch, w)
		}
		r.checkOrigin(ch.Change, w)
		f.read = ch.Revision
		r.counts["feed"]++
	}
	if n == len(want) {
		f.read = f.Revision()
	}
	if at := f.Revision(); at != f.read {
		r.Fatalf("feed read %d and says %d", f.read, at)
	}
}

// testFeed has writers in several collections while a feed waits for them: it
// sees every change once and in the one order, and none is missed between a look
// and a wait. A closed store ends the wait.
func testFeed(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	start := s.Any().Revision()
	f, err := s.Feed(start)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other, err := s.Feed(start)
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	other.Close()
	if _, err := other.TryNext(t.Context(), make([]store.CollectionChange, 1)); err != store.ErrClosed {
		t.Errorf("a closed feed: %v", err)
	}
	const writes = 50
	var writers sync.WaitGroup
	for _, collection := range collections {
		writers.Go(func() {
			last := store.Revision(0)
			for range writes {
				o, err := s.Commit(t.Context(), put(collection, "ns/a", "x", last))
				if err != nil {
					t.Error(err)
					return
				}
				last = o.Modified
			}
		})
	}
	counts := map[string]int{}
	Within(t, "the feed", func() {
		buf := make([]store.CollectionChange, 3)
		for last := start; last < start+writes*store.Revision(len(collections)); {
			n, err := f.TryNext(t.Context(), buf)
			if err != nil {
				t.Error(err)
				return
			}
			if n == 0 {
				<-f.Ready()
			}
			for _, ch := range buf[:n] {
				if ch.Revision != last+1 {
					t.Errorf("after %d comes %d", last, ch.Revision)
				}
				last = ch.Revision
				counts[ch.Collection]++
			}
		}
	})
	writers.Wait()
	for _, collection := range collections {
		if counts[collection] != writes {
			t.Errorf("%d changes of %s, want %d", counts[collection], collection, writes)
		}
	}
	if names := slices.Collect(s.Any().Collections()); !slices.Equal(names, slices.Sorted(slices.Values(collections))) {
		t.Errorf("collections %q", names)
	}
	Close(t, s)
	<-f.Ready()
	if _, err := f.TryNext(t.Context(), make([]store.CollectionChange, 1)); err != store.ErrClosed {
		t.Errorf("a feed of a closed store: %v", err)
	}
	if _, err := s.Feed(start); err != store.ErrClosed {
		t.Errorf("a new feed of a closed store: %v", err)
	}
}
