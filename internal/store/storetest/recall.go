package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// testRecall compares random ranges of the history, and random times, with a list of all changes that were made. Most of
// them have left memory.
func testRecall(t *testing.T, medium Medium) {
	chance := testrand.New(t)
	open := medium(t)
	now := time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC)
	var clock atomic.Int64 // now, for the goroutines of the store
	clock.Store(now.UnixNano())
	s := Open(t, store.Options{Log: open(t), Now: func() time.Time { return time.Unix(0, clock.Load()).UTC() }, MaxMemory: 32 << 10})
	start := s.Any().Revision()
	type change struct {
		collection, key string
		revision        store.Revision
		time            time.Time
	}
	var all []change
	there := map[string]store.Revision{}
	for range 400 {
		now = now.Add(time.Duration(chance.IntN(3)) * time.Second)
		clock.Store(now.UnixNano())
		collection, key := fmt.Sprint("c", chance.IntN(3)), fmt.Sprintf("ns%d/%d", chance.IntN(2), chance.IntN(6))
		place := collection + "\x00" + key
		if r := there[place]; r != 0 && chance.IntN(4) == 0 {
			mustCommit(t, s, del(collection, key, r))
			delete(there, place)
		} else {
			there[place] = mustCommit(t, s, put(collection, key, fmt.Sprint(len(all)), r)).Modified
		}
		all = append(all, change{collection, key, s.Any().Revision(), now})
	}
	head := s.Any().Revision()
	for range 200 {
		floor, _ := s.Bounds()
		floor = max(floor, start)
		pick := func() store.Revision { return floor + store.Revision(chance.Int64N(int64(head-floor)+3)) }
		r := store.Range{After: pick(), UpTo: pick(), Backward: chance.IntN(2) == 0}
		if chance.IntN(3) > 0 {
			r.Collection = fmt.Sprint("c", chance.IntN(4))
			if chance.IntN(2) == 0 {
				r.Key = fmt.Sprintf("ns%d/%d", chance.IntN(2), chance.IntN(7))
			}
		}
		var want, got []string
		for _, c := range all {
			if c.revision > r.After && c.revision <= r.UpTo && (r.Collection == "" || r.Collection == c.collection) && (r.Key == "" || r.Key == c.key) {
				want = append(want, fmt.Sprint(c.revision, c.collection, c.key))
			}
		}
		if r.Backward {
			slices.Reverse(want)
		}
		for c, err := range s.Recall(t.Context(), r) {
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			got = append(got, fmt.Sprint(c.Revision, c.Collection, c.Key()))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: got %d changes %q, want %d %q", r, len(got), got, len(want), want)
		}
	}
	for range 100 {
		at := all[0].time.Add(time.Duration(chance.Int64N(int64(now.Sub(all[0].time)+3*time.Second))) - time.Second)
		floor, _ := s.Bounds()
		want := store.Revision(0)
		for _, c := range all {
			if c.revision > floor && !c.time.After(at) {
				want = c.revision
			}
		}
		got, err := s.RevisionAt(t.Context(), at)
		if expired := errors.As(err, new(*store.ExpiredError)); err != nil && !expired || got != want {
			t.Fatalf("at %v: revision %d, %v, want %d", at, got, err, want)
		}
	}
	if floor, _ := s.Bounds(); floor > 0 {
		for _, err := range s.Recall(t.Context(), store.Range{After: floor - 1, UpTo: head}) {
			if !errors.As(err, new(*store.ExpiredError)) {
				t.Errorf("below the history: %v", err)
			}
			break
		}
	}
}
