package sharedmem_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// world is some stores on one log.
type world struct {
	*testing.T
	log     *sharedmem.Log
	members []*sharedmem.Member
	stores  []*store.Store
	fatal   []error // reported by each store
}

// newWorld opens some stores on an empty log, in a bubble.
func newWorld(t *testing.T, stores int) *world {
	w := &world{T: t, log: sharedmem.New(testrand.New(t), 95, sharedmem.Faults{}), fatal: make([]error, stores)}
	for i := range stores {
		w.members = append(w.members, w.log.Open())
		w.stores = append(w.stores, storetest.Open(t, store.Options{Shared: w.members[i], OnFatal: func(err error) { w.fatal[i] = err }}))
	}
	return w
}

func write(collection, key, text string, condition store.Revision) store.Write {
	head := fmt.Sprintf(`{"text":%q,"rv":"`, text)
	return store.Write{Collection: collection, Key: key, Value: []byte(head + `"}`), RevisionAt: len(head), If: condition}
}

func (w *world) commit(s int, one store.Write) *store.Object {
	w.Helper()
	o, err := w.stores[s].Commit(w.Context(), one)
	if err != nil {
		w.Fatalf("store %d, %s: %v", s, one.Key, err)
	}
	return o
}

// later runs a call, which must not end before it is let go.
func later[T any](w *world, call func() (T, error)) (wait func() (T, error)) {
	var got T
	var err error
	var done sync.WaitGroup
	ended := false
	done.Go(func() {
		got, err = call()
		ended = true
	})
	synctest.Wait()
	if ended {
		w.Errorf("a call ended early: %v, %v", got, err)
	}
	return func() (T, error) {
		done.Wait()
		return got, err
	}
}

// TestResponsesWait: a store that is behind neither acknowledges nor refuses, and has no most recent
// state. Then all responses are right.
func TestResponsesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.commit(0, write("pods", "ns/a", "one", 0))
		gone := w.commit(0, write("pods", "ns/gone", "one", 0))
		synctest.Wait()
		w.members[1].Pause()
		a2 := w.commit(0, write("pods", "ns/a", "two", a.Modified))
		b := w.commit(0, write("pods", "ns/b", "one", 0))
		w.commit(0, store.Write{Collection: "pods", Key: "ns/gone", If: gone.Modified})
		behind := w.stores[1]
		commit := func(one store.Write) func() (*store.Object, error) {
			return later(w, func() (*store.Object, error) { return behind.Commit(t.Context(), one) })
		}
		created := commit(write("pods", "ns/c", "one", 0))
		updated := commit(write("pods", "ns/b", "two", b.Modified))    // there, but not here
		again := commit(write("pods", "ns/gone", "two", 0))            // here, but not there
		conflict := commit(write("pods", "ns/a", "three", a.Modified)) // the log refuses it
		missing := commit(write("pods", "ns/x", "one", 7))             // in no state
		recent := later(w, func() (*store.State, error) { return behind.MostRecent(t.Context()) })
		notOlder := later(w, func() (*store.State, error) { return behind.NotOlderThan(t.Context(), b.Modified, time.Hour) })
		if _, err := behind.NotOlderThan(t.Context(), a.Modified, 0); err != nil {
			t.Errorf("a revision that is published: %v", err)
		}
		w.members[1].Resume()
		for _, c := range []struct {
			what string
			wait func() (*store.Object, error)
			want error
		}{{"create", created, nil}, {"update", updated, nil}, {"create again", again, nil}, {"conflict", conflict, store.ErrConflict}, {"missing", missing, store.ErrNotFound}} {
			o, err := c.wait()
			if !errors.Is(err, c.want) || err == nil && behind.Any().Get("pods", o.Key) != o {
				t.Errorf("%s: %v, %v", c.what, o, err)
			}
		}
		if s, err := recent(); err != nil || s.Get("pods", "ns/a").Modified < a2.Modified || s.Get("pods", "ns/b") == nil {
			t.Errorf("the most recent state: %v", err)
		}
		if s, err := notOlder(); err != nil || s.Revision() < b.Modified {
			t.Errorf("not older than %d: %v", b.Modified, err)
		}
	})
}

// TestBarrierShared: readers that wait at once share the calls of Head, and one that comes during a
// call does not share it.
func TestBarrierShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{Delay: time.Second})
		member := log.Open()
		s := storetest.Open(t, store.Options{Shared: member})
		var readers sync.WaitGroup
		for range 100 {
			readers.Go(func() {
				if _, err := s.MostRecent(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		readers.Wait()
		if n := member.Heads(); n > 2 {
			t.Errorf("100 readers at once made %d calls", n)
		}
	})
}

// TestBarrierPause: clients that read again and again come together, and a client that is alone waits for no other.
func TestBarrierPause(t *testing.T) {
	const reads, delay, think = 50, time.Millisecond, 300 * time.Microsecond
	synctest.Test(t, func(t *testing.T) {
		if heads, took := readAgain(t, 1, reads, delay, think); heads != reads || took > reads*(2*delay+think) {
			t.Errorf("one client made %d calls for %d reads, in %v", heads, reads, took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		const clients, together = 16, 10
		heads, took := readAgain(t, clients, reads, delay, think)
		if heads > clients*reads/together {
			t.Errorf("%d clients made %d calls for %d reads, want %d reads in each", clients, heads, clients*reads, together)
		}
		// They wait for each other, and not for the end of a pause.
		if most := reads * (delay + delay + think); took > most {
			t.Errorf("%d clients took %v for %d reads each, want %v at most", clients, took, reads, most)
		}
	})
}

// readAgain has clients read the most recent state of a log with a delay, each with pauses of up to think between its
// reads. It returns how many calls of Head that took, and how long.
func readAgain(t *testing.T, clients, reads int, delay, think time.Duration) (heads int, took time.Duration) {
	member := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{Delay: delay}).Open()
	s := storetest.Open(t, store.Options{Shared: member})
	chance := testrand.New(t)
	before, began := member.Heads(), time.Now()
	var running sync.WaitGroup
	for range clients {
		pauses := make([]time.Duration, reads)
		for i := range pauses {
			pauses[i] = time.Duration(chance.Int64N(int64(think)))
		}
		running.Go(func() {
			for _, pause := range pauses {
				time.Sleep(pause)
				if _, err := s.MostRecent(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	return member.Heads() - before, time.Since(began)
}

// TestBarrierEnds: readers who do not return delay the others by one pause at most.
func TestBarrierEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay, pause = time.Millisecond, 2 * time.Millisecond
		s := storetest.Open(t, store.Options{Shared: sharedmem.New(testrand.New(t), 95, sharedmem.Faults{Delay: delay}).Open()})
		read := func(ctx context.Context) time.Duration {
			began := time.Now()
			if _, err := s.MostRecent(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		for range 10 {
			gone, leave := context.WithCancel(t.Context())
			var crowd sync.WaitGroup
			for range 20 {
				crowd.Go(func() { read(t.Context()) })
				crowd.Go(func() { read(gone) })
			}
			synctest.Wait()
			leave()
			crowd.Wait()
			for range 3 {
				if took := read(t.Context()); took > pause+2*delay {
					t.Errorf("a reader after a crowd waits for %v", took)
				}
			}
		}
	})
}

// TestInFlight: writes under way are limited, in transactions and in bytes.
func TestInFlight(t *testing.T) {
	for _, c := range []struct{ size, most int }{{0, 512}, {10 << 20, 6}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.members[0].Pause()
			var writers sync.WaitGroup
			one := func(i int) store.Write {
				o := write("pods", fmt.Sprint("ns/", i), "", 0)
				o.Value = append(o.Value, make([]byte, c.size)...)
				return o
			}
			for i := range c.most {
				writers.Go(func() {
					if _, err := w.stores[0].Commit(t.Context(), one(i)); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
			if _, err := w.stores[0].Commit(t.Context(), one(c.most)); !errors.Is(err, store.ErrOverloaded) {
				t.Errorf("write %d of %d bytes: %v", c.most, c.size, err)
			}
			w.members[0].Resume()
			writers.Wait()
			w.commit(0, one(c.most))
		})
	}
}

// TestUnreachable: while the log cannot be reached, writes and reads of the most recent state fail as
// such, and others go on.
func TestUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		a := w.commit(0, write("pods", "ns/a", "one", 0))
		w.members[0].Cut(true)
		down := new(*store.UnavailableError)
		if _, err := w.stores[0].Commit(t.Context(), write("pods", "ns/b", "one", 0)); !errors.As(err, down) {
			t.Errorf("a write: %v", err)
		}
		if _, err := w.stores[0].Commit(t.Context(), write("pods", "ns/a", "two", 0)); !errors.As(err, down) {
			t.Errorf("a write that the state refuses, unconfirmed: %v", err)
		}
		if _, err := w.stores[0].MostRecent(t.Context()); !errors.As(err, down) {
			t.Errorf("the most recent state: %v", err)
		}
		if w.stores[0].Any().Get("pods", "ns/a") != a {
			t.Error("the state is gone")
		}
		w.members[0].Cut(false)
		w.commit(0, write("pods", "ns/b", "one", 0))
		w.members[0].Pause()
		w.log.Foreign(1)
		began := time.Now()
		if _, err := w.stores[0].MostRecent(t.Context()); !errors.As(err, down) || time.Since(began) > time.Minute {
			t.Errorf("a store whose follower hangs: %v after %v", err, time.Since(began))
		}
		w.members[0].Resume()
	})
}

// TestReset: a log that went back ends the process, whether Follow or a barrier sees it first.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.commit(0, write("pods", "ns/a", "one", 0))
		w.commit(0, write("pods", "ns/a", "two", a.Modified))
		synctest.Wait()
		w.members[1].Pause()
		late := later(w, func() (*store.Object, error) { return w.stores[1].Commit(t.Context(), write("pods", "ns/b", "one", 0)) })
		w.log.Restore(a.Modified)
		if _, err := w.stores[1].MostRecent(t.Context()); !errors.Is(err, store.ErrReset) {
			t.Errorf("a read of a log that went back: %v", err)
		}
		if _, err := late(); !errors.Is(err, store.ErrReset) {
			t.Errorf("a write under way: %v", err)
		}
		synctest.Wait()
		for i, s := range w.stores {
			if !errors.Is(w.fatal[i], store.ErrReset) {
				t.Errorf("store %d reported %v", i, w.fatal[i])
			}
			if _, err := s.Commit(t.Context(), write("pods", "ns/c", "one", 0)); !errors.Is(err, store.ErrReset) {
				t.Errorf("a write to store %d: %v", i, err)
			}
			if err := s.Close(); err != nil { // unchecked: the log has another state
				t.Error(err)
			}
		}
	})
}

// TestOvertaken: compaction overtakes Follow. The store loads again; cursors are expired, and a write under way gets its
// response.
func TestOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := w.commit(0, write("pods", "ns/a", "one", 0))
		b := w.commit(0, write("pods", "ns/b", "one", 0))
		w.commit(0, write("nodes", "n", "one", 0))
		synctest.Wait()
		s := w.stores[1]
		at := s.Any().Revision()
		pods, nodes := watch(w, s, "pods", at), watch(w, s, "nodes", at)
		lagging := watch(w, s, "nodes", at-1)
		feed, err := s.Feed(at)
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		held := s.Hold(t.Context(), "pods")
		defer held.Close()
		w.members[1].Pause()
		a2 := w.commit(0, write("pods", "ns/a", "two", a.Modified))
		w.commit(0, store.Write{Collection: "pods", Key: "ns/b", If: b.Modified})
		own := later(w, func() (*store.Object, error) { return s.Commit(t.Context(), write("pods", "ns/c", "mine", 0)) })
		deleted := later(w, func() (*store.Object, error) {
			return s.Commit(t.Context(), store.Write{Collection: "pods", Key: "ns/a", If: a2.Modified})
		})
		w.log.Foreign(3)
		w.log.Compact(w.log.Head())
		w.members[1].Cut(true) // the first attempts to load fail
		w.members[1].Resume()
		time.Sleep(time.Second)
		w.members[1].Cut(false)
		c, err := own()
		if err != nil || c.Key != "ns/c" || c.Created != c.Modified {
			t.Errorf("a write under way: %v, %v", c, err)
		}
		if _, err := deleted(); !errors.Is(err, store.ErrUnknown) && err != nil {
			var down *store.UnavailableError
			if !errors.As(err, &down) {
				t.Errorf("a deletion under way: %v", err)
			}
		}
		state, err := s.MostRecent(t.Context())
		if err != nil || state.Get("pods", "ns/b") != nil || state.Get("pods", "ns/c") == nil || state.Get("nodes", "n") == nil {
			t.Errorf("the state after loading: %v", err)
		}
		expired := new(*store.ExpiredError)
		buf := make([]*store.Change, 4)
		if n, err := pods.TryNext(t.Context(), buf); n != 0 || !errors.As(err, expired) {
			t.Errorf("a watch of what changed: %d, %v", n, err)
		}
		if n, err := lagging.TryNext(t.Context(), buf); n != 0 || !errors.As(err, expired) {
			t.Errorf("a watch that had not read all: %d, %v", n, err)
		}
		if _, err := feed.TryNext(t.Context(), make([]store.CollectionChange, 4)); !errors.As(err, expired) {
			t.Errorf("a feed: %v", err)
		}
		if n, err := nodes.TryNext(t.Context(), buf); n != 0 || !errors.As(err, expired) {
			t.Errorf("a watch of what did not change: %d, %v", n, err)
		}
		nodes = watch(w, s, "nodes", state.Revision())
		w.commit(0, write("nodes", "m", "one", 0))
		synctest.Wait()
		if n, err := nodes.TryNext(t.Context(), buf); n != 1 || err != nil || buf[0].Key() != "m" {
			t.Errorf("what follows: %d, %v", n, err)
		}
		if _, err := s.Watch("pods", "", at); !errors.As(err, expired) {
			t.Errorf("a watch from before: %v", err)
		}
		if _, err := s.Exact(t.Context(), "pods", at, 0); !errors.As(err, expired) {
			t.Errorf("a state from before: %v", err)
		}
	})
}

// TestOvertakenUnseen: an object that was created and deleted while compaction overtook Follow is in the states and watches
// that begin within that time, if the log has it. Watches from before are expired, also those of collections that are as
// they were.
func TestOvertakenUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.commit(0, write("pods", "ns/a", "one", 0))
		w.commit(0, write("secrets", "ns/s", "one", 0))
		synctest.Wait()
		s := w.stores[1]
		at := s.Any().Revision()
		before := watch(w, s, "secrets", at)
		held := s.Hold(t.Context(), "secrets")
		defer held.Close()
		w.members[1].Pause()
		collections := []string{"secrets", "new"} // s knows none with that name
		created := map[string]*store.Object{}
		for _, c := range collections {
			created[c] = w.commit(0, write(c, "ns/x", "one", 0))
		}
		ahead := watch(w, s, "secrets", created["new"].Modified)
		w.log.Compact(created["new"].Modified)
		deleted := map[string]store.Revision{}
		for _, c := range collections {
			deleted[c] = w.commit(0, store.Write{Collection: c, Key: "ns/x", If: created[c].Modified}).Modified
		}
		w.log.Foreign(3)
		w.members[1].Resume()
		synctest.Wait()
		if _, err := s.MostRecent(t.Context()); err != nil {
			t.Fatal(err)
		}
		buf := make([]*store.Change, 4)
		expired := new(*store.ExpiredError)
		if n, err := before.TryNext(t.Context(), buf); n != 0 || !errors.As(err, expired) {
			t.Errorf("a watch from before: %d, %v", n, err)
		}
		if n, err := ahead.TryNext(t.Context(), buf); n != 1 || err != nil || buf[0].After != nil || buf[0].Revision != deleted["secrets"] {
			t.Errorf("a watch that was ahead: %d, %v", n, err)
		}
		for _, c := range collections {
			from := created["new"].Modified
			if n, err := watch(w, s, c, from).TryNext(t.Context(), buf); n != 1 || err != nil || buf[0].After != nil || buf[0].Revision != deleted[c] {
				t.Errorf("a watch of %s after %d: %d, %v", c, from, n, err)
			}
			v, err := s.Exact(t.Context(), c, from, 0)
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for o, err := range v.Scan("", "") {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, o.Key)
			}
			if v.Close(); !slices.Contains(keys, "ns/x") {
				t.Errorf("%s at %d are %v", c, from, keys)
			}
		}
		// A list under way goes on: its collection is as it was.
		for o, err := range held.Scan("", "") {
			if err != nil || o.Key != "ns/s" {
				t.Errorf("a list under way: %v, %v", o, err)
			}
		}
		w.commit(0, write("secrets", "ns/z", "one", 0))
		synctest.Wait()
		for r := at + 1; r <= s.Any().Revision(); r++ { // from trees in memory and from the log
			if v, err := s.Exact(t.Context(), "secrets", r, 0); err == nil {
				v.Close()
			} else if !errors.As(err, expired) || r >= created["new"].Modified {
				t.Errorf("secrets at %d: %v", r, err)
			}
		}
	})
}

func watch(w *world, s *store.Store, collection string, after store.Revision) *store.Cursor {
	c, err := s.Watch(collection, "", after)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(c.Close)
	return c
}

// TestFloor: changes that the log has compacted stay readable in memory, those that left memory stay readable in
// the log, and those that both have lost are expired.
func TestFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		s := storetest.Open(t, store.Options{Shared: log.Open(), Retention: time.Minute})
		revisions := []store.Revision{s.Any().Revision()}
		commit := func(n int) {
			for range n {
				o, err := s.Commit(t.Context(), write("pods", fmt.Sprint("ns/", len(revisions)), "", 0))
				if err != nil {
					t.Fatal(err)
				}
				revisions = append(revisions, o.Modified)
			}
		}
		check := func(first int) {
			t.Helper()
			if floor, _ := s.Bounds(); floor != revisions[first] {
				t.Errorf("the floor is %d, want %d", floor, revisions[first])
			}
			for i, r := range revisions {
				v, err := s.Exact(t.Context(), "pods", r, 0)
				if expired := (*store.ExpiredError)(nil); i < first && errors.As(err, &expired) {
					continue
				}
				if err != nil || i < first {
					t.Fatalf("revision %d of %d: %v", i, len(revisions), err)
				}
				n := 0
				for _, err := range v.Scan("", "") {
					if err != nil {
						t.Fatalf("scan at revision %d: %v", i, err)
					}
					n++
				}
				if v.Close(); n != i {
					t.Errorf("%d objects at revision %d", n, i)
				}
			}
		}
		commit(10)
		log.Compact(revisions[5])
		synctest.Wait()
		check(0) // in memory
		time.Sleep(2 * time.Minute)
		check(5) // in the log
		commit(5)
		log.Compact(revisions[12])
		synctest.Wait()
		check(10) // in memory since the tenth
	})
}

// TestForeignRevisions: writes of other clients under other keys move the revision, and wake no cursor.
func TestForeignRevisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		s := w.stores[0]
		c := watch(w, s, "pods", s.Any().Revision())
		w.log.Foreign(10)
		synctest.Wait()
		if s.Any().Revision() != 105 || c.Ready() || c.Revision() != 105 {
			t.Errorf("the store is at %d, the cursor at %d", s.Any().Revision(), c.Revision())
		}
		if o := w.commit(0, write("pods", "ns/a", "", 0)); o.Modified != 106 {
			t.Errorf("a write has the revision %d", o.Modified)
		}
	})
}

// TestOrigin: a store knows the origin of its own writes, and of others the time at which it read them.
func TestOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		c := watch(w, w.stores[0], "pods", 95)
		one := write("pods", "ns/a", "", 0)
		one.Origin = &store.Origin{Verb: store.VerbCreate, Actor: &store.Actor{User: "alice"}}
		a := w.commit(0, one)
		w.commit(1, write("pods", "ns/a", "two", a.Modified))
		synctest.Wait()
		buf := make([]*store.Change, 3)
		if n, err := c.TryNext(t.Context(), buf); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if o := buf[0].Origin(); o.Verb != store.VerbCreate || o.Actor.User != "alice" || o.Time.IsZero() {
			t.Errorf("an own write: %+v", o)
		}
		if o := buf[1].Origin(); o != (store.Origin{Time: o.Time}) || !o.Time.Equal(time.Now()) {
			t.Errorf("a write of another store: %+v", o)
		}
	})
}

// TestQuota: the quota bounds the objects that this store adds.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.stores[0].SetQuota(10_000)
		large := write("pods", "ns/a", "", 0)
		large.Value = append(large.Value, make([]byte, 20_000)...)
		if _, err := w.stores[0].Commit(t.Context(), large); !errors.As(err, new(*store.QuotaError)) {
			t.Errorf("a large write: %v", err)
		}
		w.commit(0, write("pods", "ns/a", "", 0))
	})
}

// TestCloseUnderWay: Close ends a write whose revision is not published in time. Its outcome is not known.
func TestCloseUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.members[0].Pause()
		late := later(w, func() (*store.Object, error) {
			return w.stores[0].Commit(context.Background(), write("pods", "ns/a", "", 0))
		})
		if err := w.stores[0].Close(); err != nil {
			t.Error(err)
		}
		if _, err := late(); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a write under way: %v", err)
		}
	})
}

// wrong is a Shared that sends a batch of its own after the first one.
type wrong struct {
	*sharedmem.Member
	batch store.Batch
}

func (s wrong) Follow(context.Context, store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) { yield(s.batch, nil) }
}

// TestWrongBatch: a batch that is not in order ends the store instead of its history.
func TestWrongBatch(t *testing.T) {
	entry := func(r, modified store.Revision) store.Entry {
		return store.Entry{Collection: "pods", Key: "a", Revision: r, Object: &store.Object{Key: "a", Held: []byte(fmt.Sprint(modified)), Created: 1, Modified: modified}}
	}
	for what, b := range map[string]store.Batch{
		"back":          {Through: 90},
		"old":           {Through: 97, Entries: []store.Entry{entry(95, 95)}},
		"beyond":        {Through: 97, Entries: []store.Entry{entry(98, 98)}},
		"not in order":  {Through: 99, Entries: []store.Entry{entry(98, 98), entry(97, 97)}},
		"not its own":   {Through: 97, Entries: []store.Entry{entry(97, 96)}},
		"no more of it": {Through: 97, Entries: []store.Entry{entry(97, 97)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
			var fatal error
			s, err := stores.Open(t.Context(), store.Options{Shared: wrong{log.Open(), b}, OnFatal: func(err error) { fatal = err }})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if fatal == nil || slices.Contains([]string{"back", "old", "beyond", "not in order", "not its own"}, what) && s.Any().Revision() != 95 {
				t.Errorf("%s: %v, at %d", what, fatal, s.Any().Revision())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// breaking is a Shared whose reads of changes fail after a few.
type breaking struct {
	*sharedmem.Member
	after int
}

var errBroken = errors.New("the read broke")

func (s *breaking) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for e, err := range s.Member.Changes(ctx, collection, after, upTo) {
			if n++; n > s.after {
				yield(store.Entry{}, errBroken)
				return
			}
			if !yield(e, err) {
				return
			}
		}
		if n == s.after {
			yield(store.Entry{}, errBroken)
		}
	}
}

// TestReadBreaks: a cursor and a feed return no part of a revision when a read from the log breaks off within it, and
// go on with it afterwards.
func TestReadBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(0, write("pods", "a", "", 0))
		three := []store.Write{write("pods", "b", "", 0), write("pods", "c", "", 0), write("pods", "d", "", 0)}
		made, err := w.stores[0].Apply(t.Context(), &store.Txn{Writes: three})
		if err != nil {
			t.Fatal(err)
		}
		end := made[0].Modified
		w.commit(0, write("pods", "e", "", 0))
		for n := range 6 {
			broken := &breaking{w.log.Open(), n}
			s := storetest.Open(t, store.Options{Shared: broken}) // all changes are in the log alone
			c, err := s.Watch("pods", "", 95)
			if err != nil {
				t.Fatal(err)
			}
			f, err := s.Feed(95)
			if err != nil {
				t.Fatal(err)
			}
			whole := []int{0, 0, 1, 1, 1, 4}[n] // whether the revision goes on is not known
			changes, all := make([]*store.Change, 10), make([]store.CollectionChange, 10)
			got, err := c.TryNext(t.Context(), changes)
			fed, _ := f.TryNext(t.Context(), all)
			if got != whole || fed != got || got == 0 && !errors.Is(err, errBroken) || !c.Whole() {
				t.Errorf("broken after %d: %d changes, the feed %d, %v", n, got, fed, err)
			}
			if at := c.Revision(); got < 4 && at >= end {
				t.Errorf("broken after %d: the cursor is at %d, and the revision %d was not read", n, at, end)
			}
			broken.after = 10
			rest, err := c.TryNext(t.Context(), changes)
			if err != nil || got+rest != 5 {
				t.Errorf("broken after %d: then %d of %d, %v", n, rest, 5-got, err)
			}
			if rest, err := f.TryNext(t.Context(), all); err != nil || fed+rest != 5 {
				t.Errorf("broken after %d: then the feed has %d of %d, %v", n, rest, 5-fed, err)
			}
			c.Close()
			f.Close()
		}
	})
}

// TestHeadHangs: a read of the most recent state does not wait for a response for ever, nor beyond its
// context, and one that does not come holds up no later one.
func TestHeadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{Delay: 1000 * time.Hour})
		s, err := stores.Open(t.Context(), store.Options{Shared: log.Open()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.MostRecent(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read with a context of a second: %v", err)
		}
		began, down := time.Now(), new(*store.UnavailableError)
		for range 3 {
			if _, err := s.MostRecent(t.Context()); !errors.As(err, down) {
				t.Errorf("a read that gets no response: %v", err)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("three reads that get no response take %v", took)
		}
	})
}

// overtaken is a Shared whose first loads are overtaken by compaction, after they have loaded a part.
type overtaken struct {
	*sharedmem.Member
	loads *int
}

func (s overtaken) Load(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	*s.loads--
	if *s.loads < 0 {
		return s.Member.Load(ctx, load)
	}
	if err := load("pods", &store.Object{Key: "old", Created: 1, Modified: 1}); err != nil {
		return store.Bounds{}, err
	}
	return store.Bounds{}, &store.ExpiredError{Revision: 95, Floor: 96}
}

// TestOpenOvertaken: a store whose load is overtaken by compaction loads again, and gives up at some time.
func TestOpenOvertaken(t *testing.T) {
	for _, overtakenLoads := range []int{3, 1000} {
		synctest.Test(t, func(t *testing.T) {
			log, loads := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{}), overtakenLoads
			s, err := stores.Open(t.Context(), store.Options{Shared: overtaken{log.Open(), &loads}})
			if expired := (*store.ExpiredError)(nil); overtakenLoads == 1000 {
				if !errors.As(err, &expired) {
					t.Errorf("got %v, want an ExpiredError", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if o := s.Any().Get("pods", "old"); o != nil {
				t.Errorf("the store has %v of a load that failed", o)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// encrypted is a Shared that cannot read the objects with some keys.
type encrypted struct {
	*sharedmem.Member
	mu   sync.Mutex
	keys []string
}

func (s *encrypted) hides(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.keys, key)
}

func (s *encrypted) decrypt(keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = slices.DeleteFunc(s.keys, func(key string) bool { return slices.Contains(keys, key) })
}

func (s *encrypted) seen(o *store.Object) *store.Object {
	if o != nil && s.hides(o.Key) {
		return store.NewUnreadable(o.Key, o.Created, o.Modified, "the key is missing")
	}
	return o
}

func (s *encrypted) Load(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	return s.Member.Load(ctx, func(collection string, o *store.Object) error { return load(collection, s.seen(o)) })
}

func (s *encrypted) Follow(ctx context.Context, after store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		for b, err := range s.Member.Follow(ctx, after) {
			for i := range b.Entries {
				b.Entries[i].Object = s.seen(b.Entries[i].Object)
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func (s *encrypted) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for o, err := range s.Member.ObjectsAt(ctx, collection, at, prefix, after) {
			if err == nil && s.hides(o.Key) {
				yield(nil, errors.New("the key is missing"))
				return
			}
			if !yield(o, err) {
				return
			}
		}
	}
}

// TestHealed: an object that could not be read is there when its value can be read, without a new revision. Cursors of its
// collection are expired; others go on.
func TestHealed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(0, write("secrets", "ns/a", "one", 0))
		b := w.commit(0, write("secrets", "ns/b", "one", 0))
		old := w.commit(0, write("pods", "ns/p", "one", 0))
		shared := &encrypted{Member: w.log.Open(), keys: []string{"ns/a", "ns/b", "ns/c"}}
		s := storetest.Open(t, store.Options{Shared: shared})
		for i := range 30 { // no stand-in of the first page of anything
			w.commit(0, write("secrets", fmt.Sprint("ns/x", i), "one", 0))
		}
		c := w.commit(0, write("secrets", "ns/c", "one", 0))
		p := w.commit(0, write("pods", "ns/p", "two", old.Modified))
		synctest.Wait()
		at := s.Any().Revision()
		secrets, behind := watch(w, s, "secrets", at), watch(w, s, "secrets", b.Modified)
		pods, podsBehind := watch(w, s, "pods", at), watch(w, s, "pods", old.Modified)
		held := s.Hold(t.Context(), "secrets")
		defer held.Close()
		buf := make([]*store.Change, 100)
		readable := func(what string, want ...bool) {
			t.Helper()
			for i, key := range []string{"ns/a", "ns/b", "ns/c"} {
				if is := s.Any().Get("secrets", key).Unreadable() == ""; is != want[i] {
					t.Errorf("%s: %s is readable: %v", what, key, is)
				}
			}
		}
		time.Sleep(time.Minute)
		readable("before", false, false, false)
		if !s.HasUnreadable() {
			t.Error("nothing is unreadable")
		}
		shared.decrypt("ns/a", "ns/c")
		time.Sleep(time.Minute)
		readable("after a minute", true, false, true)
		if got := s.Any().Revision(); got != at || s.Any().Get("secrets", "ns/c").Modified != c.Modified {
			t.Errorf("the state is at %d, want %d", got, at)
		}
		expired := new(*store.ExpiredError)
		for _, cursor := range []*store.Cursor{secrets, behind} {
			if n, err := cursor.TryNext(t.Context(), buf); n != 0 || !errors.As(err, expired) {
				t.Errorf("a watch of the collection: %d, %v", n, err)
			}
		}
		if n, err := pods.TryNext(t.Context(), buf); n != 0 || err != nil {
			t.Errorf("a watch of another collection: %d, %v", n, err)
		}
		if n, err := podsBehind.TryNext(t.Context(), buf); n != 1 || err != nil || buf[0].Revision != p.Modified {
			t.Errorf("a watch of another collection that has not read all: %d, %v", n, err)
		}
		if n, err := watch(w, s, "secrets", b.Modified).TryNext(t.Context(), buf); n != 31 || err != nil || buf[30].After.Unreadable() != "" {
			t.Errorf("a watch from before: %d, %v", n, err)
		}
		count := 0
		for o, err := range held.Scan("ns/c", "") { // a list under way goes on from the log
			if count++; err != nil || o.Unreadable() != "" {
				t.Errorf("a list under way: %v, %v", o, err)
			}
		}
		if count != 1 {
			t.Errorf("a list under way has %d objects, want 1", count)
		}
		shared.decrypt("ns/b")
		time.Sleep(time.Minute)
		readable("in the end", true, true, true)
		if s.HasUnreadable() {
			t.Error("the store still has what cannot be read")
		}
		w.commit(0, write("secrets", "ns/c", "two", c.Modified))
		synctest.Wait()
		for r := b.Modified; r <= s.Any().Revision(); r++ {
			v, err := s.Exact(t.Context(), "secrets", r, 0)
			if err != nil {
				t.Fatalf("secrets at %d: %v", r, err)
			}
			for o, err := range v.Scan("", "") {
				if err != nil || o.Unreadable() != "" {
					t.Errorf("secrets at %d: %v, %v", r, o, err)
				}
			}
			v.Close()
		}
	})
}

// TestUnreadableInHistory: HasUnreadable reports a stand-in that only the history has, because its object was deleted.
func TestUnreadableInHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		start := w.commit(0, write("secrets", "ns/a", "one", 0)).Modified
		shared := &encrypted{Member: w.log.Open(), keys: []string{"ns/b"}}
		s := storetest.Open(t, store.Options{Shared: shared})
		b := w.commit(0, write("secrets", "ns/b", "one", 0))
		w.commit(0, store.Write{Collection: "secrets", Key: "ns/b", If: b.Modified})
		synctest.Wait()
		time.Sleep(time.Minute)
		buf := make([]*store.Change, 10)
		n, err := watch(w, s, "secrets", start).TryNext(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range buf[:n] {
			if !s.HasUnreadable() && (c.After.Unreadable() != "" || c.Before.Unreadable() != "") {
				t.Errorf("a watch gets a stand-in of %s at revision %d, and nothing is unreadable", c.Key(), c.Revision)
			}
		}
	})
}

// TestHealedFeed: a feed, by which controllers follow the store, does not pass over an object that can be read again.
func TestHealedFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(0, write("secrets", "ns/a", "one", 0))
		shared := &encrypted{Member: w.log.Open(), keys: []string{"ns/a"}}
		s := storetest.Open(t, store.Options{Shared: shared})
		f, err := s.Feed(s.Any().Revision())
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		shared.decrypt("ns/a")
		time.Sleep(time.Minute)
		if s.Any().Get("secrets", "ns/a").Unreadable() != "" {
			t.Fatal("the object cannot be read")
		}
		if n, err := f.TryNext(t.Context(), make([]store.CollectionChange, 10)); n == 0 && err == nil {
			t.Error("the feed goes on, and its reader keeps the stand-in")
		}
	})
}
