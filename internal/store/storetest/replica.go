package storetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// testReplica compares the reads of a replica, after each write and each move, with the history.
func testReplica(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	b := &branch{t: t, store: s, chance: testrand.New(t), want: map[string]map[string]*store.Object{}}
	for range 40 {
		b.change()
	}
	begin := s.Any().Revision()
	for _, lag := range []uint64{store.Frozen, 10} {
		r, err := s.Replica(begin-20, lag)
		if err != nil {
			t.Fatal(err)
		}
		if _, head := s.Bounds(); lag != store.Frozen && r.Revision() != max(begin-20, head-10) {
			t.Errorf("a replica that lags %d is at %d", lag, r.Revision())
		}
		cursor, err := r.Watch("pods", "", r.Revision())
		if err != nil {
			t.Fatal(err)
		}
		after, buf := r.Revision(), make([]*store.Change, 7)
		for range 120 {
			before := r.Revision()
			switch b.chance.IntN(6) {
			case 0:
				r.Advance(uint64(b.chance.IntN(4)))
			case 1:
				r.Reach(before + store.Revision(b.chance.IntN(4)))
			default:
				b.change()
			}
			at := r.Revision()
			_, head := s.Bounds()
			if at < before || at > head || lag != store.Frozen && uint64(head-at) > lag {
				t.Fatalf("a replica that lags %d moves from %d to %d, the head is %d", lag, before, at, head)
			}
			snapshot, err := r.Snapshot(t.Context(), "pods")
			if err != nil || snapshot.Revision() != at {
				t.Fatalf("the snapshot at %d has revision %d, %v", at, snapshot.Revision(), err)
			}
			if got, want := slices.Collect(snapshot.Scan("", "")), exact(t, s, "pods", at); !slices.EqualFunc(got, want, sameVersion) {
				t.Fatalf("at %d: %d objects, want %d, or others", at, len(got), len(want))
			}
			for _, c := range drain(t, cursor, buf) {
				if c.Revision <= after || c.Revision > at {
					t.Fatalf("a change of revision %d after %d, the replica is at %d", c.Revision, after, at)
				}
				after = c.Revision
			}
			if cursor.Revision() != at {
				t.Fatalf("a cursor that was drained is at %d, the replica at %d", cursor.Revision(), at)
			}
		}
		r.CatchUp()
		if got, want := r.Revision(), s.Any().Revision(); got != want {
			t.Errorf("a replica that has caught up is at %d, want %d", got, want)
		}
		r.Close()
		if _, err := cursor.TryNext(t.Context(), buf); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a cursor of a replica that is closed: %v", err)
		}
		cursor.Close()
	}
	floor, head := s.Bounds()
	if _, err := s.Replica(head+1, store.Frozen); !errors.As(err, new(*store.TooLargeError)) {
		t.Errorf("a replica in the future: %v", err)
	}
	if floor > 1 { // revision 0 is no bound
		if _, err := s.Replica(floor-1, store.Frozen); !errors.As(err, new(*store.ExpiredError)) {
			t.Errorf("a replica below the history: %v", err)
		}
	}
}

// testReplicaWakes: each move of a replica wakes its cursors, also a change in another collection.
func testReplicaWakes(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	first := mustCommit(t, s, put("pods", "a/1", "one", 0))
	const lag = 2
	for name, move := range map[string]func(*store.Replica){
		"publication": func(*store.Replica) {
			for range lag {
				o := s.Any().Get("nodes", "n")
				condition := store.Revision(0)
				if o != nil {
					condition = o.Modified
				}
				mustCommit(t, s, put("nodes", "n", "x", condition))
			}
		},
		"advance":  func(r *store.Replica) { r.Advance(lag) },
		"catch up": func(r *store.Replica) { r.CatchUp() },
	} {
		from := s.Any().Revision()
		r, err := s.Replica(from, lag)
		if err != nil {
			t.Fatal(err)
		}
		cursor, err := r.Watch("pods", "a/1", from)
		if err != nil {
			t.Fatal(err)
		}
		first = mustCommit(t, s, put("pods", "a/1", name, first.Modified))
		got := make(chan store.Revision)
		go func() {
			buf := make([]*store.Change, 1)
			if n, err := Next(t.Context(), cursor, buf); n != 1 || err != nil {
				t.Errorf("%s: %d changes, %v", name, n, err)
				buf[0] = new(store.Change)
			}
			got <- buf[0].Revision
		}()
		move(r)
		Within(t, name, func() {
			if at := <-got; at != first.Modified {
				t.Errorf("%s: the cursor has the change of revision %d, want %d", name, at, first.Modified)
			}
		})
		cursor.Close()
		r.Close()
	}
}
