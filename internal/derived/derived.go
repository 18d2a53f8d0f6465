// Package derived keeps values that are made from stored objects: the catalog of custom kinds, the
// default StorageClass, the quotas of a namespace.
//
//   - A [Value] is a function of whole collections. It is made again after they changed.
//   - An [Index] groups the objects of one collection by keys, such as their namespaces.
//     It is updated from the changes.
//   - A [Tracker] keeps a value that its owner changes in place in step with collections.
//   - A [Memo] is a function of single objects, and caches the last results.
//
// Readers pass the state that they work with, and get a value of that state or of a newer one: so a
// change is in effect for each request that begins after it. Reads of unchanged values take no lock
// and do not allocate. The values are shared and must not be changed.
package derived

import (
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Value is a V made from one or more collections of a store. Its methods are safe for
// concurrent use; make one with New or NewIncremental.
type Value[V any] struct {
	collections []string
	update      func(last V, then, now []store.Snapshot) V

	mu   sync.Mutex // held to update made
	made atomic.Pointer[made[V]]
}

// made is a value and the snapshots that it was made from.
type made[V any] struct {
	value V
	from  []store.Snapshot
	// upTo is a revision at which the collections were as in from.
	upTo atomic.Uint64
}

// New returns a value that is made anew whenever one of the collections has changed. The
// snapshots passed to make are in the order of the collections.
func New[V any](make func(now []store.Snapshot) V, collections ...string) *Value[V] {
	return &Value[V]{collections: collections, update: func(_ V, _, now []store.Snapshot) V { return make(now) }}
}

// NewIncremental returns a value that is updated from the changes of the collection: update returns
// the value of the snapshot now, given the value last of the snapshot then, and does not modify
// last. The first update gets the value start and an empty snapshot.
func NewIncremental[V any](start V, update func(last V, then, now store.Snapshot) V, collection string) *Value[V] {
	v := &Value[V]{collections: []string{collection}}
	v.update = func(last V, then, now []store.Snapshot) V {
		if then == nil {
			return update(start, store.Snapshot{}, now[0])
		}
		return update(last, then[0], now[0])
	}
	return v
}

// At returns the value of a published state, or of a newer one that another reader asked
// for. It waits while the value is made, which one reader does for all.
func (v *Value[V]) At(s *store.State) V {
	if m := v.made.Load(); v.holds(m, s) {
		return m.value
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	m := v.made.Load()
	if v.holds(m, s) {
		return m.value
	}
	if m == nil {
		m = new(made[V])
	}
	next := &made[V]{from: make([]store.Snapshot, len(v.collections))}
	for i, name := range v.collections {
		next.from[i] = s.Snapshot(name)
	}
	next.value = v.update(m.value, m.from, next.from)
	next.upTo.Store(uint64(s.Revision()))
	v.made.Store(next)
	return next.value
}

// Share makes v start with the value of other, if it has one. It is for a value of a fork of
// other's store, before v is used. The functions of both values must make equal results, which both
// use.
func (v *Value[V]) Share(other *Value[V]) {
	if m := other.made.Load(); m != nil {
		// The revisions of a fork and of its parent mean different states, so upTo stays zero.
		v.made.Store(&made[V]{value: m.value, from: m.from})
	}
}

// holds reports whether a value is that of the state, or of a newer one.
func (v *Value[V]) holds(m *made[V], s *store.State) bool {
	if m == nil {
		return false
	}
	if uint64(s.Revision()) <= m.upTo.Load() {
		return true
	}
	for i, name := range v.collections {
		if !m.from[i].Same(s.Snapshot(name)) {
			return false
		}
	}
	m.upTo.Store(uint64(s.Revision()))
	return true
}
