package store_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

func fill(t testing.TB, s *store.Store, n, size int) []*store.Object {
	t.Helper()
	all := make([]*store.Object, n)
	for i := range all {
		o, err := s.Commit(t.Context(), storetest.Padded(fmt.Sprintf("ns/%06d", i), 0, size))
		if err != nil {
			t.Fatal(err)
		}
		all[i] = o
	}
	return all
}

func modified(t *testing.T, seq iter.Seq2[*store.Object, error]) []store.Revision {
	t.Helper()
	var all []store.Revision
	for o, err := range seq {
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		all = append(all, o.Modified)
	}
	return all
}

// TestExactFar reads revisions that are far from the newest and from each other,
// among enough changes that states are kept in between.
func TestExactFar(t *testing.T) {
	chance := testrand.New(t)
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	objects := fill(t, s, 300, 10)
	want := map[store.Revision][]store.Revision{}
	for i := range 15000 {
		j := chance.IntN(len(objects))
		objects[j] = storetest.MustCommit(t, s, storetest.Padded(objects[j].Key, objects[j].Modified, 10))
		if i%500 == 0 {
			var now []store.Revision
			for _, o := range objects {
				now = append(now, o.Modified)
			}
			want[s.Any().Revision()] = now
		}
	}
	if kept := s.Stats().KeptStates; kept < 3 {
		t.Errorf("%d states are kept", kept)
	}
	for range 2 {
		for r, want := range want {
			v, err := s.Exact(t.Context(), "pods", r, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got := modified(t, v.Scan("", "")); !slices.Equal(got, want) {
				t.Errorf("at %d: got %d, want %d", r, got, want)
			}
			v.Close()
		}
	}
}

// TestMemoryBound: the history takes as many bytes as it may, by its own account.
func TestMemoryBound(t *testing.T) {
	const most = 1 << 20
	for _, size := range []int{10, 1000} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			s := storetest.Open(t, store.Options{Log: memlog.New(), MaxMemory: most})
			within := func() {
				if account := s.Stats().HistoryBytes; account > most {
					t.Fatalf("the account says %d, above %d", account, most)
				}
			}
			objects := fill(t, s, 250, size)
			replace(t, s, objects, size, 7500, within)
			if account := s.Stats().HistoryBytes; account < most*9/10 {
				t.Errorf("the account says %d, the bound is %d", account, most)
			}
		})
	}
}

// replace writes to the objects, again and again, and calls check after each write.
func replace(t *testing.T, s *store.Store, objects []*store.Object, size, writes int, check func()) {
	t.Helper()
	for i := range writes {
		o := &objects[i*7919%len(objects)]
		*o = storetest.MustCommit(t, s, storetest.Padded((*o).Key, (*o).Modified, size))
		check()
	}
}

// TestMemory compares the memory of the history with the accounted bytes.
func TestMemory(t *testing.T) {
	tier.Full(t)
	const most = 8 << 20
	for _, size := range []int{10, 1000} {
		t.Run(fmt.Sprintf("%d bytes", size), func(t *testing.T) {
			s := storetest.Open(t, store.Options{Log: memlog.New(), MaxMemory: most})
			objects := fill(t, s, 2000, size)
			empty := s.Stats().HistoryBytes
			with, _ := heap()
			replace(t, s, objects, size, 60000, func() {})
			now, _ := heap()
			real, account := int64(now-with)+empty, s.Stats().HistoryBytes
			t.Logf("history takes %d KiB, the account says %d KiB, %d changes", real>>10, account>>10, s.Stats().Changes)
			if real > most*5/4 || real < account/2 {
				t.Errorf("history takes %d bytes and the account says %d, the bound is %d", real, account, most)
			}
			runtime.KeepAlive(objects)
		})
	}
}

// TestStalledView: a reader that stalls keeps no memory: its view loses the tree
// and goes on from the log.
func TestStalledView(t *testing.T) {
	type open func(s *store.Store) *store.View
	exact := func(s *store.Store) *store.View {
		v, err := s.Exact(t.Context(), "pods", s.Any().Revision(), 0)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	hold := func(s *store.Store) *store.View { return s.Hold(t.Context(), "pods") }
	stall := func(t *testing.T, log store.Log, view open) ([]store.Revision, []store.Revision, error) {
		s := storetest.Open(t, store.Options{Log: log, MaxMemory: 200 << 10})
		objects := fill(t, s, 500, 10)
		var want, got []store.Revision
		for _, o := range objects {
			want = append(want, o.Modified)
		}
		v := view(s)
		defer v.Close()
		for o, err := range v.Scan("", "") {
			if err != nil {
				return want, got, err
			}
			if got = append(got, o.Modified); len(got) != 100 {
				continue
			}
			for i := range 5000 {
				o := objects[i%len(objects)]
				objects[i%len(objects)] = storetest.MustCommit(t, s, storetest.Padded(o.Key, o.Modified, 10))
			}
			if s.Stats().Window <= v.Revision() {
				t.Fatal("too few writes for this test")
			}
		}
		return want, got, nil
	}
	for _, view := range []open{exact, hold} {
		want, got, err := stall(t, durable{memlog.New()}, view)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %d, %v, want %d", got, err, want)
		}
		_, got, err = stall(t, memlog.New(), view)
		if expired := new(*store.ExpiredError); !errors.As(err, expired) || len(got) < 100 {
			t.Errorf("in memory: got %d objects, then %v, want expired", len(got), err)
		}
	}
}

// TestStalledViewOfLargeObjects: a reader that stalls keeps a bounded number of bytes of the state.
// That is a few of these objects: an in-memory log has no copy of old objects.
func TestStalledViewOfLargeObjects(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New(), MaxMemory: 200 << 10})
	const count, size = 100, 100 << 10
	objects := fill(t, s, count, size)
	v := s.Hold(t.Context(), "pods")
	defer v.Close()
	got := 0
	var failed error
	for _, err := range v.Scan("", "") {
		if failed = err; err != nil {
			break
		}
		if got++; got == 1 {
			for i, o := range objects {
				objects[i] = storetest.MustCommit(t, s, storetest.Padded(o.Key, o.Modified, size))
			}
		}
	}
	if expired := new(*store.ExpiredError); !errors.As(failed, expired) || got > 20 {
		t.Errorf("the reader still had %d objects, then %v", got, failed)
	}
}

// TestStalledViews: views whose readers stall between two objects hinder neither other views nor cursors, although few
// read from the log at a time.
func TestStalledViews(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: durable{memlog.New()}, MaxMemory: 1})
	old := s.Any().Revision()
	objects := fill(t, s, 1000, 10)
	exact := func() *store.View {
		v, err := s.Exact(t.Context(), "pods", old+500, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v.InMemory() {
			t.Fatal("the view is in memory")
		}
		return v
	}
	type stalled struct {
		view *store.View
		next func() (*store.Object, error, bool)
	}
	var all []stalled
	for range 100 {
		v := exact()
		next, stop := iter.Pull2(v.Scan("", ""))
		defer stop()
		if _, err, ok := next(); err != nil || !ok {
			t.Fatalf("the first object: %v", err)
		}
		all = append(all, stalled{v, next})
	}
	v := exact()
	if got := modified(t, v.Scan("", "")); len(got) != 500 {
		t.Errorf("%d objects beside stalled views, want 500", len(got))
	}
	v.Close()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := s.Watch("pods", "", old)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			buf := make([]*store.Change, 64)
			for n := 0; n < len(objects); {
				got, err := storetest.Next(t.Context(), c, buf)
				if err != nil {
					t.Error(err)
					return
				}
				n += got
			}
		})
	}
	wg.Wait()
	for _, a := range all {
		n := 1
		for {
			_, err, ok := a.next()
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			n++
		}
		if n != 500 {
			t.Errorf("%d objects after a stall, want 500", n)
		}
		a.view.Close()
		a.view.Close()
	}
}

// TestReady: a reader that checks only Ready, never an empty TryNext, misses no event.
func TestReady(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	start := s.Any().Revision()
	fill(t, s, 10, 1)
	c, err := s.Watch("pods", "ns/", start)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]*store.Change, 3)
	for n := 0; n < 10; {
		if !c.Ready() {
			t.Fatalf("not ready after %d of 10 changes", n)
		}
		c.Wait()
		got, err := c.TryNext(t.Context(), buf)
		if err != nil || got == 0 {
			t.Fatalf("got %d, %v", got, err)
		}
		n += got
	}
}

// TestGone: one copy of a deleted object, for the writer and for all watchers.
func TestGone(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	a := storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
	c, err := s.Watch("pods", "", a.Modified)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	gone := storetest.MustCommit(t, s, storetest.Remove("ns/a", a.Modified))
	buf := make([]*store.Change, 1)
	if n, err := c.TryNext(t.Context(), buf); n != 1 || err != nil || buf[0].Gone() != gone {
		t.Errorf("got %d, %v: another copy than the writer's", n, err)
	}
}

// TestWatchersBesideWriters: every cursor sees each change that it selects once
// and in order, and its revision is right.
func TestWatchersBesideWriters(t *testing.T) {
	for _, memory := range []int64{0, 20 << 10} {
		t.Run(fmt.Sprintf("memory=%d", memory), func(t *testing.T) {
			s := storetest.Open(t, store.Options{Log: durable{memlog.New()}, MaxMemory: memory})
			start := s.Any().Revision()
			const writers, writes = 4, 400
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var watchers, writing sync.WaitGroup
			for w := range 12 {
				prefix := []string{"", fmt.Sprintf("%d/", w%writers), fmt.Sprintf("%d/%d", w%writers, w%3), "x/"}[w%4]
				watchers.Go(func() { follow(ctx, t, s, prefix, start, start+writers*writes) })
			}
			for w := range writers {
				writing.Go(func() {
					last := map[string]store.Revision{}
					for i := range writes {
						key := fmt.Sprintf("%d/%d", w, i%3)
						o, err := s.Commit(ctx, storetest.Write(key, last[key]))
						if err != nil {
							t.Errorf("writer %d: %v", w, err)
							return
						}
						last[key] = o.Modified
					}
				})
			}
			writing.Wait()
			watchers.Wait()
		})
	}
}

// follow reads a cursor up to a revision, woken only by changes that it selects, and
// compares with a cursor that reads everything afterwards.
func follow(ctx context.Context, t *testing.T, s *store.Store, prefix string, start, end store.Revision) {
	c, err := s.Watch("pods", prefix, start)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	var got []store.Revision
	buf := make([]*store.Change, 8)
	at := start
	// The writers know when all is written; then nothing wakes a cursor any more.
	all, err := s.Watch("pods", "", start)
	if err != nil {
		t.Error(err)
		return
	}
	defer all.Close()
	var want []store.Revision
	for more := make([]*store.Change, 100); all.Revision() < end; {
		n, err := storetest.Next(ctx, all, more)
		if err != nil {
			t.Errorf("%q: %v", prefix, err)
			return
		}
		for _, ch := range more[:n] {
			if prefix == "" || ch.After.Key == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(ch.After.Key, prefix) {
				want = append(want, ch.Revision)
			}
		}
		for len(got) < len(want) {
			n, err := storetest.Next(ctx, c, buf)
			if err != nil {
				t.Errorf("%q: %v after %d of %d changes", prefix, err, len(got), len(want))
				return
			}
			for _, ch := range buf[:n] {
				if ch.Revision <= at {
					t.Errorf("%q: change %d after the cursor said %d", prefix, ch.Revision, at)
				}
				got = append(got, ch.Revision)
			}
			now := c.Revision()
			if now < at || now < buf[n-1].Revision {
				t.Errorf("%q: at %d after %d", prefix, now, at)
			}
			at = now
		}
	}
	if n, err := c.TryNext(t.Context(), buf); n != 0 || err != nil {
		t.Errorf("%q: %d changes more, %v", prefix, n, err)
	}
	if n := min(len(got), len(want)); !slices.Equal(got[:n], want[:n]) || len(got) != len(want) || c.Revision() != end {
		t.Errorf("%q: got %d changes up to %d, want %d up to %d", prefix, len(got), c.Revision(), len(want), end)
	}
}

// TestHeldViewsCostLittle: many readers of a large collection, each of another
// revision, share its tree. They must not drive history out of memory.
func TestHeldViewsCostLittle(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New(), MaxMemory: 8 << 20})
	objects := fill(t, s, 20_000, 10)
	before := s.Stats()
	for i := range 100 {
		v := s.Hold(t.Context(), "pods")
		defer v.Close()
		if v.Revision() != s.Any().Revision() {
			t.Fatalf("held %d of %d", v.Revision(), s.Any().Revision())
		}
		storetest.MustCommit(t, s, storetest.Padded(objects[i].Key, objects[i].Modified, 10))
	}
	if after := s.Stats(); after.Window != before.Window || after.HistoryBytes > before.HistoryBytes+1<<20 {
		t.Errorf("a hundred views: window %d, %d bytes; before: window %d, %d bytes", after.Window, after.HistoryBytes, before.Window, before.HistoryBytes)
	}
}

// TestBatches: cursors that are woken in batches miss nothing while several writers
// write, and the last write of a burst reaches all.
func TestBatches(t *testing.T) {
	const cursors, writers, bursts = 20, 3, 300
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	start := s.Any().Revision()
	seen := make(chan struct{}, cursors) // a cursor has all of a burst
	var wg sync.WaitGroup
	for i := range cursors {
		c, err := s.Watch("pods", []string{"", "ns/"}[i%2], start)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		wg.Go(func() {
			buf := make([]*store.Change, 1+i%5)
			for at := start; at < start+writers*bursts; {
				n, err := c.TryNext(t.Context(), buf)
				if err != nil {
					t.Error(err)
				}
				for _, change := range buf[:n] {
					if at++; change.Revision != at {
						t.Errorf("revision %d, want %d", change.Revision, at)
					}
					if (at-start)%writers == 0 {
						seen <- struct{}{}
					}
				}
				if n == 0 {
					c.Wait()
				}
			}
		})
	}
	storetest.Within(t, "every change at every cursor", func() {
		for i := range bursts {
			for w := range writers {
				wg.Go(func() {
					if _, err := s.Commit(t.Context(), storetest.Write(fmt.Sprintf("ns/%d-%d", w, i), 0)); err != nil {
						t.Error(err)
					}
				})
			}
			for range cursors {
				<-seen
			}
		}
		wg.Wait()
	})
}

// TestWake: a woken cursor does not wait, even if it was woken before the wait.
func TestWake(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	c, err := s.Watch("pods", "", s.Any().Revision())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Ready() {
		t.Error("there is nothing to read")
	}
	c.Wake()
	c.Wait()
	if c.Ready() {
		t.Error("Wait returned, and would again")
	}
	storetest.Within(t, "a wait", func() {
		go c.Wake()
		c.Wait()
		c.Close()
		c.Wait() // there is nothing to wait for
	})
}

// TestWakeOfNothing: waking the watchers of an empty collection does not create it.
func TestWakeOfNothing(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	if n := testing.AllocsPerRun(100, func() { s.Wake("no cursor waits for it") }); n > 0 {
		t.Errorf("it took %v allocations", n)
	}
}

// TestGathering: a change that many wait for comes up to two milliseconds behind the one
// before, and at once when there was none, or few wait.
func TestGathering(t *testing.T) {
	for _, c := range []struct {
		cursors int
		want    time.Duration
	}{{10, 0}, {50, time.Millisecond}, {300, 2 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			s := storetest.Open(t, store.Options{Log: memlog.New()})
			times := make(chan time.Time, 3)
			for i := range c.cursors {
				cursor, err := s.Watch("pods", "", s.Any().Revision())
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					defer cursor.Close()
					buf := make([]*store.Change, 1)
					for range 3 {
						if _, err := storetest.Next(t.Context(), cursor, buf); err != nil {
							t.Error(err)
						}
						if i == 0 {
							times <- time.Now()
						}
					}
				}()
			}
			for i, want := range []time.Duration{0, c.want, 0} {
				synctest.Wait()
				if i == 2 {
					time.Sleep(10 * time.Millisecond)
				}
				begin := time.Now()
				storetest.MustCommit(t, s, storetest.Write(fmt.Sprintf("ns/%d", i), 0))
				if got := (<-times).Sub(begin); got != want {
					t.Errorf("change %d came to one of %d cursors after %v, want %v", i, c.cursors, got, want)
				}
			}
			synctest.Wait()
		})
	}
}

// TestRoundToCome: of many readers, one that comes back for more while the next round is
// due waits for it, and gets all changes since then at once; of few, it goes on by itself.
func TestRoundToCome(t *testing.T) {
	for n, gathered := range map[int]bool{4: false, 40: true} {
		t.Run(fmt.Sprint(n, " readers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := storetest.Open(t, store.Options{Log: memlog.New()})
				cursors := make([]*store.Cursor, n)
				for i := range cursors {
					c, err := s.Watch("pods", "", s.Any().Revision())
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					cursors[i] = c
				}
				var waiting sync.WaitGroup
				for _, c := range cursors {
					waiting.Go(c.Wait)
				}
				commit := func(key string) {
					if _, err := s.Commit(t.Context(), storetest.Write(key, 0)); err != nil {
						t.Error(err)
					}
				}
				c, buf := cursors[0], make([]*store.Change, 4)
				read := func() int {
					n, err := c.TryNext(t.Context(), buf)
					if err != nil {
						t.Error(err)
					}
					return n
				}
				synctest.Wait()
				commit("ns/a")
				waiting.Wait()
				if got := read(); got != 1 {
					t.Errorf("%d changes, want 1", got)
				}
				commit("ns/b")
				begin := time.Now()
				var waited time.Duration
				waiting.Go(func() { c.Wait(); waited = time.Since(begin) })
				synctest.Wait()
				commit("ns/c")
				waiting.Wait()
				if got := read(); got != 2 || gathered != (waited > 0) {
					t.Errorf("%d changes after %v", got, waited)
				}
			})
		})
	}
}
