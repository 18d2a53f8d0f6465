package derived

import (
	"math/bits"
	"slices"
)

// The groups of an Index are in a persistent hash trie: a node looks at five bits of a hash, and
// has a slot for each value of them that occurs below it. Published nodes never change: an edit
// copies the nodes on the way to a group, and changes in place those that it copied itself. So an
// update of one group costs the same among ten groups and among a million.
//
//	hash of a key:  … 00110 10001
//	root            slot 10001 -> node
//	                              slot 00110 -> group of the key, and of others with its hash

// Key is a key of an Index. Its hash is the same for equal keys; so that clients cannot choose
// keys with equal hashes, it should depend on a random seed.
type Key interface {
	comparable
	Hash() uint64
}

// node is a node of a trie. The zero value has no groups.
type node[K Key, V any] struct {
	edit *edit // the edit that made it: the only one that may change it
	used uint32
	// slots are those of the bits in used, in their order.
	slots []slot[K, V]
}

// slot holds one of the two.
type slot[K Key, V any] struct {
	child *node[K, V]
	group *group[K, V]
}

// group holds the entries of a key. Next is the group of another key with the same hash.
type group[K Key, V any] struct {
	key     K
	entries []*Entry[V]
	next    *group[K, V]
}

// edit is a series of changes that share the nodes that they copy.
type edit struct{ _ byte }

const trieBits = 5

// at returns the bit of a hash in used, and the index of its slot.
func (n *node[K, V]) at(hash uint64) (bit uint32, index int) {
	bit = 1 << (hash & (1<<trieBits - 1))
	return bit, bits.OnesCount32(n.used & (bit - 1))
}

// get returns the entries of a key.
func (n *node[K, V]) get(key K) []*Entry[V] {
	for hash := key.Hash(); ; hash >>= trieBits {
		bit, i := n.at(hash)
		if n.used&bit == 0 {
			return nil
		}
		s := &n.slots[i]
		if n = s.child; n != nil {
			continue
		}
		for g := s.group; g != nil; g = g.next {
			if g.key == key {
				return g.entries
			}
		}
		return nil
	}
}

// put returns the trie with other entries of a key, nil if it holds no groups. No entries: the
// key is removed. Depth is how many nodes are above n.
func (n *node[K, V]) put(e *edit, depth int, key K, entries []*Entry[V]) *node[K, V] {
	if n.edit != e {
		n = &node[K, V]{e, n.used, slices.Clone(n.slots)}
	}
	bit, i := n.at(key.Hash() >> (depth * trieBits))
	if n.used&bit == 0 {
		if len(entries) > 0 {
			n.used |= bit
			n.slots = slices.Insert(n.slots, i, slot[K, V]{group: &group[K, V]{key: key, entries: entries}})
		}
		return n.orNil()
	}
	s := &n.slots[i]
	if s.child == nil && s.group.key.Hash() != key.Hash() { // both go one node down
		below := &node[K, V]{edit: e}
		below.used, _ = below.at(s.group.key.Hash() >> ((depth + 1) * trieBits))
		below.slots = []slot[K, V]{{group: s.group}}
		*s = slot[K, V]{child: below}
	}
	if s.child != nil {
		s.child = s.child.put(e, depth+1, key, entries)
	} else {
		s.group = s.group.with(key, entries)
	}
	if s.child == nil && s.group == nil {
		n.used &^= bit
		n.slots = slices.Delete(n.slots, i, i+1)
	}
	return n.orNil()
}

// orNil returns nil for a node without groups.
func (n *node[K, V]) orNil() *node[K, V] {
	if n.used == 0 {
		return nil
	}
	return n
}

// with returns the groups of a hash with other entries of a key, which are removed if there are
// none.
func (g *group[K, V]) with(key K, entries []*Entry[V]) *group[K, V] {
	var all *group[K, V]
	if len(entries) > 0 {
		all = &group[K, V]{key: key, entries: entries}
	}
	for ; g != nil; g = g.next {
		if g.key != key {
			all = &group[K, V]{g.key, g.entries, all}
		}
	}
	return all
}
