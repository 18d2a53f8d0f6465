package apply

import "slices"

// Fields that a manager applied last time and no longer applies are removed, unless another
// manager owns them. The library determines them in three steps, with sets in which a
// declared field is a member as soon as something below it is:
//
// 	removed = merged without what was applied last
// 	kept    = merged without what removed lacks and no manager owns
// 	result  = merged without what kept lacks, of what was applied last
//
// The last step restores unowned fields below an element that the first step removed, if
// the element itself is kept.

// prune removes fields that are no longer applied from the merged object. owned is the fields of
// all managers, including those applied now. The result is nil if nothing is removed; ok is false
// where the library has to decide.
func (c *comparison) prune(s *shape, merged []byte, last, owned *trie) (result []byte, ok bool) {
	var t tape
	if t.read(merged) != nil {
		return nil, false
	}
	all, ok := c.setOf(s, &t)
	if !ok {
		return nil, false
	}
	last, owned = last.clone(), owned.clone()
	all.ensure(s, &all.nodes[0])
	last.ensure(s, &last.nodes[0])
	owned.ensure(s, &owned.nodes[0])
	r := remover{c: c, t: &t}
	removed, ok := c.setOfBytes(s, r.without(s, last))
	if !ok {
		return nil, false
	}
	removed.ensure(s, &removed.nodes[0])
	drop := mixed(all, mixed(removed, owned, either), onlyLeft)
	kept, ok := c.setOfBytes(s, r.without(s, drop))
	if !ok {
		return nil, false
	}
	kept.ensure(s, &kept.nodes[0])
	drop = mixed(mixed(all, kept, onlyLeft), last, both)
	if drop.nodes[0].n == 0 {
		return nil, !c.odd
	}
	return r.without(s, drop), !c.odd
}

// setOf returns the set of all paths of an object.
func (c *comparison) setOf(s *shape, t *tape) (*trie, bool) {
	c.patchSet(s, t)
	return c.out.clone(), !c.odd
}

func (c *comparison) setOfBytes(s *shape, object []byte) (*trie, bool) {
	var t tape
	if c.odd || t.read(object) != nil {
		return nil, false
	}
	return c.setOf(s, &t)
}

// clone returns a copy whose marks can be changed. Texts of elements may be in scratch
// memory, and are copied.
func (t *trie) clone() *trie {
	out := &trie{nodes: append([]node(nil), t.nodes...)}
	n := 0
	for i := range out.nodes {
		if out.nodes[i].tag != 'f' {
			n += len(out.nodes[i].text)
		}
	}
	texts := make([]byte, 0, n)
	for i := range out.nodes {
		if x := &out.nodes[i]; x.tag != 'f' {
			start := len(texts)
			texts = append(texts, x.text...)
			x.text = texts[start:len(texts):len(texts)]
		}
	}
	return out
}

// ensure marks the declared fields with members below them as members.
func (t *trie) ensure(s *shape, n *node) {
	for i := range t.below(n) {
		child := &t.below(n)[i]
		var of *shape
		switch {
		case s == nil:
		case child.tag == 'f' && s.dict != nil:
			declared, ok := s.dict.fields[string(child.text)]
			if of = s.dict.others; ok {
				of = declared
			}
			if ok && child.n > 0 {
				child.marks |= member
			}
		case child.tag == 'k' && s.list != nil:
			of = s.list.each
		}
		t.ensure(of, child)
	}
}

// mixed returns the set of the paths for which keep returns true, given which of the two
// sets they are in.
func mixed(a, b *trie, keep func(inA, inB bool) bool) *trie {
	m := mixer{a: a, b: b, keep: keep}
	m.out.nodes = append(make([]node, 0, len(a.nodes)+len(b.nodes)), node{})
	m.out.nodes[0] = m.node(&a.nodes[0], &b.nodes[0])
	return &m.out
}

func either(inA, inB bool) bool   { return inA || inB }
func both(inA, inB bool) bool     { return inA && inB }
func onlyLeft(inA, inB bool) bool { return inA && !inB }

type mixer struct {
	a, b  *trie
	keep  func(inA, inB bool) bool
	out   trie
	stack []node
}

// node combines two paths. Either may be noNode.
func (m *mixer) node(x, y *node) (n node) {
	n.tag, n.text = x.tag, x.text
	if x == &noNode {
		n.tag, n.text = y.tag, y.text
	}
	if m.keep(x.marks&member != 0, y.marks&member != 0) {
		n.marks = member
	}
	a, b := m.a.below(x), m.b.below(y)
	base := len(m.stack)
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = a[0].order(&b[0])
		}
		left, right := &noNode, &noNode
		if order <= 0 {
			left, a = &a[0], a[1:]
		}
		if order >= 0 {
			right, b = &b[0], b[1:]
		}
		if child := m.node(left, right); child.marks != 0 || child.n > 0 {
			m.stack = append(m.stack, child)
		}
	}
	n.first, n.n = int32(len(m.out.nodes)), int32(len(m.stack)-base)
	m.out.nodes = append(m.out.nodes, m.stack[base:]...)
	m.stack = m.stack[:base]
	return n
}

// remover writes an object without some of its paths.
type remover struct {
	c   *comparison
	t   *tape
	out []byte
	set *trie
}

// without returns the object without the paths of the set. A map or list that becomes empty
// becomes null, as in the library.
func (r *remover) without(s *shape, set *trie) []byte {
	r.set, r.out, r.c.right = set, make([]byte, 0, len(r.t.data)), r.t
	r.value(s, 0, &set.nodes[0])
	return r.out
}

func (r *remover) value(s *shape, i int32, n *node) {
	if n.n == 0 {
		r.out = append(r.out, r.t.raw(i)...)
		return
	}
	if s == nil {
		r.c.odd = true
		return
	}
	kind := r.t.values[i].kind
	switch may := r.c.mayBe(s, r.t, i); {
	case r.c.odd:
	case may&mayDict != 0:
		if kind != '{' || s.dict.atomic {
			r.out = append(r.out, "null"...)
			return
		}
		r.dict(s.dict, i, n)
	case may&mayScalar != 0:
		r.out = append(r.out, r.t.raw(i)...)
	default:
		if kind != '[' || s.list.atomic {
			r.out = append(r.out, "null"...)
			return
		}
		r.list(s.list, i, n)
	}
}

// at finds the node of a path element among sorted siblings.
func (r *remover) at(n *node, tag byte, text []byte) *node {
	of, wanted := r.set.below(n), node{tag: tag, text: text}
	i, ok := slices.BinarySearchFunc(of, &wanted, func(a node, b *node) int { return a.order(b) })
	if !ok {
		return &noNode
	}
	return &of[i]
}

func (r *remover) dict(d *dictShape, i int32, n *node) {
	start := len(r.out)
	for m := i + 1; m < r.t.values[i].next; m = r.t.values[m].next {
		key := r.t.key(m)
		of := r.at(n, 'f', key)
		if of.marks&member != 0 {
			continue
		}
		r.open(start, '{')
		v := &r.t.values[m]
		r.out = append(append(r.out, r.t.data[v.key0-1:v.key1+1]...), ':')
		r.value(d.of(key), m, of)
	}
	r.close(start, '}')
}

func (r *remover) list(s *listShape, i int32, n *node) {
	from := len(r.c.pairs)
	r.c.elements(s, r.t, i)
	if r.c.odd {
		return
	}
	start := len(r.out)
	for at := from; at < len(r.c.pairs); at++ {
		e := r.c.pairs[at]
		of := r.at(n, e.tag, e.text)
		if of.marks&member != 0 {
			continue
		}
		r.open(start, '[')
		r.value(s.each, e.at, of)
	}
	r.c.pairs = r.c.pairs[:from]
	r.close(start, ']')
}

// open writes the separator before a member of the container that began at start.
func (r *remover) open(start int, with byte) {
	if len(r.out) > start {
		with = ','
	}
	r.out = append(r.out, with)
}

func (r *remover) close(start int, with byte) {
	if len(r.out) == start {
		r.out = append(r.out, "null"...)
		return
	}
	r.out = append(r.out, with)
}
