package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// model is a naive store: the list of all changes. It computes the expected results of the
// store.
type model struct {
	start   store.Revision
	changes []modelChange
}

type modelChange struct {
	collection, key string
	revision        store.Revision
	before, after   *store.Object // after as the store returned it, nil of a deletion
	origin          *store.Origin
}

func (m *model) head() store.Revision {
	if len(m.changes) == 0 {
		return m.start
	}
	return m.changes[len(m.changes)-1].revision
}

// at returns a collection at a revision.
func (m *model) at(collection string, r store.Revision) map[string]*store.Object {
	state := map[string]*store.Object{}
	for _, ch := range m.changes {
		if ch.revision > r {
			break
		}
		if ch.collection != collection {
			continue
		}
		if ch.after == nil {
			delete(state, ch.key)
		} else {
			state[ch.key] = ch.after
		}
	}
	return state
}

// scan returns the objects that a scan of a state must yield.
func scan(state map[string]*store.Object, prefix, after string) []*store.Object {
	var all []*store.Object
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if strings.HasPrefix(key, prefix) && key > after {
			all = append(all, state[key])
		}
	}
	return all
}

// after returns the changes of a collection that a cursor must report.
func (m *model) after(collection, prefix string, r store.Revision) []modelChange {
	i := sort.Search(len(m.changes), func(i int) bool { return m.changes[i].revision > r })
	var all []modelChange
	for _, ch := range m.changes[i:] {
		exactly := prefix == "" || strings.HasSuffix(prefix, "/") && strings.HasPrefix(ch.key, prefix) || ch.key == prefix
		if ch.collection == collection && exactly {
			all = append(all, ch)
		}
	}
	return all
}

// run is one randomized test: it compares operations on a store with the model.
type run struct {
	testing.TB
	chance  *rand.Rand
	open    func(testing.TB) store.Log
	options store.Options
	store   *store.Store
	model   model
	cursors []*modelCursor
	feed    modelFeed
	times   map[store.Revision]time.Time
	counts  map[string]int // cases that were reached
}

type modelCursor struct {
	*store.Cursor
	collection, prefix string
	read               store.Revision // of the last change read, or where it began
}

var collections = []string{"pods", "configmaps", "deployments.apps"}

// testModel runs with plenty of memory for history, and with so little that history is read
// back from the log.
func testModel(t *testing.T, medium Medium) {
	for _, memory := range []int64{0, 100 << 10, 1} {
		t.Run(fmt.Sprintf("memory=%d", memory), func(t *testing.T) {
			r := run{TB: t, chance: testrand.New(t), open: medium(t), counts: map[string]int{}, times: map[store.Revision]time.Time{}}
			r.options = store.Options{MaxMemory: memory, Packed: map[string]bool{"configmaps": true}, Now: wander(r.chance.Uint64())}
			r.restart()
			r.model.start = r.store.Any().Revision()
			operations := []struct {
				weight int
				do     func()
			}{
				{60, r.write}, {10, r.writeMany}, {8, r.scan}, {8, r.exact}, {10, r.readCursor},
				{3, r.newCursor}, {1, r.closeCursor}, {1, r.refused}, {2, r.readFeed},
			}
			total := 0
			for _, o := range operations {
				total += o.weight
			}
			steps := steps(t, *stepsFlag, 3000, 600)
			for step := range steps {
				if step > 0 && step%(steps/4+1) == 0 {
					r.restart()
				}
				pick := r.chance.IntN(total)
				for _, o := range operations {
					if pick -= o.weight; pick < 0 {
						o.do()
						break
					}
				}
				if t.Failed() {
					t.Fatalf("at step %d", step)
				}
			}
			for range r.cursors {
				r.readCursor()
			}
			r.checkTimes()
			t.Logf("%d changes; %v", len(r.model.changes), r.counts)
		})
	}
}

// wander returns a clock that goes forwards and backwards.
func wander(seed uint64) func() time.Time {
	var mu sync.Mutex
	now, chance := time.Unix(1_800_000_000, 0), rand.New(rand.NewPCG(seed, 3))
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Duration(chance.Int64N(int64(2*time.Second))) - time.Second + time.Millisecond)
		return now
	}
}

// restart closes the store and opens it again; cursors go on where they were.
func (r *run) restart() {
	if r.store != nil {
		Close(r, r.store)
	}
	o := r.options
	o.Log = r.open(r)
	r.store = Open(r, o)
	for _, c := range r.cursors {
		cursor, err := r.store.Watch(c.collection, c.prefix, c.read)
		if r.expired(err, c.read) {
			c.read = r.store.Any().Revision()
			cursor, err = r.store.Watch(c.collection, c.prefix, c.read)
		}
		if err != nil {
			r.Fatalf("watch %s %q after %d: %v", c.collection, c.prefix, c.read, err)
		}
		c.Cursor = cursor
	}
	r.openFeed()
}

// expired reports whether the error is an *ExpiredError that the model expects.
func (r *run) expired(err error, at store.Revision) bool {
	e := new(*store.ExpiredError)
	if !errors.As(err, e) {
		return false
	}
	r.counts["expired"]++
	if floor, _ := r.store.Bounds(); at >= floor {
		r.Errorf("revision %d is expired, and the floor is %d", at, floor)
	}
	return true
}

func (r *run) key() string {
	return fmt.Sprintf("%c/%03d", 'a'+rune(r.chance.IntN(3)), r.chance.IntN(150))
}

func (r *run) collection() string { return collections[r.chance.IntN(len(collections))] }

// prefix returns a random prefix for scans and, if exactly is set, for cursors.
func (r *run) prefix(exactly bool) string {
	switch n := r.chance.IntN(4); {
	case n == 0:
		return ""
	case n == 1 && !exactly:
		return r.key()[:r.chance.IntN(5)+1]
	case n == 2:
		return r.key()
	}
	return r.key()[:2]
}

func (r *run) revision() store.Revision {
	head := r.model.head()
	back := r.chance.IntN(int(head-r.model.start) + 1)
	if r.chance.IntN(2) == 0 {
		back = min(back, r.chance.IntN(10))
	}
	return head - store.Revision(back)
}

// transaction is a proposed transaction, with the objects that it depends on.
type transaction struct {
	store.Txn
	befores []*store.Object // of the writes, nil of one with Next
}

// next returns a transaction that is valid at the current state.
func (r *run) next(collection, key string) transaction {
	var t transaction
	state := r.store.Any()
	r.add(&t, state, collection, key)
	for r.chance.IntN(6) == 0 {
		if other := r.key(); !slices.ContainsFunc(t.Writes, func(w store.Write) bool { return w.Key == other }) {
			r.add(&t, state, r.collection(), other)
		}
	}
	if r.chance.IntN(6) == 0 {
		n := store.Need{Collection: r.collection(), Key: r.key()}
		if o := state.Get(n.Collection, n.Key); o != nil {
			n.Modified = o.Modified
		}
		t.Needs = append(t.Needs, n)
	}
	return t
}

// add adds one write to a transaction, or two of the same object.
func (r *run) add(t *transaction, state *store.State, collection, key string) {
	before := state.Get(collection, key)
	t.befores = append(t.befores, before)
	content := strings.Repeat("x", r.chance.IntN(40))
	if r.chance.IntN(50) == 0 {
		content = strings.Repeat("y", 5000)
	}
	origin := someOrigin(r.chance)
	if before != nil && r.chance.IntN(3) == 0 {
		w := del(collection, key, before.Modified)
		w.Origin = origin
		t.Writes = append(t.Writes, w)
		return
	}
	w := put(collection, key, content, 0)
	w.Origin = origin
	if before != nil {
		w.If = before.Modified
	}
	t.Writes = append(t.Writes, w)
	if r.chance.IntN(10) == 0 {
		next := put(collection, key, content+" next", 0)
		next.Next = true
		t.Writes, t.befores = append(t.Writes, next), append(t.befores, nil)
	}
}

// done returns the changes of a transaction.
func (r *run) done(t *transaction, made []*store.Object) (all []modelChange) {
	for i, w := range t.Writes {
		before := t.befores[i]
		if w.Next {
			r.counts["next"]++
			before = made[i-1]
		}
		if i > 0 && made[i].Modified != made[i-1].Modified+1 {
			r.Errorf("writes of a transaction have the revisions %d and %d", made[i-1].Modified, made[i].Modified)
		}
		all = append(all, r.made(w, before, made[i]))
	}
	if len(all) > 1 {
		r.counts["several"]++
	}
	return all
}

func (r *run) made(w store.Write, before, result *store.Object) modelChange {
	ch := modelChange{w.Collection, w.Key, result.Modified, before, result, w.Origin}
	if w.Value == nil {
		ch.after = nil
	} else if want := string(w.Value[:w.RevisionAt]) + fmt.Sprint(result.Modified) + string(w.Value[w.RevisionAt:]); string(result.Bytes()) != want {
		r.Errorf("committed %s, got %s", want, result.Bytes())
	}
	return ch
}

func (r *run) write() {
	t := r.next(r.collection(), r.key())
	made, err := r.store.Apply(r.Context(), &t.Txn)
	if err != nil {
		r.Fatalf("apply: %v", err)
	}
	r.model.changes = append(r.model.changes, r.done(&t, made)...)
}

// writeMany runs concurrent writers, some on the same key. Of the writers that start from the
// same state of a key exactly one succeeds. The others can read the state that refused them, unless
// the object was absent: then it may be absent again, created and deleted meanwhile.
func (r *run) writeMany() {
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range r.chance.IntN(12) + 2 {
		state := r.store.Any()                       // not newer than the state that decides t
		t := r.next(r.collection(), r.key()[:4]+"0") // few keys, so that they meet
		wg.Go(func() {
			made, err := r.store.Apply(r.Context(), &t.Txn)
			mu.Lock()
			defer mu.Unlock()
			var failed *store.TxnError
			switch {
			case err == nil:
				r.model.changes = append(r.model.changes, r.done(&t, made)...)
			case errors.As(err, &failed) && failed.Part == store.WritePart:
				r.counts["refused"]++
				w := t.Writes[failed.Index]
				if before := t.befores[failed.Index]; before != nil && r.store.Any().Get(w.Collection, w.Key) == before {
					r.Errorf("%v, and the state that shows it cannot be read", err)
				}
			case errors.Is(err, store.ErrStale):
				r.counts["stale"]++
				n := t.Needs[failed.Index]
				if before := state.Get(n.Collection, n.Key); before != nil && r.store.Any().Get(n.Collection, n.Key) == before {
					r.Errorf("%v, and the state that shows it cannot be read", err)
				}
			default:
				r.Errorf("apply: %v", err)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(r.model.changes, func(a, b modelChange) int { return int(int64(a.revision - b.revision)) })
}

// refused sends writes whose conditions do not hold.
func (r *run) refused() {
	collection, key := r.collection(), r.key()
	w, want := put(collection, key, "no", 0), store.ErrExists
	if r.store.Any().Get(collection, key) == nil {
		w, want = del(collection, key, r.revision()+1), store.ErrNotFound
	}
	if _, err := r.store.Commit(r.Context(), w); !errors.Is(err, want) {
		r.Errorf("got %v, want %v", err, want)
	}
}

func (r *run) scan() {
	collection, prefix, after := r.collection(), r.prefix(false), ""
	if r.chance.IntN(2) == 0 {
		after = r.key()
	}
	state := r.store.Any()
	snapshot := state.Snapshot(collection)
	want := scan(r.model.at(collection, r.model.head()), prefix, after)
	got := slices.Collect(snapshot.Scan(prefix, after))
	if state.Revision() != r.model.head() || !slices.Equal(text2(got), text2(want)) {
		r.Errorf("%s %q after %q at %d: got %d\n%swant %d\n%s", collection, prefix, after, r.model.head(), state.Revision(), text(got), r.model.head(), text(want))
	}
	if n := snapshot.Count(prefix, after); n != len(want) {
		r.Errorf("%s %q after %q counts %d, want %d", collection, prefix, after, n, len(want))
	}
}

// text2 is text for each object.
func text2(objects []*store.Object) []string {
	lines := make([]string, len(objects))
	for i := range objects {
		lines[i] = text(objects[i : i+1])
	}
	return lines
}

func (r *run) exact() {
	collection, prefix, after, at := r.collection(), r.prefix(false), "", r.revision()
	if r.chance.IntN(2) == 0 {
		after = r.key()
	}
	v, err := r.store.Exact(r.Context(), collection, at, 0)
	if r.expired(err, at) {
		return
	}
	if err != nil {
		r.Fatalf("exact: %v", err)
	}
	defer v.Close()
	want := scan(r.model.at(collection, at), prefix, after)
	if r.chance.IntN(4) == 0 { // concurrent writes change nothing
		r.writeMany()
		r.counts["exact during writes"]++
	}
	got, err := collect(v.Scan(prefix, after))
	if r.expired(err, at) {
		return
	}
	if err != nil || v.Revision() != at || !slices.Equal(text2(got), text2(want)) {
		r.Errorf("%s %q after %q at %d: %v, got %d\n%swant\n%s", collection, prefix, after, at, err, v.Revision(), text(got), text(want))
	}
	if n, known := v.Count(prefix, after); known && n != len(want) {
		r.Errorf("%s %q after %q at %d counts %d, want %d", collection, prefix, after, at, n, len(want))
	}
	r.counts["exact"]++
	if window := r.store.Stats().Window; at < window {
		r.counts["exact from the log"]++
	}
}

func (r *run) newCursor() {
	if len(r.cursors) >= 40 {
		return
	}
	c := &modelCursor{collection: r.collection(), prefix: r.prefix(true), read: r.revision()}
	cursor, err := r.store.Watch(c.collection, c.prefix, c.read)
	if r.expired(err, c.read) {
		return
	}
	if err != nil {
		r.Fatalf("watch: %v", err)
	}
	c.Cursor = cursor
	r.cursors = append(r.cursors, c)
}

func (r *run) closeCursor() {
	if len(r.cursors) == 0 {
		return
	}
	i := r.chance.IntN(len(r.cursors))
	r.cursors[i].Close()
	r.cursors = slices.Delete(r.cursors, i, i+1)
}

// readCursor reads some of a cursor's events, and checks the revision that it reports.
func (r *run) readCursor() {
	if len(r.cursors) == 0 {
		return
	}
	c := r.cursors[r.chance.IntN(len(r.cursors))]
	want := r.model.after(c.collection, c.prefix, c.read)
	buf := make([]*store.Change, r.chance.IntN(20)+1)
	if window := r.store.Stats().Window; c.read < window && len(want) > 0 {
		r.counts["cursor from the log"]++
	}
	for reads := r.chance.IntN(5); reads >= 0; reads-- {
		n, err := c.TryNext(r.Context(), buf)
		if r.expired(err, c.read) {
			c.Close()
			r.cursors = slices.DeleteFunc(r.cursors, func(x *modelCursor) bool { return x == c })
			return
		}
		if err != nil || n > len(want) || n == 0 && len(want) > 0 {
			r.Fatalf("%s %q after %d: %d, %v, want %d", c.collection, c.prefix, c.read, n, err, len(want))
		}
		for i, ch := range buf[:n] {
			w := want[i]
			if ch.Revision != w.revision || !sameVersion(ch.Before, w.before) || !sameVersion(ch.After, w.after) {
				r.Fatalf("%s %q after %d: got %+v, want %+v", c.collection, c.prefix, c.read, ch, w)
			}
			r.checkOrigin(ch, w)
			c.read = ch.Revision
			r.counts["changes"]++
		}
		want = want[n:]
		at := c.Revision()
		if at > r.model.head() || at < c.read && c.read <= r.model.head() || len(want) > 0 && at >= want[0].revision {
			r.Fatalf("%s %q read %d and says %d; the head is %d, %d are left", c.collection, c.prefix, c.read, at, r.model.head(), len(want))
		}
		if len(want) == 0 {
			c.read = at
		}
	}
}

// checkOrigin compares an origin with that of the write, and its time with those of its neighbours:
// the same change has the same time in each read, and times do not decrease.
func (r *run) checkOrigin(ch *store.Change, w modelChange) {
	got := ch.Origin()
	if caused(&got) != caused(w.origin) {
		r.Fatalf("revision %d: got %s, want %s", ch.Revision, caused(&got), caused(w.origin))
	}
	if had, known := r.times[ch.Revision]; known && !had.Equal(got.Time) || got.Time.IsZero() {
		r.Fatalf("revision %d: got %v, which was %v before", ch.Revision, got.Time, had)
	}
	r.times[ch.Revision] = got.Time
}

// checkTimes checks that the times of all changes that were read never decrease.
func (r *run) checkTimes() {
	var last time.Time
	for _, revision := range slices.Sorted(maps.Keys(r.times)) {
		if at := r.times[revision]; at.Before(last) {
			r.Errorf("revision %d is of %v, an earlier one of %v", revision, at, last)
		} else {
			last = at
		}
	}
}

func sameVersion(a, b *store.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Key == b.Key && a.Created == b.Created && a.Modified == b.Modified && string(a.Bytes()) == string(b.Bytes())
}
