package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
)

func testConditions(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	mustCommit(t, s, put("pods", "ns/before", "", 0)) // so that there are old revisions
	start := s.Any().Revision()
	a := mustCommit(t, s, put("pods", "ns/a", "one", 0))
	if a.Modified != start+1 || a.Created != start+1 || string(a.Bytes()) != value("one", start+1) {
		t.Errorf("created %s", text([]*store.Object{a}))
	}
	for _, c := range []struct {
		what string
		w    store.Write
		want error
	}{
		{"create an existing object", put("pods", "ns/a", "x", 0), store.ErrExists},
		{"update at an old revision", put("pods", "ns/a", "x", a.Modified-1), store.ErrConflict},
		{"update at a revision to come", put("pods", "ns/a", "x", a.Modified+1), store.ErrConflict},
		{"update a missing object", put("pods", "ns/b", "x", a.Modified), store.ErrNotFound},
		{"update in an unknown collection", put("nodes", "ns/a", "x", a.Modified), store.ErrNotFound},
		{"delete a missing object", del("pods", "ns/b", a.Modified), store.ErrNotFound},
		{"delete at an old revision", del("pods", "ns/a", a.Modified-1), store.ErrConflict},
	} {
		if _, err := s.Commit(t.Context(), c.w); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.what, err, c.want)
		}
	}
	if now := s.Any().Revision(); now != a.Modified {
		t.Errorf("refused writes moved the revision to %d", now)
	}
	b := mustCommit(t, s, put("pods", "ns/a", "two", a.Modified))
	if b.Created != a.Created || b.Modified != a.Modified+1 || string(b.Bytes()) != value("two", b.Modified) {
		t.Errorf("updated %s", text([]*store.Object{b}))
	}
	gone := mustCommit(t, s, del("pods", "ns/a", b.Modified))
	if gone.Modified != b.Modified+1 || gone.Created != a.Created || string(gone.Bytes()) != value("two", gone.Modified) {
		t.Errorf("deleted %s", text([]*store.Object{gone}))
	}
	if o := s.Any().Get("pods", "ns/a"); o != nil {
		t.Errorf("there after its deletion: %s", o.Bytes())
	}
	again := mustCommit(t, s, put("pods", "ns/a", "three", 0))
	if again.Created != gone.Modified+1 {
		t.Errorf("created again at %d, after %d", again.Created, gone.Modified)
	}
	if o := s.Any().Get("pods", "ns/a"); o != again {
		t.Errorf("get returns another object than the commit")
	}
	Close(t, s)
	if _, err := s.Commit(t.Context(), put("pods", "ns/z", "x", 0)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("commit after close: %v", err)
	}
}

// testUnfit sends writes that no log can keep, among writes that every log can: they alone are
// refused, and the store goes on.
func testUnfit(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	large := put("pods", "ns/large", "", 0)
	large.Value = append(large.Value, make([]byte, store.MaxValue)...)
	a := mustCommit(t, s, put("pods", "ns/a", "", 0))
	unfit := map[string]store.Write{
		"an empty key":          put("pods", "", "", 0),
		"a zero byte":           put("pods", "ns/a\x00b", "", 0),
		"a zero byte alone":     put("pods", "\x00", "", 0),
		"a zero byte, update":   put("pods", "ns/a\x00b", "", a.Modified),
		"a zero byte, deletion": del("pods", "ns/a\x00", a.Modified),
		"a collection":          put("po\x00ds", "ns/a", "", 0),
		"a long collection":     put(strings.Repeat("p", store.MaxKey+1), "ns/a", "", 0),
		"a long key":            put("pods", strings.Repeat("k", store.MaxKey+1), "", 0),
		"a large value":         large,
	}
	var wg sync.WaitGroup
	for what, w := range unfit {
		wg.Go(func() {
			_, err := s.Commit(t.Context(), w)
			var refused *store.UnfitError
			if !errors.As(err, &refused) || refused.Size != strings.Contains(what, "large") || len(err.Error()) > 300 {
				t.Errorf("%s: %v", what, err)
			}
		})
		wg.Go(func() {
			if _, err := s.Commit(t.Context(), put("pods", "ns/during "+what, "", 0)); err != nil {
				t.Errorf("during %s: %v", what, err)
			}
		})
	}
	wg.Wait()
	if n := s.Any().Snapshot("pods").Count("", ""); n != len(unfit)+1 {
		t.Errorf("%d objects, want %d", n, len(unfit)+1)
	}
	longest := put("pods", strings.Repeat("\xff", store.MaxKey), "x", 0)
	if o := mustCommit(t, s, longest); s.Any().Get("pods", longest.Key) != o {
		t.Error("the longest key is not there")
	}
}

// testGroups has many writers at once: each write has its own revision, which
// can be read exactly, and a watch sees every one of them once and in order.
func testGroups(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	start := s.Any().Revision()
	cursor, err := s.Watch("pods", "", start)
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	const writers, writes = 16, 30
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[store.Revision]string{}
	for w := range writers {
		wg.Go(func() {
			key, last := fmt.Sprintf("ns/%02d", w), store.Revision(0)
			for i := range writes {
				o, err := s.Commit(t.Context(), put("pods", key, fmt.Sprint(i), last))
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				if got := s.Any().Get("pods", key); got != o {
					t.Errorf("writer %d does not read what it wrote", w)
				}
				last = o.Modified
				mu.Lock()
				seen[o.Modified] = string(o.Bytes())
				mu.Unlock()
				// A contender at the same key, with the pending version.
				if _, err := s.Commit(t.Context(), put("pods", key, "x", 0)); !errors.Is(err, store.ErrExists) {
					t.Errorf("create of an existing object: %v", err)
				}
			}
		})
	}
	Within(t, "the writers", wg.Wait)
	if len(seen) != writers*writes || s.Any().Revision() != start+writers*writes {
		t.Errorf("%d revisions for %d writes, up to %d after %d", len(seen), writers*writes, s.Any().Revision(), start)
	}
	last := start
	for _, ch := range drain(t, cursor, make([]*store.Change, 7)) {
		if ch.Revision != last+1 || string(ch.After.Bytes()) != seen[ch.Revision] {
			t.Errorf("after %d comes %d: %s, want %s", last, ch.Revision, ch.After.Bytes(), seen[ch.Revision])
		}
		last = ch.Revision
	}
	if last != s.Any().Revision() || cursor.Revision() != last {
		t.Errorf("the watch ends at %d, says %d, the store is at %d", last, cursor.Revision(), s.Any().Revision())
	}
	for r := start; r <= last; r += 7 {
		newest := store.Revision(0)
		for _, o := range exact(t, s, "pods", r) {
			newest = max(newest, o.Modified)
		}
		if r > start && newest != r {
			t.Errorf("the newest object at %d is of %d", r, newest)
		}
	}
}

func testExact(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	start := s.Any().Revision()
	a := mustCommit(t, s, put("pods", "ns/a", "a", 0))
	mustCommit(t, s, put("nodes", "n", "n", 0))
	mustCommit(t, s, put("pods", "ns/b", "b", 0))
	mustCommit(t, s, del("pods", "ns/a", a.Modified))
	for i, want := range []int{0, 1, 1, 2, 1} {
		if got := exact(t, s, "pods", start+store.Revision(i)); len(got) != want {
			t.Errorf("%d pods at %d, want %d", len(got), start+store.Revision(i), want)
		}
	}
	if got := exact(t, s, "unknown", start+2); len(got) != 0 {
		t.Errorf("%d objects in an unknown collection", len(got))
	}
	tooLarge := new(*store.TooLargeError)
	if _, err := s.Exact(t.Context(), "pods", start+5, time.Millisecond); !errors.As(err, tooLarge) {
		t.Errorf("exact in the future: %v", err)
	} else if e := *tooLarge; e.Revision != start+5 || e.Current != start+4 {
		t.Errorf("exact in the future: %+v", e)
	}
	if _, err := s.NotOlderThan(t.Context(), start+5, 0); !errors.As(err, tooLarge) {
		t.Errorf("not older than the future: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.NotOlderThan(ended, start+5, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait whose context ended: %v", err)
	}
	Within(t, "a revision that comes", func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			v, err := s.Exact(context.Background(), "pods", start+5, time.Hour)
			if err != nil {
				t.Errorf("exact of what comes: %v", err)
				return
			}
			v.Close()
			v.Close()
			if _, err := collect(v.Scan("", "")); !errors.Is(err, store.ErrClosed) {
				t.Errorf("scan of a closed view: %v", err)
			}
		}()
		if _, err := s.Commit(context.Background(), put("nodes", "m", "m", 0)); err != nil {
			t.Error(err)
		}
		<-done
	})
}

func testCursors(t *testing.T, medium Medium) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	start := s.Any().Revision()
	watch := func(collection, prefix string, after store.Revision) *store.Cursor {
		c, err := s.Watch(collection, prefix, after)
		if err != nil {
			t.Fatalf("watch %s %q after %d: %v", collection, prefix, after, err)
		}
		return c
	}
	all, ns, one := watch("pods", "", start), watch("pods", "a/", start), watch("pods", "a/x", start)
	node, late := watch("nodes", "n", start), watch("pods", "", start+3)
	x := mustCommit(t, s, put("pods", "a/x", "1", 0))
	mustCommit(t, s, put("pods", "a/xy", "2", 0))
	mustCommit(t, s, put("pods", "ab/x", "3", 0))
	mustCommit(t, s, del("pods", "a/x", x.Modified))
	if node.Ready() {
		t.Error("a cursor was woken for another collection")
	}
	mustCommit(t, s, put("nodes", "n", "5", 0))
	for _, c := range []struct {
		name   string
		cursor *store.Cursor
		want   []store.Revision
	}{
		{"all", all, []store.Revision{1, 2, 3, 4}},
		{"namespace", ns, []store.Revision{1, 2, 4}},
		{"one", one, []store.Revision{1, 4}},
		{"node", node, []store.Revision{5}},
		{"late", late, []store.Revision{4}},
	} {
		if !c.cursor.Ready() {
			t.Errorf("%s was not woken", c.name)
		}
		var got []store.Revision
		for _, ch := range drain(t, c.cursor, make([]*store.Change, 1)) {
			got = append(got, ch.Revision-start)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		if r := c.cursor.Revision(); r != start+5 {
			t.Errorf("%s is at %d, want %d", c.name, r, start+5)
		}
	}
	testChange(t, s, start)
	buf := make([]*store.Change, 4)
	future := watch("pods", "", start+100)
	if n, err := future.TryNext(t.Context(), buf); n != 0 || err != nil || future.Revision() != start+5 {
		t.Errorf("a cursor in the future: %d, %v, at %d", n, err, future.Revision())
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := Next(ended, all, buf); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("next whose context ended: %d, %v", n, err)
	}
	one.Close()
	one.Close()
	if _, err := one.TryNext(t.Context(), buf); !errors.Is(err, store.ErrClosed) {
		t.Errorf("next of a closed cursor: %v", err)
	}
	Within(t, "close", func() {
		done := make(chan error)
		go func() {
			_, err := Next(context.Background(), all, buf)
			done <- err
		}()
		Close(t, s)
		if err := <-done; !errors.Is(err, store.ErrClosed) {
			t.Errorf("next while the store closes: %v", err)
		}
	})
	if _, err := s.Watch("pods", "", start); !errors.Is(err, store.ErrClosed) {
		t.Errorf("watch after close: %v", err)
	}
}

// testChange checks the fields of changes.
func testChange(t *testing.T, s *store.Store, start store.Revision) {
	c, err := s.Watch("pods", "a/x", start)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := drain(t, c, make([]*store.Change, 8))
	if len(got) != 2 || got[0].Before != nil || got[1].After != nil || got[1].Before != got[0].After {
		t.Fatalf("a creation and a deletion: %+v", got)
	}
	gone := got[1].Gone()
	if gone == nil || gone != got[1].Gone() || string(gone.Bytes()) != value("1", start+4) || gone.Modified != start+4 || !gone.IsGone() || got[0].After.IsGone() {
		t.Errorf("the deletion reports %+v", gone)
	}
	if got[0].Gone() != nil {
		t.Errorf("a creation reports a state before")
	}
}

// testRestart goes on where it was: state, history, cursors.
func testRestart(t *testing.T, medium Medium) {
	open := medium(t)
	s := Open(t, store.Options{Log: open(t)})
	start := s.Any().Revision()
	var last *store.Object
	const n = 20
	states := make([]string, n+1)
	for i := 1; i <= n; i++ {
		condition := store.Revision(0)
		if last != nil {
			condition = last.Modified
		}
		last = mustCommit(t, s, put("pods", "ns/a", fmt.Sprint(i), condition))
		mustCommitEvery(t, s, i)
		states[i] = text(exact(t, s, "pods", s.Any().Revision()))
	}
	head := s.Any().Revision()
	Close(t, s)

	s = Open(t, store.Options{Log: open(t)})
	if floor, now := s.Bounds(); now != head || floor > start {
		t.Fatalf("bounds after a restart: %d to %d, want %d to %d", floor, now, start, head)
	}
	for i, want := range states[1:] {
		if got := text(exact(t, s, "pods", start+store.Revision(2*i+2))); got != want {
			t.Errorf("pods at %d: got\n%swant\n%s", start+store.Revision(2*i+2), got, want)
		}
	}
	c, err := s.Watch("pods", "ns/a", start+4)
	if err != nil {
		t.Fatalf("watch from before the restart: %v", err)
	}
	defer c.Close()
	after := mustCommit(t, s, put("pods", "ns/a", "after", last.Modified))
	if after.Modified <= head {
		t.Errorf("revision %d after %d", after.Modified, head)
	}
	got := drain(t, c, make([]*store.Change, 3))
	if len(got) != n-2+1 {
		t.Fatalf("%d changes after a restart, want %d", len(got), n-2+1)
	}
	for i, ch := range got {
		want := fmt.Sprint(i + 3)
		if i == n-2 {
			want = "after"
		}
		if string(ch.After.Bytes()) != value(want, ch.Revision) || ch.Before == nil {
			t.Errorf("change %d: %s", i, ch.After.Bytes())
		}
	}
	if c.Revision() != after.Modified {
		t.Errorf("the cursor is at %d, want %d", c.Revision(), after.Modified)
	}
}

// mustCommitEvery makes one more write for each round, of changing kind.
func mustCommitEvery(t *testing.T, s *store.Store, i int) {
	if o := s.Any().Get("pods", "ns/b"); o != nil {
		mustCommit(t, s, del("pods", "ns/b", o.Modified))
	} else {
		mustCommit(t, s, put("pods", "ns/b", fmt.Sprint("b", i), 0))
	}
}

// testCompactToEmpty deletes everything, lets all history expire, and restarts:
// revisions grow on.
func testCompactToEmpty(t *testing.T, medium Medium) {
	open := medium(t)
	s := Open(t, store.Options{Log: open(t), Retention: time.Millisecond})
	o := mustCommit(t, s, put("pods", "ns/a", "1", 0))
	gone := mustCommit(t, s, del("pods", "ns/a", o.Modified))
	await.True(t, "the compaction of all history", func() bool {
		floor, head := s.Bounds()
		return floor == head
	})
	expired := new(*store.ExpiredError)
	if _, err := s.Exact(t.Context(), "pods", o.Modified, 0); !errors.As(err, expired) {
		t.Errorf("exact below the floor: %v", err)
	} else if e := *expired; e.Revision != o.Modified || e.Floor != gone.Modified {
		t.Errorf("exact below the floor: %+v", e)
	}
	if _, err := s.Watch("pods", "", o.Modified); !errors.As(err, expired) {
		t.Errorf("watch below the floor: %v", err)
	}
	Close(t, s)
	s = Open(t, store.Options{Log: open(t)})
	if now := s.Any().Revision(); now != gone.Modified {
		t.Errorf("the revision after a restart is %d, want %d", now, gone.Modified)
	}
	if again := mustCommit(t, s, put("pods", "ns/a", "2", 0)); again.Modified <= gone.Modified {
		t.Errorf("revision %d after %d", again.Modified, gone.Modified)
	}
}
