package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// ForkLog makes a log in memory that begins with a state and with the changes after a revision that led to it.
type ForkLog func(state *store.State, after store.Revision, changes []store.Entry) store.Log

// Forks tests trees of forks: each store of a tree is compared with a map that only its own writes, and
// those of its ancestors before the fork, changed.
func Forks(t *testing.T, medium Medium, log ForkLog) {
	t.Run("Random", func(t *testing.T) { testForks(t, medium, log) })
	t.Run("Bounds", func(t *testing.T) { testForkBounds(t, medium, log) })
	for _, memory := range []int64{0, 1} {
		t.Run(fmt.Sprintf("Earlier/memory=%d", memory), func(t *testing.T) {
			testForkEarlier(t, Open(t, store.Options{Log: medium(t)(t), MaxMemory: memory}), log)
		})
		t.Run(fmt.Sprintf("History/memory=%d", memory), func(t *testing.T) {
			testForkHistory(t, Open(t, store.Options{Log: medium(t)(t), MaxMemory: memory}), log)
		})
	}
	t.Run("HistoryBound", func(t *testing.T) { testForkHistoryBound(t, medium, log) })
	t.Run("Times", func(t *testing.T) { testForkTimes(t, medium, log) })
	t.Run("Quota", func(t *testing.T) { testForkQuota(t, medium, log) })
}

// branch is a store of a tree of forks.
type branch struct {
	t      *testing.T
	store  *store.Store
	chance *rand.Rand
	want   map[string]map[string]*store.Object // by collection and key
}

// testForks has rounds in which all stores of the tree write at the same time, and are read at the same
// time. After each round it compares them with their models, and forks some.
func testForks(t *testing.T, medium Medium, log ForkLog) {
	chance := testrand.New(t)
	root := &branch{t: t, store: Open(t, store.Options{Log: medium(t)(t)}), chance: rand.New(rand.NewPCG(chance.Uint64(), 0)), want: map[string]map[string]*store.Object{}}
	for i := range 300 { // a tree of several levels
		root.write("pods", fmt.Sprintf("a/%d", i))
	}
	all := []*branch{root}
	for range 12 {
		var writers sync.WaitGroup
		for _, b := range all {
			writers.Go(func() {
				for range 60 {
					b.change()
				}
			})
		}
		writers.Wait()
		for _, b := range all {
			b.check()
		}
		for _, b := range slices.Clone(all) {
			if len(all) < 24 && chance.IntN(2) == 0 {
				all = append(all, b.fork(rand.New(rand.NewPCG(chance.Uint64(), 0)), log))
			}
		}
		if t.Failed() {
			return
		}
	}
}

func (b *branch) fork(chance *rand.Rand, log ForkLog) *branch {
	b.t.Helper()
	state := b.store.Any()
	f, err := stores.Fork(b.store, state, store.Options{Log: log(state, state.Revision(), nil), OnFatal: func(err error) { b.t.Errorf("the log of a fork failed: %v", err) }})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { Close(b.t, f) })
	child := &branch{t: b.t, store: f, chance: chance, want: map[string]map[string]*store.Object{}}
	for collection, objects := range b.want {
		child.want[collection] = maps.Clone(objects)
	}
	return child
}

// change writes or deletes a random object.
func (b *branch) change() {
	collection := collections[b.chance.IntN(len(collections))]
	if b.chance.IntN(20) == 0 {
		collection = fmt.Sprintf("new-%d", b.chance.IntN(40))
	}
	key := fmt.Sprintf("%c/%d", 'a'+rune(b.chance.IntN(3)), b.chance.IntN(400))
	if b.want[collection][key] == nil || b.chance.IntN(3) > 0 {
		b.write(collection, key)
		return
	}
	if _, err := b.store.Commit(b.t.Context(), del(collection, key, b.want[collection][key].Modified)); err != nil {
		b.t.Errorf("delete %s %s: %v", collection, key, err)
	}
	delete(b.want[collection], key)
}

func (b *branch) write(collection, key string) {
	var current store.Revision
	if o := b.want[collection][key]; o != nil {
		current = o.Modified
	}
	o, err := b.store.Commit(b.t.Context(), put(collection, key, strings.Repeat("x", b.chance.IntN(50)), current))
	if err != nil {
		b.t.Errorf("write %s %s: %v", collection, key, err)
		return
	}
	if b.want[collection] == nil {
		b.want[collection] = map[string]*store.Object{}
	}
	b.want[collection][key] = o
}

func (b *branch) check() {
	b.t.Helper()
	if err := b.store.Check(b.t.Context()); err != nil {
		b.t.Errorf("check: %v", err)
	}
	state := b.store.Any()
	for collection, objects := range b.want {
		if got, want := slices.Collect(state.Snapshot(collection).Scan("", "")), scan(objects, "", ""); !slices.EqualFunc(got, want, sameVersion) {
			b.t.Errorf("%s: got %d objects, want %d, or others", collection, len(got), len(want))
		}
	}
}

func mustFork(t *testing.T, s *store.Store, state *store.State, log ForkLog) *store.Store {
	t.Helper()
	f, err := stores.Fork(s, state, store.Options{Log: log(state, state.Revision(), nil)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(t, f) })
	return f
}

// testForkBounds: a fork continues the revisions of its parent, has no history of it, and outlives it.
func testForkBounds(t *testing.T, medium Medium, log ForkLog) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	a := mustCommit(t, s, put("pods", "a/1", "one", 0))
	mustCommit(t, s, put("pods", "a/2", "two", 0))
	f := mustFork(t, s, s.Any(), log)
	at := s.Any().Revision()
	if floor, head := f.Bounds(); floor != at || head != at {
		t.Errorf("bounds of a fork at %d: %d to %d", at, floor, head)
	}
	if _, err := f.Exact(t.Context(), "pods", a.Modified, 0); !errors.As(err, new(*store.ExpiredError)) {
		t.Errorf("a read below the fork: %v", err)
	}
	cursor, err := f.Watch("pods", "", at)
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := stores.Fork(s, s.Any(), store.Options{Log: log(s.Any(), s.Any().Revision(), nil)}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a fork of a closed store: %v", err)
	}
	if o := mustCommit(t, f, put("pods", "a/1", "changed", a.Modified)); o.Modified != at+1 || o.Created != a.Created {
		t.Errorf("the first write of a fork at %d: created %d, modified %d", at, o.Created, o.Modified)
	}
	buf := make([]*store.Change, 8)
	n, err := cursor.TryNext(t.Context(), buf)
	if err != nil || n != 1 || buf[0].Before != a {
		t.Errorf("a watch of a fork: %d changes, %v", n, err)
	}
	if got := s.Any().Get("pods", "a/1"); got != a {
		t.Errorf("the parent has %q", got.Bytes())
	}
}

// testForkEarlier forks at every revision of a history, and compares with the objects at that revision.
func testForkEarlier(t *testing.T, s *store.Store, log ForkLog) {
	chance := testrand.New(t)
	b := &branch{t: t, store: s, chance: chance, want: map[string]map[string]*store.Object{}}
	type moment struct {
		revision store.Revision
		time     time.Time
		want     map[string]map[string]*store.Object
		bytes    int64
	}
	var moments []moment
	for range 200 {
		b.change()
		m := moment{b.store.Any().Revision(), b.store.Any().Time(), map[string]map[string]*store.Object{}, b.store.Any().Bytes()}
		for collection, objects := range b.want {
			m.want[collection] = maps.Clone(objects)
		}
		moments = append(moments, m)
	}
	for _, m := range moments {
		state, err := b.store.StateAt(t.Context(), m.revision, nil)
		if floor, _ := s.Bounds(); m.revision < floor {
			if !errors.As(err, new(*store.ExpiredError)) {
				t.Errorf("a state below the history: %v", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if state.Revision() != m.revision || state.Bytes() != m.bytes {
			t.Errorf("the state at %d has revision %d and %d bytes, want %d", m.revision, state.Revision(), state.Bytes(), m.bytes)
		}
		oldest, _ := s.Bounds() // the change that made this state may be gone
		if got := state.Time(); !got.Equal(m.time) && (m.revision != oldest || !got.IsZero()) {
			t.Errorf("the state at %d is of %v, want %v", m.revision, got, m.time)
		}
		child := &branch{t: t, store: mustFork(t, b.store, state, log), chance: chance, want: m.want}
		child.check()
		for range 10 {
			child.change()
		}
		child.check()
	}
	b.check()
	if _, err := b.store.StateAt(t.Context(), b.store.Any().Revision()+1, nil); !errors.As(err, new(*store.TooLargeError)) {
		t.Errorf("a state of the future: %v", err)
	}
}

// testForkQuota: the quota of a fork counts the objects that the fork wrote.
func testForkQuota(t *testing.T, medium Medium, log ForkLog) {
	s := Open(t, store.Options{Log: medium(t)(t)})
	var last *store.Object
	for i := range 100 {
		last = mustCommit(t, s, put("pods", fmt.Sprintf("a/%d", i), strings.Repeat("x", 1000), 0))
	}
	f := mustFork(t, s, s.Any(), log)
	if got := f.Any().Bytes(); got != 0 {
		t.Errorf("a new fork takes %d bytes", got)
	}
	f.SetQuota(20_000)
	mustCommit(t, f, put("pods", "a/99", strings.Repeat("y", 1000), last.Modified))
	if got := f.Any().Bytes(); got < 1000 || got > 2000 {
		t.Errorf("a fork that wrote one object takes %d bytes", got)
	}
	if _, err := f.Commit(t.Context(), del("pods", "a/0", f.Any().Get("pods", "a/0").Modified)); err != nil {
		t.Error(err)
	}
	var full error
	for i := 0; i < 100 && full == nil; i++ {
		_, full = f.Commit(t.Context(), put("pods", fmt.Sprintf("b/%d", i), strings.Repeat("x", 1000), 0))
	}
	if !errors.As(full, new(*store.QuotaError)) {
		t.Errorf("a fork above its quota: %v", full)
	}
}
