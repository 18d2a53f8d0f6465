package store

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// State is the whole store at one revision: immutable, shared, free to keep for
// the length of a request.
type State struct {
	revision Revision
	// indexes has the index of each collection in roots. It is shared and never changed.
	indexes map[string]int
	roots   roots
	// bytes is the memory that the objects of the store take, see Store.owned. copied is the part of it that a fork that
	// begins with the state does not share, see StateAt.
	bytes, copied int64
	// time is that of the newest change that had one, or of a later one.
	time time.Time
}

// roots holds the root of each collection at collection.index, in pieces, so that a
// commit copies one piece instead of thousands of roots.
type roots []*[rootsPiece]*node

const rootsPiece = 32

func (r roots) at(index int) *node {
	if piece := index / rootsPiece; piece < len(r) {
		return r[piece][index%rootsPiece]
	}
	return nil
}

// Revision is the revision of the newest change of the whole store: a list's version.
func (s *State) Revision() Revision { return s.revision }

// Time is the Origin.Time of the newest change of the whole store; zero: unknown.
func (s *State) Time() time.Time { return s.time }

// Bytes is about the memory that the objects take. The state of a fork does not count the objects that
// it shares with its parent. It counts the copies that the fork began with, also when they were deleted.
func (s *State) Bytes() int64 { return s.bytes }

// Get returns the object, nil when there is none. It does not allocate.
func (s *State) Get(collection, key string) *Object {
	if i, known := s.indexes[collection]; known {
		return s.roots.at(i).get(key)
	}
	return nil
}

// Snapshot returns a collection of the state; an unknown one is empty.
func (s *State) Snapshot(collection string) Snapshot {
	if i, known := s.indexes[collection]; known {
		return Snapshot{s.revision, s.roots.at(i)}
	}
	return Snapshot{s.revision, nil}
}

// All yields all objects with their collections, ordered by collection and key.
func (s *State) All() iter.Seq2[string, *Object] {
	return func(yield func(string, *Object) bool) {
		for collection := range s.Collections() {
			for o := range s.Snapshot(collection).Scan("", "") {
				if !yield(collection, o) {
					return
				}
			}
		}
	}
}

// Snapshot is one collection at one revision.
type Snapshot struct {
	revision Revision
	root     *node
}

// Same reports whether the collection did not change between two states of one store. It
// costs one comparison. It may be false for a collection that was changed back.
func (s Snapshot) Same(other Snapshot) bool { return s.root == other.root }

// Revision is the revision of the snapshot's state.
func (s Snapshot) Revision() Revision { return s.revision }

// Get returns the object, nil when there is none. It does not allocate.
func (s Snapshot) Get(key string) *Object { return s.root.get(key) }

// Scan yields the objects whose key has the prefix and is greater than after,
// in the order of their keys. It allocates nothing per object.
func (s Snapshot) Scan(prefix, after string) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		r, some := newSpan(prefix, after)
		if s.root != nil && some {
			s.root.scan(&r, true, prefix != "", yield)
		}
	}
}

// Len returns how many objects there are.
func (s Snapshot) Len() int {
	if s.root == nil {
		return 0
	}
	return s.root.count
}

// Count counts the objects that Scan would yield, in O(log n).
func (s Snapshot) Count(prefix, after string) int {
	if s.root == nil {
		return 0
	}
	r, some := newSpan(prefix, after)
	if !some {
		return 0
	}
	return s.root.countIn(&r)
}

// Collections yields the names of the collections that hold, or held, objects, in
// their order.
func (s *State) Collections() iter.Seq[string] {
	return slices.Values(slices.Sorted(maps.Keys(s.indexes)))
}

// size is the memory of all objects, also of those that the store shares with others.
func (s *State) size() int64 {
	var n int64
	for _, o := range s.All() {
		n += ObjectBytes(o)
	}
	return n
}
