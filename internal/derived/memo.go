package derived

import (
	"hash/maphash"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Memo is a function of single objects of a collection that caches its last results, one for each
// object, as far as there is room; it makes evicted results again. Use it where requests read few
// of many objects. Its methods are safe for concurrent use; make one with NewMemo.
//
// It is exact: an object of any state, published or not, gets its own result.
type Memo[T any] struct {
	read  func(*store.Object) (T, error)
	seed  maphash.Seed
	slots func() []atomic.Pointer[remembered[T]] // by the hash of the key; the first call makes them
}

type remembered[T any] struct {
	of    store.Revision
	value T
	err   error
}

// NewMemo returns a memo of read with room for about that many results, 8 bytes each in
// addition to the results.
func NewMemo[T any](room int, read func(*store.Object) (T, error)) *Memo[T] {
	make := func() []atomic.Pointer[remembered[T]] { return make([]atomic.Pointer[remembered[T]], room) }
	return &Memo[T]{read: read, seed: maphash.MakeSeed(), slots: sync.OnceValue(make)}
}

// Of returns the result of read for an object of a state.
func (m *Memo[T]) Of(o *store.Object) (T, error) {
	slots := m.slots()
	slot := &slots[maphash.String(m.seed, o.Key)%uint64(len(slots))]
	r := slot.Load()
	if r == nil || r.of != o.Modified {
		r = &remembered[T]{of: o.Modified}
		r.value, r.err = m.read(o)
		slot.Store(r)
	}
	return r.value, r.err
}

// Each yields the result of read for each of the objects.
func (m *Memo[T]) Each(objects iter.Seq[*store.Object]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for o := range objects {
			if !yield(m.Of(o)) {
				return
			}
		}
	}
}
