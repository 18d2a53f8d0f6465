package store

import "iter"

// State is the whole store at one revision: immutable, shared, free to keep for
// the length of a request.
type State struct {
	revision Revision
	// collections gives each name its place; it is shared and never changed.
	collections map[string]*collection
	roots       roots
	// bytes is what the objects take in memory, see objectBytes.
	bytes int64
}

// roots holds the root of each collection at the collection's place, in pieces,
// so that a commit copies one piece and not thousands of roots.
type roots []*[rootsPiece]*node

const rootsPiece = 32

func (r roots) at(place int) *node {
	if piece := place / rootsPiece; piece < len(r) {
		return r[piece][place%rootsPiece]
	}
	return nil
}

// with returns the roots with those of the touched collections replaced by their
// tips.
func (r roots) with(touched []*collection) roots {
	size := len(r)
	for _, c := range touched {
		size = max(size, c.place/rootsPiece+1)
	}
	next := make(roots, size)
	copy(next, r)
	for _, c := range touched {
		i := c.place / rootsPiece
		var old *[rootsPiece]*node
		if i < len(r) {
			old = r[i]
		}
		if next[i] == old {
			next[i] = new([rootsPiece]*node)
			if old != nil {
				*next[i] = *old
			}
		}
		next[i][c.place%rootsPiece] = c.tip
	}
	return next
}

func (s *State) root(c *collection) *node { return s.roots.at(c.place) }

// Revision is that of the newest change of the whole store: a list's version.
func (s *State) Revision() Revision { return s.revision }

// Bytes is about what the objects take in memory.
func (s *State) Bytes() int64 { return s.bytes }

// Get returns the object, nil when there is none. It does not allocate.
func (s *State) Get(collection, key string) *Object {
	if c := s.collections[collection]; c != nil {
		return s.root(c).get(key)
	}
	return nil
}

// Snapshot returns a collection of the state; an unknown one is empty.
func (s *State) Snapshot(collection string) Snapshot {
	if c := s.collections[collection]; c != nil {
		return Snapshot{s.revision, s.root(c)}
	}
	return Snapshot{s.revision, nil}
}

// Snapshot is one collection at one revision.
type Snapshot struct {
	revision Revision
	root     *node
}

// Same tells that the collection did not change between two states of one store.
// It costs a comparison. False may also be said of a collection that was changed back.
func (s Snapshot) Same(other Snapshot) bool { return s.root == other.root }

// Revision is that of the state that the snapshot was taken of.
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

// Count counts what Scan would yield, in O(log n).
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
