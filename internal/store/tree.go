package store

import (
	"slices"
	"strings"
	"sync/atomic"
)

// A collection is a persistent B+ tree: the objects are in the leaves, in the
// order of their keys; inner nodes guide to them. Nodes that were published never
// change. An edit copies the nodes on the way to the object that it changes, and
// shares all others with the tree that it started from; the nodes that it copied
// itself, it changes in place. So a group of writes copies each node once.
//
//	inner   [ "a/1" 96 | "d/7" 83 ]           the least key and the node of each branch
//	         /            \
//	leaf  [a/1 a/2 ... ]  [d/7 d/8 ... ]      up to leafMax neighbours
//
// Invariants of every published tree:
//
//   - keys grow strictly from left to right
//   - branch.first <= every key of the branch, > every key of the branch before
//   - count is the number of objects of the subtree
//   - no leaf is empty, no inner node has fewer than two branches; an empty tree
//     is nil; all leaves are equally deep
//
// The sizes were measured, see docs/decisions/0001-tree.md.
const (
	leafMax  = 64
	innerMax = 32
	// A node that shrinks below a quarter is merged with a neighbour or takes objects or
	// branches from it.
	leafMin  = leafMax / 4
	innerMin = innerMax / 4
)

// node is a node of a tree: a leaf when it has no branches.
type node struct {
	edit     uint64 // the edit that made it: the only one that may change it
	count    int
	objects  []*Object
	branches []branch
	// digests are those of the objects, side by side in memory. A scan fills them in when
	// all are known. Only published leaves have them.
	digests atomic.Pointer[[]uint64]
}

type branch struct {
	first string
	*node
}

func (n *node) leaf() bool { return n.branches == nil }

// width is the number of objects or branches of the node itself.
func (n *node) width() int { return len(n.objects) + len(n.branches) }

// nodeBytes is the memory of a node, without its objects.
func nodeBytes(n *node) int64 {
	return 64 + int64(cap(n.objects))*8 + int64(cap(n.branches))*24
}

// search returns the index of the key among objects, or where it would be inserted.
func search(objects []*Object, key string) (int, bool) {
	i, j := 0, len(objects)
	for i < j {
		m := int(uint(i+j) >> 1)
		if objects[m].Key < key {
			i = m + 1
		} else {
			j = m
		}
	}
	return i, i < len(objects) && objects[i].Key == key
}

// branchOf returns the branch that may hold the key.
func (n *node) branchOf(key string) int {
	i, j := 1, len(n.branches)
	for i < j {
		m := int(uint(i+j) >> 1)
		if n.branches[m].first <= key {
			i = m + 1
		} else {
			j = m
		}
	}
	return i - 1
}

// get returns the object with the key, nil when there is none.
func (n *node) get(key string) *Object {
	if n == nil {
		return nil
	}
	for !n.leaf() {
		n = n.branches[n.branchOf(key)].node
	}
	if i, found := search(n.objects, key); found {
		return n.objects[i]
	}
	return nil
}

// edit is a series of changes that share the nodes they copy. One goroutine uses it. A
// sealed tree stays unchanged because its edit is never used again.
type edit struct {
	token uint64
	// kept is the token of the last edit whose result is kept as an old state.
	kept uint64

	// retired counts the bytes of nodes that this edit replaced and the kept state still
	// uses; made counts the bytes of nodes that the edit made.
	retired, made int64
}

// own returns the node itself if the edit made it, a copy otherwise, with room
// for more objects or branches.
func (e *edit) own(n *node, more int) *node {
	if n.edit == e.token {
		return n
	}
	if n.edit <= e.kept {
		e.retired += nodeBytes(n)
	}
	c := &node{edit: e.token, count: n.count}
	if n.leaf() {
		c.objects = append(slices.Grow([]*Object(nil), len(n.objects)+more), n.objects...)
	} else {
		c.branches = append(slices.Grow([]branch(nil), len(n.branches)+more), n.branches...)
	}
	e.made += nodeBytes(c)
	return c
}

// put returns the tree with the object in it, and the version that it replaced.
func (e *edit) put(root *node, o *Object) (*node, *Object) {
	if root == nil {
		n := &node{edit: e.token, count: 1, objects: []*Object{o}}
		e.made += nodeBytes(n)
		return n, nil
	}
	n, right, old := e.insert(root, o)
	if right == nil {
		return n, old
	}
	top := &node{edit: e.token, count: n.count + right.count,
		branches: []branch{{n.lowest(), n}, {right.lowest(), right}}}
	e.made += nodeBytes(top)
	return top, old
}

// insert returns the node with the object added below it, and a second node if it had to
// be split.
func (e *edit) insert(n *node, o *Object) (left, right *node, old *Object) {
	if n.leaf() {
		i, found := search(n.objects, o.Key)
		if found {
			n = e.own(n, 0)
			old, n.objects[i] = n.objects[i], o
			return n, nil, old
		}
		n = e.own(n, 1)
		n.objects = slices.Insert(n.objects, i, o)
		n.count++
		if len(n.objects) > leafMax {
			right = e.splitLeaf(n, i)
		}
		return n, right, nil
	}
	i := n.branchOf(o.Key)
	child, split, old := e.insert(n.branches[i].node, o)
	n = e.own(n, 1)
	n.branches[i].node = child
	if o.Key < n.branches[i].first {
		n.branches[i].first = o.Key
	}
	if old == nil {
		n.count++
	}
	if split != nil {
		n.branches = slices.Insert(n.branches, i+1, branch{split.lowest(), split})
		if len(n.branches) > innerMax {
			right = e.splitInner(n)
		}
	}
	return n, right, old
}

// splitLeaf moves the right half of the leaf into a new one. The last object was inserted
// at i: if keys come in order, the left leaf stays full.
func (e *edit) splitLeaf(n *node, i int) *node {
	at := len(n.objects) / 2
	if i == len(n.objects)-1 {
		at = i
	}
	right := &node{edit: e.token, objects: slices.Clone(n.objects[at:])}
	clear(n.objects[at:])
	n.objects = n.objects[:at]
	right.count, n.count = len(right.objects), at
	e.made += nodeBytes(right)
	return right
}

func (e *edit) splitInner(n *node) *node {
	at := len(n.branches) / 2
	right := &node{edit: e.token, branches: slices.Clone(n.branches[at:])}
	clear(n.branches[at:])
	n.branches = n.branches[:at]
	for _, b := range right.branches {
		right.count += b.count
	}
	n.count -= right.count
	e.made += nodeBytes(right)
	return right
}

// lowest is a key that is at most the first key of the node, and greater than all keys
// before the node.
func (n *node) lowest() string {
	if n.leaf() {
		return n.objects[0].Key
	}
	return n.branches[0].first
}

// remove returns the tree without the key, which must be there, and its version.
func (e *edit) remove(root *node, key string) (*node, *Object) {
	n, old := e.cut(root, key)
	for !n.leaf() && len(n.branches) == 1 {
		n = n.branches[0].node
	}
	if n.count == 0 {
		return nil, old
	}
	return n, old
}

func (e *edit) cut(n *node, key string) (*node, *Object) {
	if n.leaf() {
		i, _ := search(n.objects, key)
		n = e.own(n, 0)
		old := n.objects[i]
		n.objects = slices.Delete(n.objects, i, i+1)
		n.count--
		return n, old
	}
	i := n.branchOf(key)
	child, old := e.cut(n.branches[i].node, key)
	n = e.own(n, 0)
	n.branches[i].node = child
	n.count--
	if child.leaf() && child.width() < leafMin || !child.leaf() && child.width() < innerMin {
		e.rebalance(n, i)
	}
	return n, old
}

// rebalance merges branch i, which became small, with a neighbour. If they do not fit into
// one node, it divides their contents evenly.
func (e *edit) rebalance(n *node, i int) {
	if i == len(n.branches)-1 {
		i--
	}
	left, right := e.own(n.branches[i].node, 0), n.branches[i+1].node
	most := innerMax
	if left.leaf() {
		most = leafMax
	}
	if left.width()+right.width() <= most*3/4 {
		if right.edit != e.token && right.edit <= e.kept {
			e.retired += nodeBytes(right)
		}
		left.objects = append(left.objects, right.objects...)
		left.branches = append(left.branches, right.branches...)
		left.count += right.count
		n.branches[i].node = left
		n.branches = slices.Delete(n.branches, i+1, i+2)
		return
	}
	right = e.own(right, 0)
	level(left, right)
	n.branches[i].node = left
	n.branches[i+1] = branch{right.lowest(), right}
}

// level moves objects or branches so that both nodes have equally many.
func level(left, right *node) {
	half := (left.width() + right.width()) / 2
	total := left.count + right.count
	if left.leaf() {
		all := slices.Concat(left.objects, right.objects)
		left.objects, right.objects = slices.Clone(all[:half]), slices.Clone(all[half:])
		left.count = half
	} else {
		all := slices.Concat(left.branches, right.branches)
		left.branches, right.branches = slices.Clone(all[:half]), slices.Clone(all[half:])
		left.count = 0
		for _, b := range left.branches {
			left.count += b.count
		}
	}
	right.count = total - left.count
}

// build makes a tree of objects that are in order. It leaves a little room in the leaves
// for later insertions.
func build(objects []*Object) *node {
	if len(objects) == 0 {
		return nil
	}
	var level []*node
	for part := range slices.Chunk(objects, leafMax*7/8) {
		level = append(level, &node{count: len(part), objects: slices.Clone(part)})
	}
	for len(level) > 1 {
		level = buildLevel(level)
	}
	return level[0]
}

func buildLevel(nodes []*node) []*node {
	var above []*node
	parts := (len(nodes) + innerMax - 1) / innerMax
	for i := range parts {
		part := nodes[i*len(nodes)/parts : (i+1)*len(nodes)/parts]
		n := &node{branches: make([]branch, 0, len(part))}
		for _, c := range part {
			n.branches = append(n.branches, branch{c.lowest(), c})
			n.count += c.count
		}
		above = append(above, n)
	}
	return above
}

// span is a range of keys: those with the prefix that are greater than after.
type span struct {
	prefix, after string
	from          string // the greater of the two
	exclusive     bool   // from itself is not in the range

	may func(digest uint64) bool // whether to yield an object; nil: all
}

// newSpan returns false when no key can be in the range.
func newSpan(prefix, after string) (span, bool) {
	if after == "" || after < prefix {
		return span{prefix: prefix, after: after, from: prefix}, true
	}
	return span{prefix: prefix, after: after, from: after, exclusive: true}, strings.HasPrefix(after, prefix)
}

// past reports whether the key lies beyond all keys with the prefix.
func (r *span) past(key string) bool {
	return key > r.prefix && !strings.HasPrefix(key, r.prefix)
}

// begin is the index of the first object of a leaf that is not before the range.
func (r *span) begin(objects []*Object) int {
	i, found := search(objects, r.from)
	if found && r.exclusive {
		i++
	}
	return i
}

// end is the index of the first object of a leaf that is past the range.
func (r *span) end(objects []*Object) int {
	if r.prefix == "" {
		return len(objects)
	}
	i, j := 0, len(objects)
	for i < j {
		m := int(uint(i+j) >> 1)
		if r.past(objects[m].Key) {
			j = m
		} else {
			i = m + 1
		}
	}
	return i
}

// scan yields the objects of the range, in order. Low and high report whether the range may
// begin or end within the node. Most nodes are entirely inside; their objects' keys need no
// comparison.
func (n *node) scan(r *span, low, high bool, yield func(*Object) bool) bool {
	if n.leaf() {
		i, j := 0, len(n.objects)
		if low {
			i = r.begin(n.objects)
		}
		if high {
			j = r.end(n.objects)
		}
		var digests []uint64
		if r.may != nil {
			digests = n.known()
		}
		for ; i < j; i++ {
			if digests != nil && !r.may(digests[i]) {
				continue
			}
			if !yield(n.objects[i]) {
				return false
			}
		}
		return true
	}
	i := 0
	if low {
		i = n.branchOf(r.from)
	}
	for ; i < len(n.branches); i++ {
		ends := high && (i+1 == len(n.branches) || r.past(n.branches[i+1].first))
		if !n.branches[i].scan(r, low, ends, yield) {
			return false
		}
		if ends && i+1 < len(n.branches) {
			return true
		}
		low = false
	}
	return true
}

// known returns the digests of a leaf's objects; nil: one of them has none yet.
func (n *node) known() []uint64 {
	if d := n.digests.Load(); d != nil {
		return *d
	}
	all := make([]uint64, len(n.objects))
	for i, o := range n.objects {
		if all[i] = o.Digest(); all[i] == 0 {
			return nil
		}
	}
	n.digests.Store(&all)
	return all
}

// countIn counts the objects of the range.
func (n *node) countIn(r *span) int {
	return max(0, n.before(r.branchEnd, r.end)-n.before(r.branchBegin, r.begin))
}

// before counts the objects before a border of the range, which the two functions
// find among branches and among objects.
func (n *node) before(among func(*node) int, within func([]*Object) int) int {
	count := 0
	for !n.leaf() {
		i := among(n)
		for _, b := range n.branches[:i] {
			count += b.count
		}
		n = n.branches[i].node
	}
	return count + within(n.objects)
}

func (r *span) branchBegin(n *node) int { return n.branchOf(r.from) }

func (r *span) branchEnd(n *node) int {
	if r.prefix == "" {
		return len(n.branches) - 1
	}
	i, j := 1, len(n.branches)
	for i < j {
		m := int(uint(i+j) >> 1)
		if r.past(n.branches[m].first) {
			j = m
		} else {
			i = m + 1
		}
	}
	return i - 1
}

// all returns the objects of the tree.
func (n *node) all() []*Object {
	if n == nil {
		return nil
	}
	objects := make([]*Object, 0, n.count)
	n.scan(&span{}, false, false, func(o *Object) bool {
		objects = append(objects, o)
		return true
	})
	return objects
}

// set stores the object, or removes the key if the object is nil.
func (e *edit) set(root *node, o *Object, key string) *node {
	if o != nil {
		root, _ = e.put(root, o)
		return root
	}
	root, _ = e.remove(root, key)
	return root
}
