package derived

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Index holds all objects of a collection as they were read, by keys that follow from
// them. One change costs about the reading of the object before and after and a copy of
// the groups that it is in, however many objects there are. Its methods are safe for
// concurrent use; make one with NewIndex.
type Index[T any] struct {
	groups *Value[*groups[T]]
	read   func(*store.Object) (T, []string, error)
	seed   maphash.Seed
}

// Entry is an object of an Index, and what reading it returned.
type Entry[T any] struct {
	Object *store.Object
	Value  T
	Err    error
}

// groups are the entries by their keys, in shards: an update copies the shards that it
// changes.
type groups[T any] [256]map[string][]Entry[T]

// NewIndex returns an index of the objects of a collection. Read returns the keys that an
// object is found by, and always the same for an object. One that returns an error is
// found by the keys that come with it.
func NewIndex[T any](collection string, read func(*store.Object) (value T, keys []string, err error)) *Index[T] {
	x := &Index[T]{read: read, seed: maphash.MakeSeed()}
	x.groups = NewIncremental(new(groups[T]), x.update, collection)
	return x
}

// At returns the entries with a key in a published state, or in a newer one, in the order
// of the objects' keys.
func (x *Index[T]) At(s *store.State, key string) []Entry[T] {
	return x.groups.At(s)[x.shard(key)][key]
}

func (x *Index[T]) shard(key string) uint64 {
	return maphash.String(x.seed, key) % uint64(len(groups[T]{}))
}

func (x *Index[T]) update(last *groups[T], then, now store.Snapshot) *groups[T] {
	gone, come := map[string]map[*store.Object]bool{}, map[string][]Entry[T]{}
	for before, after := range now.Since(then) {
		if before != nil {
			_, keys, _ := x.read(before)
			for _, key := range keys {
				if gone[key] == nil {
					gone[key] = map[*store.Object]bool{}
				}
				gone[key][before] = true
			}
		}
		if after != nil {
			value, keys, err := x.read(after)
			for _, key := range keys {
				come[key] = append(come[key], Entry[T]{after, value, err})
			}
		}
	}
	next, copied := *last, map[uint64]bool{}
	replace := func(key string) {
		i := x.shard(key)
		if !copied[i] {
			copied[i] = true
			if next[i] = maps.Clone(last[i]); next[i] == nil {
				next[i] = map[string][]Entry[T]{}
			}
		}
		kept := slices.DeleteFunc(slices.Clone(last[i][key]), func(e Entry[T]) bool { return gone[key][e.Object] })
		if next[i][key] = append(kept, come[key]...); len(next[i][key]) == 0 {
			delete(next[i], key)
		}
		slices.SortFunc(next[i][key], func(a, b Entry[T]) int { return cmp.Compare(a.Object.Key, b.Object.Key) })
	}
	for key := range gone {
		replace(key)
	}
	for key := range come {
		if gone[key] == nil {
			replace(key)
		}
	}
	return &next
}
