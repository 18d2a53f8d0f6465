package derived

import (
	"cmp"
	"iter"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Index finds the objects of a collection by keys that follow from them, with a value for each
// key of an object. One change costs about the reading of the object before and after and a
// copy of the groups that it is in, however many objects there are: a group is a slice of
// pointers. Its methods are safe for concurrent use; make one with NewIndex.
type Index[K Key, V any] struct {
	groups *Value[*node[K, V]]
	read   func(*store.Object) iter.Seq2[K, V]
}

// Entry is an object of an Index under one of its keys, and the value that it has there.
type Entry[V any] struct {
	Object *store.Object
	Value  V
}

// NewIndex returns an index of the objects of a collection. Read yields the keys that an object
// is found by, and always the same for an object. If it yields a key twice, the first value
// counts.
func NewIndex[K Key, V any](collection string, read func(*store.Object) iter.Seq2[K, V]) *Index[K, V] {
	x := &Index[K, V]{read: read}
	x.groups = NewIncremental(new(node[K, V]), x.update, collection)
	return x
}

// Share makes x start with the groups of other: see Value.Share.
func (x *Index[K, V]) Share(other *Index[K, V]) { x.groups.Share(other.groups) }

// View is an Index at one state.
type View[K Key, V any] struct{ groups *node[K, V] }

// At returns the index at a published state, or at a newer one.
func (x *Index[K, V]) At(s *store.State) View[K, V] { return View[K, V]{x.groups.At(s)} }

// Get returns the entries with a key, in the order of the objects' keys.
func (v View[K, V]) Get(key K) []*Entry[V] { return v.groups.get(key) }

func (x *Index[K, V]) update(last *node[K, V], then, now store.Snapshot) *node[K, V] {
	gone, come := map[K]map[*store.Object]bool{}, map[K][]*Entry[V]{}
	for before, after := range now.Since(then) {
		if before != nil {
			for key := range x.read(before) {
				if gone[key] == nil {
					gone[key] = map[*store.Object]bool{}
				}
				gone[key][before] = true
			}
		}
		if after != nil {
			for key, value := range x.read(after) {
				if all := come[key]; len(all) == 0 || all[len(all)-1].Object != after {
					come[key] = append(all, &Entry[V]{after, value})
				}
			}
		}
	}
	e, next := new(edit), last
	replace := func(key K) {
		if next = next.put(e, 0, key, merge(last.get(key), gone[key], come[key])); next == nil {
			next = &node[K, V]{edit: e}
		}
	}
	for key := range gone {
		replace(key)
	}
	for key := range come {
		if gone[key] == nil {
			replace(key)
		}
	}
	return next
}

// merge returns a copy of a group without the objects that are gone, and with those that come,
// which are in order.
func merge[V any](last []*Entry[V], gone map[*store.Object]bool, come []*Entry[V]) []*Entry[V] {
	all := make([]*Entry[V], 0, max(0, len(last)-len(gone))+len(come))
	for _, e := range last {
		for len(come) > 0 && cmp.Less(come[0].Object.Key, e.Object.Key) {
			all, come = append(all, come[0]), come[1:]
		}
		if !gone[e.Object] {
			all = append(all, e)
		}
	}
	return slices.Concat(all, come)
}
