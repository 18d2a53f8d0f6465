package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// SharedMedium is an empty log that several stores share.
type SharedMedium struct {
	// Open opens the log for one more store.
	Open func(t testing.TB) store.Shared
	// Expire deletes objects in one revision, as the end of a lease does, and returns it. Those
	// that are not there are left out. Nil: the medium cannot.
	Expire func(collection string, keys ...string) store.Revision
	// Settle returns when no write of unknown outcome is under way any more. Nil: there are none.
	Settle func()
	// Separate reports that each change of a transaction has a revision of its own; see Decision.First.
	Separate bool
}

// RunShared runs the suite for stores on a Shared; each test gets a medium of its own. The function
// in runs a test, for example in a bubble of testing/synctest; nil: as it is.
func RunShared(t *testing.T, medium func(*testing.T) SharedMedium, in func(*testing.T, func(*testing.T))) {
	if in == nil {
		in = func(t *testing.T, test func(*testing.T)) { test(t) }
	}
	for _, test := range []struct {
		name string
		run  func(*testing.T, SharedMedium)
	}{
		{"Conditions", testSharedConditions},
		{"Transactions", testSharedTransactions},
		{"Claims", testSharedClaims},
		{"Together", testSharedTogether},
		{"MostRecent", testSharedMostRecent},
		{"Expire", testSharedExpire},
		{"Restart", testSharedRestart},
		{"Model", RunSharedModel},
	} {
		t.Run(test.name, func(t *testing.T) { in(t, func(t *testing.T) { test.run(t, medium(t)) }) })
	}
}

// retry repeats a call while the log cannot be reached. Nothing was written then.
func retry[T any](f func() (T, error)) (T, error) {
	for {
		got, err := f()
		if down := (*store.UnavailableError)(nil); !errors.As(err, &down) {
			return got, err
		}
	}
}

// stores opens stores on the log.
func (m SharedMedium) stores(t testing.TB, n int) []*store.Store {
	all := make([]*store.Store, n)
	for i := range all {
		all[i] = Open(t, store.Options{Shared: m.Open(t)})
	}
	return all
}

// testSharedConditions sends each write to another store than the one before it: the responses are
// those of one store.
func testSharedConditions(t *testing.T, m SharedMedium) {
	stores := m.stores(t, 3)
	n := 0
	commit := func(w store.Write) (*store.Object, error) {
		n++
		s := stores[n%len(stores)]
		o, err := retry(func() (*store.Object, error) { return s.Commit(t.Context(), w) })
		if err == nil && s.Any().Revision() < o.Modified {
			t.Errorf("the write of %q at %d is acknowledged, and its store is at %d", w.Key, o.Modified, s.Any().Revision())
		}
		return o, err
	}
	must := func(w store.Write) *store.Object {
		o, err := commit(w)
		if err != nil {
			t.Fatalf("commit of %s %s: %v", w.Collection, w.Key, err)
		}
		return o
	}
	must(put("pods", "ns/before", "", 0))
	for range 5 {
		a := must(put("pods", "ns/a", "one", 0))
		if a.Created != a.Modified || string(a.Bytes()) != value("one", a.Modified) {
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
			if _, err := commit(c.w); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.what, err, c.want)
			}
		}
		b := must(put("pods", "ns/a", "two", a.Modified))
		if b.Created != a.Created || b.Modified <= a.Modified || string(b.Bytes()) != value("two", b.Modified) {
			t.Errorf("updated %s", text([]*store.Object{b}))
		}
		gone := must(del("pods", "ns/a", b.Modified))
		if gone.Modified <= b.Modified || gone.Created != a.Created || string(gone.Bytes()) != value("two", gone.Modified) {
			t.Errorf("deleted %s", text([]*store.Object{gone}))
		}
	}
	Close(t, stores[0])
	if _, err := stores[0].Commit(t.Context(), put("pods", "ns/z", "x", 0)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("commit after close: %v", err)
	}
	if _, err := stores[0].MostRecent(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Errorf("most recent after close: %v", err)
	}
}

// testSharedTransactions: the writes of a transaction have one revision, and of several writes of an
// object the last one is stored. On a medium that is Separate, each write has a revision of its own.
func testSharedTransactions(t *testing.T, m SharedMedium) {
	s := m.stores(t, 2)
	apply := func(s *store.Store, txn *store.Txn) ([]*store.Object, error) {
		return retry(func() ([]*store.Object, error) { return s.Apply(t.Context(), txn) })
	}
	first, err := apply(s[0], &store.Txn{Writes: []store.Write{put("pods", "ns/a", "one", 0), put("pods", "ns/b", "one", 0)}})
	if err != nil || (first[0].Modified == first[1].Modified) == m.Separate {
		t.Fatalf("%v, %v", first, err)
	}
	at, other := first[0].Modified, first[1].Modified
	next := put("pods", "ns/n", "two", 0)
	next.Next = true
	need := func(key string, at store.Revision) []store.Need {
		return []store.Need{{Collection: "pods", Key: key, Modified: at}}
	}
	for _, c := range []struct {
		what string
		t    store.Txn
		part store.TxnPart
		at   int
		want error
	}{
		{"the first write", store.Txn{Writes: []store.Write{put("pods", "ns/a", "", 0), put("pods", "ns/n", "", 0)}}, store.WritePart, 0, store.ErrExists},
		{"the last write", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0), del("pods", "ns/a", at), put("pods", "ns/b", "", other+1)}}, store.WritePart, 2, store.ErrConflict},
		{"a write of another collection", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0), del("nodes", "n", 1)}}, store.WritePart, 1, store.ErrNotFound},
		{"a need that changed", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0)}, Needs: need("ns/b", other+1)}, store.NeedPart, 0, store.ErrStale},
		{"a need that is not there", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0)}, Needs: need("ns/c", at)}, store.NeedPart, 0, store.ErrStale},
		{"a need that is there", store.Txn{Writes: []store.Write{put("pods", "ns/n", "", 0)}, Needs: need("ns/b", 0)}, store.NeedPart, 0, store.ErrStale},
	} {
		_, err := apply(s[1], &c.t)
		var failed *store.TxnError
		if !errors.As(err, &failed) || failed.Part != c.part || failed.Index != c.at || !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	made, err := apply(s[1], &store.Txn{
		Writes: []store.Write{del("pods", "ns/a", at), put("nodes", "n", "", 0), put("pods", "ns/n", "one", 0), next},
		Needs:  append(need("ns/b", other), need("ns/c", 0)...),
	})
	if err != nil || len(made) != 4 {
		t.Fatalf("%d objects, %v", len(made), err)
	}
	r := made[0].Modified
	for i, o := range made {
		if want := r + store.Revision(i); o.Modified != r && !m.Separate || o.Modified != want && m.Separate || r <= at {
			t.Errorf("write %d has the revision %d, and the first one %d", i, o.Modified, r)
		}
	}
	o := s[1].Any().Get("pods", "ns/n")
	if o != made[3] || (made[2] == made[3]) == m.Separate || o.Created != made[2].Modified || string(o.Bytes()) != value("two", o.Modified) {
		t.Errorf("stored %s", o.Bytes())
	}
	if s[1].Any().Get("pods", "ns/a") != nil || s[1].Any().Get("nodes", "n") != made[1] || string(made[0].Bytes()) != value("one", r) || !made[0].IsGone() {
		t.Error("a part of the transaction is missing")
	}
}

// testSharedClaims: of transactions that claim a name at the same state one is made, whatever
// store decides them.
func testSharedClaims(t *testing.T, m SharedMedium) {
	stores := m.stores(t, 3)
	var wg sync.WaitGroup
	var mu sync.Mutex
	owners := map[string][]store.Revision{}
	for i := range 24 {
		s, name := stores[i%3], fmt.Sprint("name-", i%4)
		wg.Go(func() {
			for {
				seen := s.Any().Revision()
				made, err := retry(func() ([]*store.Object, error) {
					return s.Apply(t.Context(), &store.Txn{
						Writes: []store.Write{put("claims", fmt.Sprint(name, "/", i), "", 0)},
						Guards: []store.Guard{{Name: name, Seen: seen, Claim: true}, {Name: "never", Seen: 0}},
					})
				})
				if errors.Is(err, store.ErrStale) {
					if s.Any().Revision() == seen {
						t.Error("stale, and there is no newer state")
						return
					}
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for _, other := range owners[name] {
					if other > seen && other < made[0].Modified {
						t.Errorf("%s was claimed at %d and again by a state of %d", name, other, seen)
					}
				}
				owners[name] = append(owners[name], made[0].Modified)
				return
			}
		})
	}
	Within(t, "the claims", wg.Wait)
}

// testSharedTogether: readers see all writes of a transaction or none.
func testSharedTogether(t *testing.T, m SharedMedium) {
	stores := m.stores(t, 3)
	const accounts, writers, transfers = 6, 6, 20
	for i := range accounts {
		if _, err := retry(func() (*store.Object, error) {
			return stores[0].Commit(t.Context(), put("accounts", fmt.Sprint(i), "100", 0))
		}); err != nil {
			t.Fatal(err)
		}
	}
	balance := func(state *store.State, i int) (n int, at store.Revision) {
		o := state.Get("accounts", fmt.Sprint(i))
		if _, err := fmt.Sscanf(string(o.Bytes()), `{"text":"%d"`, &n); err != nil {
			t.Error(err)
		}
		return n, o.Modified
	}
	check := func(state *store.State) {
		sum := 0
		for i := range accounts {
			n, _ := balance(state, i)
			sum += n
		}
		if sum != accounts*100 {
			t.Errorf("the sum at %d is %d", state.Revision(), sum)
		}
	}
	for _, s := range stores {
		if _, err := retry(func() (*store.State, error) { return s.MostRecent(t.Context()) }); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for w := range writers {
		s := stores[w%len(stores)]
		wg.Go(func() {
			for n := range transfers {
				from, to := (w+n)%accounts, (w+2*n+1)%accounts
				for from != to {
					state := s.Any()
					check(state)
					a, aAt := balance(state, from)
					b, bAt := balance(state, to)
					_, err := retry(func() ([]*store.Object, error) {
						return s.Apply(t.Context(), &store.Txn{Writes: []store.Write{
							put("accounts", fmt.Sprint(from), fmt.Sprint(a-1), aAt), put("accounts", fmt.Sprint(to), fmt.Sprint(b+1), bAt),
						}})
					})
					if err == nil || errors.Is(err, store.ErrUnknown) {
						break
					}
					if !errors.Is(err, store.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	check(stores[1].Any())
}

// testSharedMostRecent: the most recent state of a store has the writes that another one has acknowledged; and
// readers that wait at the same time share a barrier.
func testSharedMostRecent(t *testing.T, m SharedMedium) {
	stores := m.stores(t, 2)
	condition := store.Revision(0)
	for i := range 30 {
		w, r := stores[i%2], stores[(i+1)%2]
		o, err := retry(func() (*store.Object, error) {
			return w.Commit(t.Context(), put("pods", "ns/a", fmt.Sprint(i), condition))
		})
		if err != nil {
			t.Fatal(err)
		}
		condition = o.Modified
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				state, err := retry(func() (*store.State, error) { return r.MostRecent(t.Context()) })
				if err != nil || state.Revision() < o.Modified || !sameVersion(state.Get("pods", "ns/a"), o) {
					t.Errorf("%v: a read of the most recent state misses revision %d", err, o.Modified)
				}
			})
		}
		wg.Wait()
		if state, err := w.NotOlderThan(t.Context(), o.Modified, 0); err != nil || state.Revision() < o.Modified {
			t.Errorf("the store that wrote %d: %v", o.Modified, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := stores[0].MostRecent(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a read whose context ended: %v", err)
	}
	tooLarge := new(*store.TooLargeError)
	if _, err := stores[0].NotOlderThan(t.Context(), condition+1000, time.Millisecond); !errors.As(err, tooLarge) {
		t.Errorf("not older than the future: %v", err)
	}
}

// testSharedExpire deletes many objects in one revision. Cursors and feeds with buffers of all
// sizes read the revision once, in memory and from the log, and never end within it.
func testSharedExpire(t *testing.T, m SharedMedium) {
	if m.Expire == nil {
		t.Skip("the medium cannot delete several objects in one revision")
	}
	const objects = 20
	for _, memory := range []int64{0, 1} {
		s := Open(t, store.Options{Shared: m.Open(t), MaxMemory: memory})
		start := s.Any().Revision()
		var keys []string
		for i := range objects {
			key := fmt.Sprintf("%c/%02d", 'a'+i%2, i)
			keys = append(keys, key)
			if _, err := retry(func() (*store.Object, error) { return s.Commit(t.Context(), put("events", key, "x", 0)) }); err != nil {
				t.Fatal(err)
			}
		}
		r := m.Expire("events", keys...)
		if _, err := retry(func() (*store.Object, error) { return s.Commit(t.Context(), put("events", "a/after", "x", 0)) }); err != nil {
			t.Fatal(err)
		}
		if n := s.Any().Snapshot("events").Len(); n != 1 {
			t.Errorf("%d objects are left", n)
		}
		if got := exact(t, s, "events", r-1); len(got) != objects {
			t.Errorf("%d objects before they expired", len(got))
		}
		for _, size := range []int{1, 3, 7, objects / 2, objects, objects + 1, 2 * objects} {
			testWhole(t, s, start, r, "a/", size, objects/2)
			testWhole(t, s, start, r, "", size, objects)
			testWholeFeed(t, s, start, r, size, objects)
		}
		o := s.Any().Get("events", "a/after")
		if _, err := retry(func() (*store.Object, error) { return s.Commit(t.Context(), del("events", "a/after", o.Modified)) }); err != nil {
			t.Fatal(err)
		}
		Close(t, s)
	}
}

// testWhole reads a cursor through a revision r with several changes.
func testWhole(t *testing.T, s *store.Store, start, r store.Revision, prefix string, size, want int) {
	c, err := s.Watch("events", prefix, start)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	seen := map[string]bool{}
	last, buf := start, make([]*store.Change, size)
	for {
		n, err := c.TryNext(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 && !c.Ready() {
			break
		}
		for _, ch := range buf[:n] {
			if ch.Revision < last || ch.Revision == last && last != r {
				t.Fatalf("size %d: %d comes after %d", size, ch.Revision, last)
			}
			if last = ch.Revision; ch.After == nil {
				if seen[ch.Key()] {
					t.Fatalf("size %d: %s comes twice", size, ch.Key())
				}
				seen[ch.Key()] = true
			}
		}
		if n > 0 && !c.Whole() && (size > want || buf[0].Revision != r) {
			t.Fatalf("size %d: a batch from %d to %d splits a revision", size, buf[0].Revision, buf[n-1].Revision)
		}
		if at := c.Revision(); !c.Whole() && at >= r || len(seen) < want && at >= r {
			t.Fatalf("size %d: within revision %d the cursor is at %d", size, r, at)
		}
		if n == 0 {
			c.Wait()
		}
	}
	if len(seen) != want || c.Revision() != s.Any().Revision() {
		t.Errorf("size %d: %d of %d deletions, at %d", size, len(seen), want, c.Revision())
	}
}

func testWholeFeed(t *testing.T, s *store.Store, start, r store.Revision, size, want int) {
	f, err := s.Feed(start)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var keys []string
	buf := make([]store.CollectionChange, size)
	for f.Revision() < s.Any().Revision() {
		n, err := f.TryNext(t.Context(), buf)
		if err != nil || n == 0 && f.Revision() < s.Any().Revision() {
			t.Fatalf("feed at %d: %d, %v", f.Revision(), n, err)
		}
		for _, c := range buf[:n] {
			if c.Revision == r {
				keys = append(keys, c.Key())
			}
		}
		if len(keys) < want && f.Revision() >= r {
			t.Fatalf("size %d: the feed is at %d, with %d changes of %d", size, f.Revision(), len(keys), r)
		}
	}
	slices.Sort(keys)
	if len(slices.Compact(slices.Clone(keys))) != want || len(keys) != want {
		t.Errorf("size %d: the feed has %d changes of revision %d, want %d", size, len(keys), r, want)
	}
}

// testSharedRestart opens a store on a log with a history: it reads back the changes before.
func testSharedRestart(t *testing.T, m SharedMedium) {
	first := Open(t, store.Options{Shared: m.Open(t)})
	start := first.Any().Revision()
	var made []*store.Object
	for i := range 30 {
		condition := store.Revision(0)
		if i > 0 {
			condition = made[i-1].Modified
		}
		o, err := retry(func() (*store.Object, error) {
			return first.Commit(t.Context(), put("pods", "ns/a", fmt.Sprint(i), condition))
		})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, o)
	}
	Close(t, first)
	again := Open(t, store.Options{Shared: m.Open(t)})
	if floor, head := again.Bounds(); floor > start || head < made[29].Modified {
		t.Errorf("bounds from %d to %d, want %d to %d", floor, head, start, made[29].Modified)
	}
	c, err := again.Watch("pods", "ns/a", made[3].Modified)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := drain(t, c, make([]*store.Change, 4))
	if len(got) != 26 {
		t.Fatalf("%d changes, want 26", len(got))
	}
	for i, ch := range got {
		if !sameVersion(ch.After, made[i+4]) || !sameVersion(ch.Before, made[i+3]) {
			t.Errorf("change %d: %+v", i, ch)
		}
	}
	for i, o := range made {
		if got := exact(t, again, "pods", o.Modified); len(got) != 1 || !sameVersion(got[0], o) {
			t.Errorf("write %d at %d: %s", i, o.Modified, text(got))
		}
	}
}
