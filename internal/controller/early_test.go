package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// looked returns a collector, and a function that takes the keys in its queue.
func looked(t testing.TB) (g *garbage, take func() []string) {
	q := newQueue("garbage-collector", 1, func(context.Context, item) error { return nil }, slog.New(slog.DiscardHandler))
	t.Cleanup(q.close)
	q.pause(true)
	g = newGarbage(&Loops{}, q).(*garbage)
	return g, func() (keys []string) {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, i := range q.due {
			keys = append(keys, i.key)
		}
		clear(q.waiting)
		q.due = nil
		slices.Sort(keys)
		return keys
	}
}

// TestEarly checks that an object that was examined before the index had reached its version is
// examined again once it has, and not before.
func TestEarly(t *testing.T) {
	chance := testrand.New(t)
	g, take := looked(t)
	g.reached(1)
	waiting := map[string]store.Revision{}
	for i := range 500 {
		o := &store.Object{Key: fmt.Sprint(i), Modified: store.Revision(1 + chance.IntN(100))}
		if g.tooEarly(object{"configmaps", o.Key}, o) {
			waiting[o.Key] = o.Modified
		}
	}
	for r := store.Revision(2); r <= 100; r += store.Revision(1 + chance.IntN(3)) {
		g.reached(r)
		var want []string
		for key, modified := range waiting {
			if modified <= r {
				want = append(want, key)
				delete(waiting, key)
			}
		}
		slices.Sort(want)
		if got := take(); !slices.Equal(got, want) {
			t.Fatalf("at %d %q are looked at, want %q", r, got, want)
		}
	}
}

// BenchmarkEarly has 20,000 objects wait for the index, which comes to one after the
// other.
func BenchmarkEarly(b *testing.B) {
	const objects = 20_000
	for b.Loop() {
		g, take := looked(b)
		for i := range objects {
			g.tooEarly(object{"configmaps", fmt.Sprint(i)}, &store.Object{Modified: store.Revision(1 + i)})
		}
		for i := range objects {
			g.reached(store.Revision(1 + i))
		}
		if n := len(take()); n != objects {
			b.Fatalf("%d of them are looked at", n)
		}
	}
}
