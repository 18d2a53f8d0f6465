package store_test

import (
	"fmt"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestSince: the changes between two snapshots, however far apart, are those that a
// comparison of all their objects finds.
func TestSince(t *testing.T) {
	chance := testrand.New(t)
	s := open(t)
	there := map[string]store.Revision{}
	kept := []store.Snapshot{s.Any().Snapshot("pods")}
	for _, steps := range []int{0, 1, 1, 2000, 1, 30, 3000, 1, 0} {
		for range steps {
			key := fmt.Sprintf("%d/%04d", chance.IntN(3), chance.IntN(1500))
			if r, found := there[key]; found && chance.IntN(2) == 0 {
				storetest.MustCommit(t, s, storetest.Remove(key, r))
				delete(there, key)
			} else {
				there[key] = storetest.MustCommit(t, s, storetest.Write(key, r)).Modified
			}
		}
		kept = append(kept, s.Any().Snapshot("pods"))
	}
	for i, old := range kept {
		for j, now := range kept {
			wantSince(t, fmt.Sprintf("%d to %d", i, j), old, now)
		}
	}
}

func wantSince(t *testing.T, name string, old, now store.Snapshot) {
	t.Helper()
	want := map[string][2]*store.Object{}
	for o := range old.Scan("", "") {
		if after := now.Get(o.Key); after != o {
			want[o.Key] = [2]*store.Object{o, after}
		}
	}
	for o := range now.Scan("", "") {
		if old.Get(o.Key) == nil {
			want[o.Key] = [2]*store.Object{nil, o}
		}
	}
	last, n := "", 0
	for before, after := range now.Since(old) {
		key := ""
		if n++; before != nil {
			key = before.Key
		} else {
			key = after.Key
		}
		if key <= last || want[key] != [2]*store.Object{before, after} {
			t.Errorf("%s: %s behind %q: %v and %v, want %v", name, key, last, before, after, want[key])
		}
		last = key
	}
	if n != len(want) {
		t.Errorf("%s: %d changes, want %d", name, n, len(want))
	}
}

// BenchmarkSince finds one change among 10,000 objects.
func BenchmarkSince(b *testing.B) {
	s := filled(b, 10_000, 100)
	old := s.Any().Snapshot("pods")
	change := storetest.Padded(benchKey(5000), old.Get(benchKey(5000)).Modified, 100)
	if _, err := s.Commit(b.Context(), change); err != nil {
		b.Fatal(err)
	}
	now := s.Any().Snapshot("pods")
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for range now.Since(old) {
			n++
		}
		if n != 1 {
			b.Fatalf("%d changes, want 1", n)
		}
	}
}
