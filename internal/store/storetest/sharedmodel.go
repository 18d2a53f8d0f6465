package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

var sharedStepsFlag = flag.Int("storetest.sharedsteps", 0, "steps of each writer in the randomized test of several stores; 0 is 60 in the full tier, 25 in others")

// sharedRun is a randomized test of several stores on one log. Clients write and read through
// all of them at once, each with the versions that it has seen on any of them. Afterwards the run compares
// all responses with the history that the log ended up with:
//
//   - all stores have that history, in memory and read back
//   - an acknowledged write is in it once, at its revision, where its conditions held, after
//     all that was acknowledged before the write began
//   - a refused write was impossible in some state between its begin and its end
//   - a read of the most recent state has all that was acknowledged before it began
//   - cursors and feeds return it without a gap, in order, in whole revisions
type sharedRun struct {
	testing.TB
	medium SharedMedium
	stores []*store.Store
	start  store.Revision

	acked atomic.Uint64 // the newest revision that a client has seen in a response
	names atomic.Int64  // makes values unique

	mu       sync.Mutex
	writes   []*sharedWrite
	reads    []sharedRead
	expired  map[store.Revision]bool // revisions of Expire
	watchers []*sharedWatcher
	counts   map[string]int

	history  []modelChange
	versions map[[2]string][]modelChange
}

// sharedWrite is a transaction and its response. The states that can explain the response are those
// from from to upTo.
type sharedWrite struct {
	store.Txn
	store      int
	made       []*store.Object
	err        error
	from, upTo store.Revision
}

// sharedRead is the result of a read of the most recent state, for one object.
type sharedRead struct {
	collection, key string
	at, modified    store.Revision
}

// sharedWatcher reads a cursor at its own pace.
type sharedWatcher struct {
	*store.Cursor
	collection, prefix string
	start              store.Revision
	changes            []*store.Change
}

// RunSharedModel is the randomized test of RunShared. It also accepts a log that leaves outcomes unknown
// (store.ErrUnknown).
func RunSharedModel(t *testing.T, m SharedMedium) {
	steps := steps(t, *sharedStepsFlag, 60, 25)
	chance := testrand.New(t)
	r := &sharedRun{TB: t, medium: m, counts: map[string]int{}, expired: map[store.Revision]bool{}, versions: map[[2]string][]modelChange{}}
	for _, memory := range []int64{0, 1, 20 << 10} {
		r.stores = append(r.stores, Open(t, store.Options{Shared: m.Open(t), MaxMemory: memory}))
	}
	r.start = r.stores[2].Any().Revision()
	r.acked.Store(uint64(r.start))
	ctx, cancel := context.WithCancel(t.Context())
	var writers, watchers sync.WaitGroup
	for i := range 4 * len(r.stores) {
		of := rand.New(rand.NewPCG(chance.Uint64(), 2))
		w := r.watch(r.stores[i%len(r.stores)], of)
		watchers.Go(func() { w.read(ctx, t, of) })
	}
	for range 4 * len(r.stores) {
		of := rand.New(rand.NewPCG(chance.Uint64(), 3))
		writers.Go(func() {
			for range steps {
				r.step(of)
			}
		})
	}
	writers.Wait()
	if m.Settle != nil {
		m.Settle()
	}
	for _, s := range r.stores {
		r.mostRecent(s, "pods", "a/0")
	}
	cancel()
	watchers.Wait()
	r.readHistory()
	for _, w := range r.writes {
		r.checkWrite(w)
	}
	r.checkOwners()
	r.checkReads()
	for _, w := range r.watchers {
		r.checkWatcher(w)
	}
	r.checkExact(chance)
	t.Logf("%d changes; %v", len(r.history), r.counts)
}

// seen notes that a client knows of a revision.
func (r *sharedRun) seen(at store.Revision) {
	for {
		old := r.acked.Load()
		if old >= uint64(at) || r.acked.CompareAndSwap(old, uint64(at)) {
			return
		}
	}
}

func sharedKey(chance *rand.Rand) (collection, key string) {
	return collections[chance.IntN(2)], fmt.Sprintf("%c/%d", 'a'+rune(chance.IntN(2)), chance.IntN(4))
}

// step is one operation of a client.
func (r *sharedRun) step(chance *rand.Rand) {
	s := r.stores[chance.IntN(len(r.stores))]
	switch n := chance.IntN(20); {
	case n < 4:
		collection, key := sharedKey(chance)
		r.mostRecent(s, collection, key)
	case n == 4 && r.medium.Expire != nil:
		collection, key := sharedKey(chance)
		_, other := sharedKey(chance)
		at := r.medium.Expire(collection, key, other)
		r.mu.Lock()
		r.expired[at] = true
		r.mu.Unlock()
	default:
		r.write(s, chance)
	}
}

func (r *sharedRun) mostRecent(s *store.Store, collection, key string) {
	from := store.Revision(r.acked.Load())
	state, err := retry(func() (*store.State, error) { return s.MostRecent(r.Context()) })
	if err != nil {
		r.Errorf("most recent: %v", err)
		return
	}
	if state.Revision() < from {
		r.Errorf("the most recent state is at %d, and %d was acknowledged before", state.Revision(), from)
	}
	r.seen(state.Revision())
	read := sharedRead{collection: collection, key: key, at: state.Revision()}
	if o := state.Get(collection, key); o != nil {
		read.modified = o.Modified
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads = append(r.reads, read)
	r.counts["reads"]++
}

// write makes a transaction by the state of some store, through a store that may have another
// one.
func (r *sharedRun) write(s *store.Store, chance *rand.Rand) {
	w := &sharedWrite{store: slices.Index(r.stores, s)}
	state := r.stores[chance.IntN(len(r.stores))].Any()
	used := map[[2]string]bool{}
	for {
		collection, key := sharedKey(chance)
		if !used[[2]string{collection, key}] {
			used[[2]string{collection, key}] = true
			w.Writes = append(w.Writes, r.oneWrite(state, collection, key, chance))
		}
		if chance.IntN(5) > 0 {
			break
		}
	}
	if chance.IntN(5) == 0 {
		n := store.Need{}
		n.Collection, n.Key = sharedKey(chance)
		if o := state.Get(n.Collection, n.Key); o != nil {
			n.Modified = o.Modified
		}
		if !used[[2]string{n.Collection, n.Key}] {
			w.Needs = append(w.Needs, n)
		}
	}
	w.from = store.Revision(r.acked.Load())
	w.made, w.err = retry(func() ([]*store.Object, error) { return s.Apply(r.Context(), &w.Txn) })
	now := s.Any()
	w.upTo = now.Revision()
	if w.err == nil {
		at := w.made[len(w.made)-1].Modified
		if now.Revision() < at {
			r.Errorf("the write at %d is acknowledged, and its store is at %d", at, now.Revision())
		}
		for i := range w.Writes {
			at := w.made[i].Modified
			if o := now.Get(w.Writes[i].Collection, w.Writes[i].Key); o != nil && o.Modified == at && o != w.made[i] {
				r.Errorf("the store has another object than the response of the write at %d", at)
			}
		}
		r.seen(at)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes = append(r.writes, w)
	r.counts[outcome(w.err)]++
}

func outcome(err error) string {
	for _, known := range []error{store.ErrExists, store.ErrNotFound, store.ErrConflict, store.ErrStale, store.ErrUnknown} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return "other errors"
	}
	return "writes"
}

func (r *sharedRun) oneWrite(state *store.State, collection, key string, chance *rand.Rand) store.Write {
	condition := store.Revision(0)
	if o := state.Get(collection, key); o != nil {
		condition = o.Modified
	}
	if condition != 0 && chance.IntN(3) == 0 {
		return del(collection, key, condition)
	}
	return put(collection, key, fmt.Sprint("value ", r.names.Add(1)), condition)
}

func (r *sharedRun) watch(s *store.Store, chance *rand.Rand) *sharedWatcher {
	w := &sharedWatcher{collection: collections[chance.IntN(2)], start: s.Any().Revision()}
	w.prefix = []string{"", "a/", "b/", "a/0"}[chance.IntN(4)]
	c, err := s.Watch(w.collection, w.prefix, w.start)
	if err != nil {
		r.Fatal(err)
	}
	w.Cursor = c
	r.watchers = append(r.watchers, w)
	return w
}

// read reads until the context ends, and then the rest.
func (w *sharedWatcher) read(ctx context.Context, t testing.TB, chance *rand.Rand) {
	defer w.Close()
	for {
		buf := make([]*store.Change, 1+chance.IntN(6))
		n, err := Next(ctx, w.Cursor, buf)
		switch {
		case n > 0:
			before := len(w.changes)
			w.changes = append(w.changes, buf[:n]...)
			if whole := w.changes[before:]; !w.Whole() && (n < len(buf) || whole[0].Revision != whole[n-1].Revision) {
				t.Errorf("a batch of %d changes from %d to %d splits a revision", n, whole[0].Revision, whole[n-1].Revision)
			}
			if at, last := w.Revision(), buf[n-1].Revision; !w.Whole() && at >= last || w.Whole() && at < last {
				t.Errorf("the cursor is at %d after a change at %d", at, last)
			}
		case ctx.Err() != nil:
			w.changes = append(w.changes, drain(t, w.Cursor, make([]*store.Change, 3))...)
			return
		default:
			t.Errorf("%s %q after %d: %v", w.collection, w.prefix, w.start, err)
			return
		}
	}
}

// readHistory reads the history from each store, and compares them.
func (r *sharedRun) readHistory() {
	var first string
	for i, s := range r.stores {
		f, err := s.Feed(r.start)
		if err != nil {
			r.Fatal(err)
		}
		buf, all := make([]store.CollectionChange, 5), ""
		var changes []modelChange
		for f.Revision() < s.Any().Revision() {
			n, err := f.TryNext(r.Context(), buf)
			if err != nil {
				r.Fatalf("feed of store %d at %d: %v", i, f.Revision(), err)
			}
			for _, c := range buf[:n] {
				changes = append(changes, modelChange{c.Collection, c.Key(), c.Revision, c.Before, c.After, nil})
				all += fmt.Sprintf("%d %s %s\n", c.Revision, c.Collection, text(slices.DeleteFunc([]*store.Object{c.Before, c.After}, func(o *store.Object) bool { return o == nil })))
			}
		}
		f.Close()
		if i == 0 {
			first, r.history = all, changes
		} else if all != first {
			r.Fatalf("store %d has another history:\n%s\nthan store 0:\n%s", i, all, first)
		}
	}
	for _, ch := range r.history {
		name := [2]string{ch.collection, ch.key}
		before := r.versions[name]
		if n := len(before); n > 0 && !sameVersion(before[n-1].after, ch.before) || n == 0 && ch.before != nil {
			r.Errorf("the change of %s at %d does not continue the one before", name, ch.revision)
		}
		r.versions[name] = append(before, ch)
	}
}

// at returns the revision of the version of an object at a revision; zero: there was none.
func (r *sharedRun) at(collection, key string, at store.Revision) store.Revision {
	all := r.versions[[2]string{collection, key}]
	i := sort.Search(len(all), func(i int) bool { return all[i].revision > at })
	if i == 0 || all[i-1].after == nil {
		return 0
	}
	return all[i-1].revision
}

// change returns the change of an object at a revision.
func (r *sharedRun) change(w *store.Write, at store.Revision) *modelChange {
	all := r.versions[[2]string{w.Collection, w.Key}]
	for i := range all {
		if all[i].revision == at {
			return &all[i]
		}
	}
	return nil
}

// refusal is the response to a transaction by the state at a revision.
func (r *sharedRun) refusal(w *sharedWrite, at store.Revision) error {
	for i := range w.Writes {
		one := &w.Writes[i]
		switch had := r.at(one.Collection, one.Key, at); {
		case one.If == had:
		case one.If == 0:
			return &store.TxnError{Part: store.WritePart, Index: i, Err: store.ErrExists}
		case had == 0:
			return &store.TxnError{Part: store.WritePart, Index: i, Err: store.ErrNotFound}
		default:
			return &store.TxnError{Part: store.WritePart, Index: i, Err: store.ErrConflict}
		}
	}
	for i, n := range w.Needs {
		if r.at(n.Collection, n.Key, at) != n.Modified {
			return &store.TxnError{Part: store.NeedPart, Index: i, Err: store.ErrStale}
		}
	}
	return nil
}

func (r *sharedRun) checkWrite(w *sharedWrite) {
	if errors.Is(w.err, store.ErrUnknown) {
		return
	}
	if w.err != nil {
		for at := w.from; at <= w.upTo; at++ {
			if err := r.refusal(w, at); err != nil && err.Error() == w.err.Error() {
				return
			}
		}
		r.Errorf("store %d responded %v, which no state from %d to %d explains: %s", w.store, w.err, w.from, w.upTo, describe(&w.Txn))
		return
	}
	at := w.made[0].Modified
	if at <= w.from {
		r.Errorf("a write has the revision %d, and %d was acknowledged before it began", at, w.from)
	}
	if err := r.refusal(w, at-1); err != nil {
		r.Errorf("the write at %d was made, although %v", at, err)
	}
	for i := range w.Writes {
		one, at := &w.Writes[i], at
		if r.medium.Separate {
			at += store.Revision(i)
		}
		ch := r.change(one, at)
		switch {
		case ch == nil || (ch.after == nil) != (one.Value == nil):
			r.Errorf("the write of %s at %d was acknowledged, and the history does not have it", one.Key, at)
		case w.made[i].Modified != at || ch.after != nil && !sameVersion(ch.after, w.made[i]):
			r.Errorf("the response of the write of %s at %d is not what the history has", one.Key, at)
		}
	}
}

func describe(t *store.Txn) (s string) {
	for _, w := range t.Writes {
		s += fmt.Sprintf("write %s %s if %d; ", w.Collection, w.Key, w.If)
	}
	for _, n := range t.Needs {
		s += fmt.Sprintf("need %s %s at %d; ", n.Collection, n.Key, n.Modified)
	}
	return s
}

// checkOwners checks that each change was made by a write whose response allows that, once.
func (r *sharedRun) checkOwners() {
	type made struct {
		at    store.Revision
		known bool
	}
	values := map[string]made{}
	unknown := map[string]bool{} // deletions that may have been made
	deleted := map[string]bool{}
	for _, w := range r.writes {
		for i, one := range w.Writes {
			name := fmt.Sprint(one.Collection, " ", one.Key, " ", one.If)
			switch {
			case one.Value != nil && w.err == nil:
				values[string(one.Value)] = made{w.made[i].Modified, true}
			case one.Value != nil && errors.Is(w.err, store.ErrUnknown):
				values[string(one.Value)] = made{}
			case w.err == nil:
				deleted[fmt.Sprint(name, " at ", w.made[i].Modified)] = true
			case errors.Is(w.err, store.ErrUnknown):
				unknown[name] = true
			}
		}
	}
	for _, ch := range r.history {
		if ch.after == nil {
			name := fmt.Sprint(ch.collection, " ", ch.key, " ", ch.before.Modified)
			if !deleted[fmt.Sprint(name, " at ", ch.revision)] && !unknown[name] && !r.expired[ch.revision] {
				r.Errorf("no client deleted %s at %d", ch.key, ch.revision)
			}
			continue
		}
		value := string(ch.after.Unversioned())
		m, some := values[value]
		if !some || m.known && m.at != ch.revision {
			r.Errorf("no client made the change of %s at %d, or twice: %s", ch.key, ch.revision, value)
		}
		delete(values, value)
	}
}

func (r *sharedRun) checkReads() {
	for _, read := range r.reads {
		if want := r.at(read.collection, read.key, read.at); read.modified != want {
			r.Errorf("a read of %s at %d returned the version of %d, want %d", read.key, read.at, read.modified, want)
		}
	}
}

func (r *sharedRun) checkWatcher(w *sharedWatcher) {
	var want []modelChange
	for _, ch := range r.history {
		if ch.collection == w.collection && ch.revision > w.start && (w.prefix == "" || ch.key == w.prefix || len(w.prefix) == 2 && ch.key[:2] == w.prefix) {
			want = append(want, ch)
		}
	}
	if len(w.changes) != len(want) {
		r.Errorf("a watch of %s %q after %d has %d changes, want %d", w.collection, w.prefix, w.start, len(w.changes), len(want))
		return
	}
	for i, ch := range w.changes {
		if ch.Revision != want[i].revision || ch.Key() != want[i].key || !sameVersion(ch.Before, want[i].before) || !sameVersion(ch.After, want[i].after) {
			r.Errorf("a watch of %s %q after %d: change %d is %s at %d, want %s at %d", w.collection, w.prefix, w.start, i, ch.Key(), ch.Revision, want[i].key, want[i].revision)
			return
		}
	}
}

// checkExact reads old states from all stores.
func (r *sharedRun) checkExact(chance *rand.Rand) {
	head := r.stores[0].Any().Revision()
	for range 12 {
		at := r.start + store.Revision(chance.Int64N(int64(head-r.start)+1))
		for i, s := range r.stores {
			for _, collection := range collections[:2] {
				got := map[string]store.Revision{}
				for _, o := range exact(r, s, collection, at) {
					got[o.Key] = o.Modified
				}
				for name := range r.versions {
					if name[0] == collection && got[name[1]] != r.at(collection, name[1], at) {
						r.Errorf("store %d: %s at %d is the version of %d, want %d", i, name, at, got[name[1]], r.at(collection, name[1], at))
					}
				}
			}
		}
	}
}
