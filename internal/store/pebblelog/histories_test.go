package pebblelog_test

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestHistories reads objects with few and with many versions, with deletions between them, at every revision, and the changes of
// each, with the newest first and with the oldest first.
func TestHistories(t *testing.T) {
	rng := testrand.New(t)
	log := mustOpen(t, vfs.NewMem())
	defer mustClose(t, log)
	var m model
	left := map[string]int{"a": 1, "a/a": 15, "a/b": 16, "ab": 17, "b/x": 40, "b/x-1": 120, "ns/ü": 18, "zzz": 90}
	current := map[string]*store.Object{}
	for len(left) > 0 {
		for key := range left { // in random order
			if left[key]--; left[key] < 0 {
				delete(left, key)
				continue
			}
			e := store.Entry{Collection: "pods", Key: key, Revision: m.head() + 1, Before: current[key], Origin: m.origin(rng)}
			if e.Before == nil || rng.IntN(8) > 0 {
				e.Object = object(key, e.Revision, e.Before, rng.IntN(100))
			}
			current[key] = e.Object
			if err := log.Append(t.Context(), []store.Entry{e}, nil); err != nil {
				t.Fatal(err)
			}
			m.entries = append(m.entries, e)
		}
	}
	for at := range m.head() + 1 {
		var got []*store.Object
		for o, err := range log.ObjectsAt(t.Context(), "pods", at, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, o)
		}
		want := m.at("pods", at)
		if len(got) != len(want) {
			t.Fatalf("revision %d has %d objects, not %d", at, len(got), len(want))
		}
		for i := range got {
			if !same(got[i], want[i]) {
				t.Fatalf("revision %d: object %s is %s of revision %d, not of %d", at, want[i].Key, got[i].Key, got[i].Modified, want[i].Modified)
			}
		}
	}
	for key := range current {
		for range 50 {
			after := store.Revision(rng.Uint64N(uint64(m.head()) + 1))
			upTo := after + store.Revision(rng.Uint64N(uint64(m.head()-after)+1))
			var want []store.Entry
			for _, e := range m.changes("pods", after, upTo) {
				if e.Key == key {
					want = append(want, e)
				}
			}
			for _, backward := range []bool{false, true} {
				var got []store.Entry
				for e, err := range log.ChangesOf(t.Context(), "pods", key, after, upTo, backward) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, e)
				}
				if backward {
					slices.Reverse(got)
				}
				if !slices.EqualFunc(got, want, sameEntry) {
					t.Fatalf("changes of %s after %d up to %d, backward %v (- got, + want):\n%s", key, after, upTo, backward, cmp.Diff(got, want, diffOptions))
				}
			}
		}
	}
}
