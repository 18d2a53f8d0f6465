package store_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestTimesOfOthers: stores on one log find the state of a time, whichever of them wrote it. A store does not claim to know
// times before it was opened.
func TestTimesOfOthers(t *testing.T) {
	log := sharedmem.New(testrand.New(t), 1, sharedmem.Faults{})
	begin := time.Date(2026, 11, 30, 10, 42, 0, 0, time.UTC)
	var minute atomic.Int64
	at := func(m int64) time.Time { return begin.Add(time.Duration(m) * time.Minute) }
	open := func() *store.Store {
		return storetest.Open(t, store.Options{Shared: log.Open(), Now: func() time.Time { return at(minute.Load()) }})
	}
	both := []*store.Store{open(), open()}
	var revisions []store.Revision
	for i := range 6 {
		minute.Store(int64(10 * (i + 1)))
		o := storetest.MustCommit(t, both[i%2], store.Write{Collection: "pods", Key: "ns/" + string(rune('a'+i)), Value: []byte(`{}`), Origin: &store.Origin{Verb: store.VerbCreate}})
		revisions = append(revisions, o.Modified)
		for _, s := range both {
			if _, err := s.NotOlderThan(t.Context(), o.Modified, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
	}
	minute.Store(100)
	for i, s := range both {
		for n, r := range revisions {
			for _, m := range []int64{0, 9} {
				if got, err := s.RevisionAt(t.Context(), at(int64(10*(n+1))+m)); err != nil || got != r {
					t.Errorf("store %d: the revision %d minutes after change %d is %d, %v, want %d", i, m, n, got, err, r)
				}
			}
			if got, err := s.TimeOf(t.Context(), r); err != nil || !got.Equal(at(int64(10*(n+1)))) {
				t.Errorf("store %d: change %d was made at %v, %v", i, n, got, err)
			}
		}
	}
	late := open()
	if r, err := late.RevisionAt(t.Context(), at(35)); !errors.As(err, new(*store.ExpiredError)) {
		t.Errorf("a store that was opened later: %d, %v", r, err)
	}
	for _, s := range append(both, late) {
		storetest.Close(t, s)
	}
}
