package store_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestGrowAndShrink takes a collection through sizes of several levels, by
// random keys, keys in order and keys against the order, and empties it again. The
// states on the way do not change.
func TestGrowAndShrink(t *testing.T) {
	chance := testrand.New(t)
	s := open(t)
	there := map[string]store.Revision{}
	type moment struct {
		state *store.State
		want  map[string]store.Revision
	}
	var moments []moment
	const most = 12_000
	step := func(grow bool, key string) {
		if r, found := there[key]; found && !grow {
			storetest.MustCommit(t, s, storetest.Remove(key, r))
			delete(there, key)
		} else if grow {
			there[key] = storetest.MustCommit(t, s, storetest.Write(key, r)).Modified
		}
	}
	for round, key := range []func(i int) string{
		func(int) string { return fmt.Sprintf("%d/%05d", chance.IntN(5), chance.IntN(most)) },
		func(i int) string { return fmt.Sprintf("%d/%05d", i/4000, i) },
		func(i int) string { return fmt.Sprintf("%d/%05d", (most-i)/4000, most-i) },
	} {
		for i := range most {
			step(true, key(i))
		}
		moments = append(moments, moment{s.Any(), maps.Clone(there)})
		keys := slices.Sorted(maps.Keys(there))
		if round == 0 {
			chance.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		}
		for i, key := range keys {
			if i == len(keys)*9/10 {
				moments = append(moments, moment{s.Any(), maps.Clone(there)})
				if err := s.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			step(false, key)
		}
		if n := s.Any().Snapshot("pods").Count("", ""); n != 0 {
			t.Errorf("%d objects in an empty collection", n)
		}
	}
	for _, m := range moments {
		keys := slices.Sorted(maps.Keys(m.want))
		snapshot := m.state.Snapshot("pods")
		i := 0
		for o := range snapshot.Scan("", "") {
			if i == len(keys) || o.Key != keys[i] || o.Modified != m.want[keys[i]] {
				t.Fatalf("at %d, object %d is %s@%d", m.state.Revision(), i, o.Key, o.Modified)
			}
			i++
		}
		if i != len(keys) {
			t.Errorf("at %d: %d objects, want %d", m.state.Revision(), i, len(keys))
		}
		for range 300 {
			after, prefix := fmt.Sprintf("%d/%05d", chance.IntN(5), chance.IntN(most)), ""
			if chance.IntN(2) == 0 {
				prefix = after[:chance.IntN(len(after))]
			}
			from, _ := slices.BinarySearch(keys, after+"\x00")
			want := 0
			for ; from < len(keys) && len(keys[from]) >= len(prefix) && keys[from][:len(prefix)] == prefix; from++ {
				want++
			}
			if got := snapshot.Count(prefix, after); got != want {
				t.Errorf("at %d: %q after %q counts %d, want %d", m.state.Revision(), prefix, after, got, want)
			}
		}
	}
}

// TestManyCollections: more than one piece of a state's roots.
func TestManyCollections(t *testing.T) {
	s := open(t)
	var wg sync.WaitGroup
	const n = 200
	for i := range n {
		wg.Go(func() {
			w := storetest.Write("ns/a", 0)
			w.Collection = fmt.Sprintf("kinds-%d", i)
			if _, err := s.Commit(t.Context(), w); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range n {
		if s.Any().Get(fmt.Sprintf("kinds-%d", i), "ns/a") == nil {
			t.Errorf("collection %d lacks its object", i)
		}
	}
	if got := s.Stats().Collections; got != n {
		t.Errorf("%d collections, want %d", got, n)
	}
}
