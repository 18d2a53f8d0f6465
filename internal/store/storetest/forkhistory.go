package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// testForkHistory forks with a part of the history of a store, also twice in a row, and compares the history of the fork
// with that of the store.
func testForkHistory(t *testing.T, s *store.Store, log ForkLog) {
	chance := testrand.New(t)
	b := &branch{t: t, store: s, chance: chance, want: map[string]map[string]*store.Object{}}
	for i := range 150 {
		b.change()
		w := put("events", fmt.Sprint("e/", i), "", 0)
		w.Origin = someOrigin(chance)
		mustCommit(t, s, w)
	}
	for range 12 {
		floor, head := s.Bounds()
		at := floor + store.Revision(chance.IntN(int(head-floor)+1))
		since := floor + store.Revision(chance.IntN(int(at-floor)+1))
		f := forkSince(t, s, at, since, log)
		compareHistory(t, f, s, since, at)
		child := &branch{t: t, store: f, chance: chance, want: objectsOf(f)}
		for range 20 {
			child.change()
		}
		child.check()
		compareHistory(t, f, s, since, at)
		_, head = f.Bounds()
		between := since + store.Revision(chance.IntN(int(head-since)+1))
		grandchild := forkSince(t, f, head, between, log)
		compareHistory(t, grandchild, f, between, head)
		mustCommit(t, grandchild, put("events", "own", "", 0))
		compareHistory(t, grandchild, f, between, head)
		if err := grandchild.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// forkSince forks a store at a revision, with the history after another one.
func forkSince(t *testing.T, s *store.Store, at, since store.Revision, log ForkLog) *store.Store {
	t.Helper()
	state, err := s.StateAt(t.Context(), at, nil)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := s.History(t.Context(), since, state, 1<<30, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := stores.Fork(s, state, store.Options{Log: log(state, since, changes)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, f) })
	return f
}

// objectsOf returns the current objects of a store.
func objectsOf(s *store.Store) map[string]map[string]*store.Object {
	objects, state := map[string]map[string]*store.Object{}, s.Any()
	for collection := range state.Collections() {
		objects[collection] = map[string]*store.Object{}
		for o := range state.Snapshot(collection).Scan("", "") {
			objects[collection][o.Key] = o
		}
	}
	return objects
}

// compareHistory compares the history of a fork from one revision to another with that of its parent.
func compareHistory(t *testing.T, fork, parent *store.Store, since, at store.Revision) {
	t.Helper()
	if floor, head := fork.Bounds(); floor != since || head < at {
		t.Errorf("a fork of %d with the history after %d has that from %d to %d", at, since, floor, head)
	}
	if got, want := changesOf(t, fork, since, at), changesOf(t, parent, since, at); !slices.Equal(got, want) {
		t.Errorf("the changes after %d up to %d are\n%v, want\n%v", since, at, got, want)
	}
	replica, err := fork.Replica(since, store.Frozen)
	if err != nil {
		t.Fatal(err)
	}
	defer replica.Close()
	for _, r := range []store.Revision{since, since + (at-since)/2, at} {
		replica.Reach(r)
		for _, collection := range []string{"pods", "events", "none"} {
			want := exact(t, parent, collection, r)
			if got := exact(t, fork, collection, r); !slices.EqualFunc(got, want, sameVersion) {
				t.Errorf("%s at %d: %d objects, want %d, or others", collection, r, len(got), len(want))
			}
			snapshot, err := replica.Snapshot(t.Context(), collection)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Collect(snapshot.Scan("", "")); snapshot.Revision() != r || !slices.EqualFunc(got, want, sameVersion) {
				t.Errorf("%s of a replica at %d: %d objects at %d, want %d, or others", collection, r, len(got), snapshot.Revision(), len(want))
			}
		}
	}
	cursor, err := fork.Watch("pods", "", since)
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	for _, c := range drain(t, cursor, make([]*store.Change, 7)) {
		if c.Revision <= since {
			t.Errorf("a watch after %d delivers the change of %d", since, c.Revision)
		}
	}
	if since > 1 {
		if _, err := fork.Exact(t.Context(), "pods", since-1, 0); !errors.As(err, new(*store.ExpiredError)) {
			t.Errorf("a read below the history of a fork: %v", err)
		}
	}
}

// changesOf returns the changes of all collections after a revision, up to another one, as texts.
func changesOf(t *testing.T, s *store.Store, after, upTo store.Revision) []string {
	t.Helper()
	feed, err := s.Feed(after)
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	var all []string
	buf := make([]store.CollectionChange, 50)
	for feed.Revision() < upTo {
		n, err := feed.TryNext(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range buf[:n] {
			if c.Revision > upTo {
				break
			}
			origin := c.Origin()
			all = append(all, entryText(store.Entry{
				Collection: c.Collection, Key: c.Key(), Revision: c.Revision, Object: c.After, Before: c.Before, Origin: &origin,
			}))
		}
	}
	return all
}

// testForkHistoryBound: the inherited changes count in the memory of the fork's history, which drops them one
// after the other, and have to fit.
func testForkHistoryBound(t *testing.T, medium Medium, log ForkLog) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	last := mustCommit(t, s, put("pods", "a", "", 0))
	since := last.Modified
	const inherited, size = 20, 1000
	for range inherited {
		last = mustCommit(t, s, put("pods", "a", fmt.Sprintf("%0*d", size, 1), last.Modified))
	}
	state := s.Any()
	if _, err := s.History(t.Context(), since, state, inherited*size/2, nil); !errors.Is(err, store.ErrTooMuchHistory) {
		t.Errorf("a history that is too large: %v", err)
	}
	if _, err := s.History(t.Context(), state.Revision()+1, state, 1<<20, nil); !errors.As(err, new(*store.TooLargeError)) {
		t.Errorf("a history from the future: %v", err)
	}
	changes, err := s.History(t.Context(), since, state, 1<<20, nil)
	if err != nil || len(changes) != inherited {
		t.Fatalf("%d changes, %v", len(changes), err)
	}
	const most = inherited * size * 3 / 2
	f, err := stores.Fork(s, state, store.Options{Log: log(state, since, changes), MaxMemory: most})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(t, f)
	if got := f.Stats().HistoryBytes; got < inherited*size || got > most {
		t.Errorf("the history of the fork takes %d bytes", got)
	}
	floors := map[store.Revision]bool{}
	for range 2 * inherited {
		last = mustCommit(t, f, put("pods", "a", fmt.Sprintf("%0*d", size, 1), last.Modified))
		floor, _ := f.Bounds()
		floors[floor] = true
		if got := f.Stats().HistoryBytes; got > most {
			t.Errorf("the history of the fork takes %d bytes, and may take %d", got, most)
		}
	}
	between := 0
	for r := range floors {
		if since < r && r < state.Revision() {
			between++
		}
	}
	if floor, _ := f.Bounds(); !floors[since] || between < inherited/2 || floor <= state.Revision() {
		t.Errorf("the history of a fork of %d with the changes after %d began at %v", state.Revision(), since, floors)
	}
	exact(t, f, "pods", f.Any().Revision()-inherited/2)
}
