package derived_test

import (
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

func open(tb testing.TB) *store.Store {
	return storetest.Open(tb, store.Options{Log: memlog.New()})
}

// put writes text as an object's value; if is its current revision, zero for a new one.
func put(tb testing.TB, s *store.Store, collection, key, text string, current store.Revision) store.Revision {
	tb.Helper()
	o, err := s.Commit(tb.Context(), store.Write{Collection: collection, Key: key, Value: []byte(text + "@"), RevisionAt: len(text) + 1, If: current})
	if err != nil {
		tb.Error(err)
		return current
	}
	return o.Modified
}

func remove(tb testing.TB, s *store.Store, collection, key string, current store.Revision) {
	tb.Helper()
	if _, err := s.Commit(tb.Context(), store.Write{Collection: collection, Key: key, If: current}); err != nil {
		tb.Error(err)
	}
}

// text returns the text that put wrote.
func text(o *store.Object) string {
	text, _, _ := strings.Cut(string(o.Bytes()), "@")
	return text
}

// word is a key. Some have the same hash, or the same lower bits of it.
type word string

func (w word) Hash() uint64 {
	switch w[0] {
	case 'x', 'y':
		return 3
	case 'z':
		return 3 | 1<<60
	}
	return maphash.String(seed, string(w))
}

var seed = maphash.MakeSeed()

// words reads an object whose text are keys. The value of a key is its position.
func words(o *store.Object) iter.Seq2[word, int] {
	return func(yield func(word, int) bool) {
		for i, key := range strings.Fields(text(o)) {
			if !yield(word(key), i) {
				return
			}
		}
	}
}

// all returns the objects of a collection as one text.
func all(s store.Snapshot) string {
	var b strings.Builder
	for o := range s.Scan("", "") {
		fmt.Fprintf(&b, "%s@%d;", o.Key, o.Modified)
	}
	return b.String()
}

// whole is a value that contains the state that it was made from.
type whole struct {
	revision store.Revision
	text     string
}

// TestFresh: under concurrent writes, each reader gets the value of its state or of a
// newer one, as a computation from nothing makes it.
func TestFresh(t *testing.T) {
	s := open(t)
	chance := testrand.New(t)
	value := derived.New(func(now []store.Snapshot) whole {
		return whole{now[0].Revision(), all(now[0]) + all(now[1])}
	}, "a", "b")
	index := derived.NewIndex("a", words)
	memo := derived.NewMemo(16, func(o *store.Object) (string, error) { return text(o), nil })
	var writers, readers sync.WaitGroup
	var done atomic.Bool
	for w := range 3 {
		random := &writer{t: t, store: s, chance: rand.New(rand.NewPCG(chance.Uint64(), 0)), name: w, there: map[[2]string]store.Revision{}}
		writers.Go(func() {
			for range 400 {
				random.write()
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				state := s.Any()
				got := value.At(state)
				if got.revision < state.Revision() && got.text != all(state.Snapshot("a"))+all(state.Snapshot("b")) {
					t.Errorf("at %d: the value of %d", state.Revision(), got.revision)
				}
				index.At(state).Get("x")
				for o := range state.Snapshot("a").Scan("", "") {
					if got, _ := memo.Of(o); got != text(o) {
						t.Errorf("at %d: %s is remembered as %q, want %q", state.Revision(), o.Key, got, text(o))
					}
				}
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	state := s.Any()
	if got, want := value.At(state).text, all(state.Snapshot("a"))+all(state.Snapshot("b")); got != want {
		t.Errorf("the value is\n%s\nwant\n%s", got, want)
	}
	wantIndex(t, index, state)
}

// writer writes objects at random that no other writer writes.
type writer struct {
	t      *testing.T
	store  *store.Store
	chance *rand.Rand
	name   int
	there  map[[2]string]store.Revision
}

func (w *writer) write() {
	at := [2]string{[]string{"a", "a", "a", "b"}[w.chance.IntN(4)], fmt.Sprintf("n%d/%d-%d", w.chance.IntN(3), w.name, w.chance.IntN(40))}
	if r, found := w.there[at]; found && w.chance.IntN(3) == 0 {
		remove(w.t, w.store, at[0], at[1], r)
		delete(w.there, at)
		return
	}
	var keys []string
	for _, key := range []string{"x", "y", "z", "w", "x"} {
		if w.chance.IntN(4) == 0 {
			keys = append(keys, key)
		}
	}
	w.there[at] = put(w.t, w.store, at[0], at[1], strings.Join(keys, " "), w.there[at])
}

// wantIndex compares an index with a new one of the same state.
func wantIndex(t *testing.T, x *derived.Index[word, int], s *store.State) {
	t.Helper()
	fresh := map[word][]derived.Entry[int]{}
	for o := range s.Snapshot("a").Scan("", "") {
		seen := map[word]bool{}
		for key, value := range words(o) {
			if !seen[key] {
				fresh[key] = append(fresh[key], derived.Entry[int]{Object: o, Value: value})
			}
			seen[key] = true
		}
	}
	same := func(e *derived.Entry[int], want derived.Entry[int]) bool { return *e == want }
	for _, key := range []word{"x", "y", "z", "w", "none"} {
		if got, want := x.At(s).Get(key), fresh[key]; !slices.EqualFunc(got, want, same) {
			t.Errorf("at %d: %q has %v, want %v", s.Revision(), key, got, want)
		}
	}
}

// TestIndex compares an index with a new one after each of many changes, and after many changes at
// once.
func TestIndex(t *testing.T) {
	s, chance := open(t), testrand.New(t)
	random := &writer{t: t, store: s, chance: chance, there: map[[2]string]store.Revision{}}
	x := derived.NewIndex("a", words)
	for range 300 {
		for range chance.IntN(5) {
			random.write()
		}
		wantIndex(t, x, s.Any())
	}
}

// TestOlder: a reader that comes with an older state gets the newer value.
func TestOlder(t *testing.T) {
	s := open(t)
	value := derived.New(func(now []store.Snapshot) string { return all(now[0]) }, "a")
	old := s.Any()
	put(t, s, "a", "x", "x", 0)
	now := s.Any()
	if got, want := value.At(now), all(now.Snapshot("a")); got != want {
		t.Errorf("now: %q, want %q", got, want)
	}
	if got, want := value.At(old), all(now.Snapshot("a")); got != want {
		t.Errorf("with an older state: %q, want %q", got, want)
	}
}

// TestOnce: a value is made once for each change, however many readers ask, and not for
// changes of other collections.
func TestOnce(t *testing.T) {
	s := open(t)
	made := 0
	value := derived.New(func(now []store.Snapshot) int { made++; return made }, "a")
	for i := range 10 {
		put(t, s, "a", fmt.Sprint(i), "x", 0)
		put(t, s, "b", fmt.Sprint(i), "x", 0)
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				if got := value.At(s.Any()); got != i+1 {
					t.Errorf("change %d: value %d", i, got)
				}
			})
		}
		readers.Wait()
	}
}

// TestPanic: a value whose making panics is made again for the next reader.
func TestPanic(t *testing.T) {
	s := open(t)
	fails := true
	value := derived.New(func(now []store.Snapshot) int {
		if fails {
			panic("the first computation fails")
		}
		return 1
	}, "a")
	func() {
		defer func() { recover() }()
		value.At(s.Any())
	}()
	if fails = false; value.At(s.Any()) != 1 {
		t.Error("no value after a panic")
	}
}

// filled is a store of 10,000 objects, each of them under one of 100 keys.
func filled(b *testing.B) *store.Store {
	s := open(b)
	for i := range 10_000 {
		put(b, s, "a", fmt.Sprintf("n%d/%d", i%100, i), fmt.Sprint("k", i%100), 0)
	}
	return s
}

func BenchmarkUnchanged(b *testing.B) {
	s := filled(b)
	state := s.Any()
	b.Run("value", func(b *testing.B) {
		value := derived.New(func(now []store.Snapshot) int { return now[0].Count("", "") }, "a", "b")
		b.ReportAllocs()
		for b.Loop() {
			value.At(state)
		}
	})
	b.Run("index", func(b *testing.B) {
		x := derived.NewIndex("a", words)
		b.ReportAllocs()
		for b.Loop() {
			x.At(state).Get("k7")
		}
	})
	b.Run("memo", func(b *testing.B) {
		memo := derived.NewMemo(64, func(o *store.Object) (string, error) { return text(o), nil })
		o := state.Get("a", "n7/7")
		b.ReportAllocs()
		for b.Loop() {
			memo.Of(o)
		}
	})
}

// BenchmarkIndexChange updates an index of 10,000 objects by one change.
func BenchmarkIndexChange(b *testing.B) {
	s := filled(b)
	x := derived.NewIndex("a", words)
	x.At(s.Any())
	revision := s.Any().Get("a", "n7/7").Modified
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		revision = put(b, s, "a", "n7/7", "k7", revision)
		b.StartTimer()
		x.At(s.Any()).Get("k7")
	}
}

// BenchmarkIndexStart makes an index of 10,000 objects.
func BenchmarkIndexStart(b *testing.B) {
	s := filled(b)
	for b.Loop() {
		derived.NewIndex("a", words).At(s.Any())
	}
}

// TestTracker: each reader finds the value of its state or of a newer one, and nothing changes it
// meanwhile.
func TestTracker(t *testing.T) {
	s := open(t)
	chance := testrand.New(t)
	names := []string{"a", "b"}
	value, changes := map[string]store.Revision{}, 0
	tracker := derived.NewTracker(func(collection int, key string, after *store.Object) {
		changes++
		at := names[collection] + " " + key
		if after == nil {
			delete(value, at)
		} else {
			value[at] = after.Modified
		}
	}, names...)
	var writers, readers sync.WaitGroup
	var done atomic.Bool
	for w := range 3 {
		random := &writer{t: t, store: s, chance: rand.New(rand.NewPCG(chance.Uint64(), 0)), name: w, there: map[[2]string]store.Revision{}}
		writers.Go(func() {
			for range 300 {
				random.write()
			}
		})
	}
	var asked atomic.Uint64 // the newest revision that a reader asked for
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				state := s.Any()
				for seen := asked.Load(); seen < uint64(state.Revision()) && !asked.CompareAndSwap(seen, uint64(state.Revision())); {
					seen = asked.Load()
				}
				tracker.RLock(state)
				exact := asked.Load() == uint64(state.Revision())
				objects := 0
				for _, name := range names {
					for o := range state.Snapshot(name).Scan("", "") {
						objects++
						// In a newer state, the object may be deleted.
						if at := value[name+" "+o.Key]; at < o.Modified && (exact || at != 0) {
							t.Errorf("at %d: %s is known at %d", state.Revision(), o.Key, at)
						}
					}
				}
				if exact && len(value) != objects {
					t.Errorf("at %d: %d objects are known, want %d", state.Revision(), len(value), objects)
				}
				tracker.RUnlock()
			}
		})
	}
	writers.Wait()
	done.Store(true)
	readers.Wait()
	state, want := s.Any(), map[string]store.Revision{}
	for _, name := range names {
		for o := range state.Snapshot(name).Scan("", "") {
			want[name+" "+o.Key] = o.Modified
		}
	}
	tracker.RLock(state)
	if !maps.Equal(value, want) {
		t.Errorf("got %v, want %v", value, want)
	}
	tracker.RUnlock()
	before := changes
	put(t, s, "c", "x", "text", 0)
	put(t, s, "a", "x9", "text", 0)
	tracker.RLock(s.Any())
	tracker.RUnlock()
	if changes != before+1 {
		t.Errorf("one change of one object was passed on as %d", changes-before)
	}
}

// TestShare: a value of a fork begins with that of its parent, and both then follow their own stores,
// whose revisions are the same numbers.
func TestShare(t *testing.T) {
	s := open(t)
	first := put(t, s, "a", "x", "x", 0)
	made := 0
	compute := func(now []store.Snapshot) string { made++; return all(now[0]) }
	parent := derived.New(compute, "a")
	parent.At(s.Any())
	f, err := stores.Fork(s, s.Any(), store.Options{Log: memlog.From(s.Any())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { storetest.Close(t, f) })
	fork := derived.New(compute, "a")
	fork.Share(parent)
	if got := fork.At(f.Any()); got != all(f.Any().Snapshot("a")) || made != 1 {
		t.Errorf("the fork has %q, made %d times", got, made)
	}
	put(t, s, "a", "x", "of-parent", first)
	put(t, f, "a", "x", "of-fork", first)
	parent.At(s.Any())
	for name, row := range map[string]struct {
		value *derived.Value[string]
		of    *store.Store
	}{"parent": {parent, s}, "fork": {fork, f}} {
		if got, want := row.value.At(row.of.Any()), all(row.of.Any().Snapshot("a")); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if made != 3 {
		t.Errorf("made %d times, want 3: one for each write", made)
	}
	late := derived.New(compute, "a") // the parent's value is of a state that the fork never had
	late.Share(parent)
	if got, want := late.At(f.Any()), all(f.Any().Snapshot("a")); got != want {
		t.Errorf("a value that is shared later: %q, want %q", got, want)
	}
}
