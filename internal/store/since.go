package store

import (
	"cmp"
	"iter"
)

// Since yields the changes of the collection since an older snapshot of it, in the order
// of keys: the object before, nil for a new one, and the object after, nil for a deleted
// one. It skips the subtrees that both snapshots share, so a few changes cost O(log n)
// each, however large the collection.
func (s Snapshot) Since(old Snapshot) iter.Seq2[*Object, *Object] {
	return func(yield func(before, after *Object) bool) {
		was, is := walkFrom(old.root), walkFrom(s.root)
		for was.more() || is.more() {
			order := was.compare(&is)
			var before, after *Object
			switch {
			case order == 0 && was.same(&is):
				was.skip()
				is.skip()
				continue
			case order == 0:
				before, after = was.take(), is.take()
			case order < 0:
				before = was.take()
			default:
				after = is.take()
			}
			if (before != nil || after != nil) && !yield(before, after) {
				return
			}
		}
	}
}

// A walk visits the nodes and objects of a tree: a node before its children, in the
// order of keys. So two walks that advance the one that is behind reach each node that
// their trees share at the same time, and can skip it.
type walk struct {
	stack []frame
}

// frame is a node that the walk is in.
type frame struct {
	*node
	next   int // branch or object
	height int // of the node; zero: a leaf
}

func walkFrom(root *node) walk {
	if root == nil {
		return walk{}
	}
	height := 1
	for n := root; !n.leaf(); n = n.branches[0].node {
		height++
	}
	return walk{[]frame{{node: &node{branches: []branch{{node: root}}}, height: height}}}
}

func (w *walk) more() bool { return len(w.stack) > 0 }

func (w *walk) top() *frame { return &w.stack[len(w.stack)-1] }

// compare orders the next nodes or objects of two walks: by the least key, a node before the nodes
// and objects below it. The end of a walk comes last.
func (w *walk) compare(other *walk) int {
	switch {
	case !w.more():
		return 1
	case !other.more():
		return -1
	case w.same(other):
		return 0
	}
	return cmp.Or(cmp.Compare(w.key(), other.key()), cmp.Compare(other.top().height, w.top().height))
}

// same reports whether the same node or object is next in two walks.
func (w *walk) same(other *walk) bool {
	a, b := w.top(), other.top()
	if a.leaf() || b.leaf() {
		return a.leaf() && b.leaf() && a.objects[a.next] == b.objects[b.next]
	}
	return a.branches[a.next].node == b.branches[b.next].node
}

// key is the least key of the next node or object.
func (w *walk) key() string {
	l := w.top()
	if l.leaf() {
		return l.objects[l.next].Key
	}
	n := l.branches[l.next].node
	for !n.leaf() {
		n = n.branches[0].node
	}
	return n.objects[0].Key
}

// skip passes the next node, with its children, or the next object.
func (w *walk) skip() {
	w.top().next++
	for w.more() && w.top().next == w.top().width() {
		w.stack = w.stack[:len(w.stack)-1]
	}
}

// take passes the next object and returns it, or enters the next node and returns nil.
func (w *walk) take() *Object {
	l := w.top()
	if l.leaf() {
		o := l.objects[l.next]
		w.skip()
		return o
	}
	below := frame{node: l.branches[l.next].node, height: l.height - 1}
	w.skip()
	w.stack = append(w.stack, below)
	return nil
}
