package apply

import (
	"bytes"
	"slices"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// comparison walks two objects along with the shape of their kind, and marks the changes from the
// left to the right one. Its results are those of the library's Compare: a scalar, or an atomic
// list or map, is one path. The members of a map and the elements of a keyed list or a set have
// paths of their own, as does each element or non-atomic map that was added or removed. Subtrees
// with equal bytes are skipped.
//
// Values that the library rejects, and rare ones that are not worth a second implementation
// (duplicate elements), set odd. The result is invalid then, and the library decides.
type comparison struct {
	left, right *tape
	out         trie
	odd         bool

	stack   []node // siblings that are not in out yet
	scratch []byte // texts of keys
	pairs   []element
}

// element is an element of a keyed list or of a set.
type element struct {
	tag  byte
	text []byte
	at   int32
}

// run compares the objects that the tapes hold.
func (c *comparison) run(s *shape) {
	c.out.nodes = append(c.out.nodes[:0], node{})
	c.stack, c.scratch, c.odd = c.stack[:0], c.scratch[:0], false
	n := c.value(s, 0, 0, position{root: true})
	n.marks = 0 // no manager owns the object itself
	c.out.nodes[0] = n
}

// position is the context of a walk.
type position struct{ root, metadata bool }

// value compares two values of one path and returns the marks of the path and the nodes below
// it. Either value may be absent.
func (c *comparison) value(s *shape, l, r int32, at position) (n node) {
	if c.odd {
		return n
	}
	if l != none && r != none && string(c.left.raw(l)) == string(c.right.raw(r)) {
		if s != nil && s.list != nil {
			c.keyed(s.list, r)
		}
		return n
	}
	if s == nil {
		c.odd = true
		return n
	}
	mayL, mayR := c.mayBe(s, c.left, l), c.mayBe(s, c.right, r)
	switch {
	case r == none:
		return c.as(s, mayL, l, r, at)
	case l == none || mayL == mayR:
		return c.as(s, mayR, l, r, at)
	}
	n = c.as(s, mayL, l, r, at)
	m := c.as(s, mayR, l, r, at)
	n.marks |= m.marks
	switch {
	case m.n > 0 && n.n > 0:
		c.odd = true
	case m.n > 0:
		n.first, n.n = m.first, m.n
	}
	return n
}

// keyed sets odd if an element of an unchanged list has none of its keys. The library rejects the object then, although the
// list did not change. Kinds whose lists can have such elements have them beside the fields that change.
func (c *comparison) keyed(s *listShape, list int32) {
	if s.atomic || len(s.keys) == 0 || c.right.values[list].kind != '[' {
		return
	}
	for _, k := range s.keys {
		if k.standsIn != nil {
			return
		}
	}
	for e := list + 1; e < c.right.values[list].next; e = c.right.values[e].next {
		has := func(k keyName) bool { return c.right.find(e, []byte(k.name), e+1) != none }
		if c.right.values[e].kind != '{' || !slices.ContainsFunc(s.keys, has) {
			c.odd = true
			return
		}
	}
}

// may is a set of types that a value can have.
type may uint8

const (
	mayDict may = 1 << iota
	mayScalar
	mayList
)

// mayBe narrows the types that the shape allows by the actual value.
func (c *comparison) mayBe(s *shape, t *tape, i int32) may {
	var all may
	if s.dict != nil {
		all |= mayDict
	}
	if s.scalar != "" {
		all |= mayScalar
	}
	if s.list != nil {
		all |= mayList
	}
	if i == none {
		return all
	}
	var is may
	switch t.values[i].kind {
	case '{':
		is = mayDict
	case '[':
		is = mayList
	case 'n':
		return all
	default:
		is = mayScalar
	}
	if all&is == 0 {
		c.odd = true // the library has the error message
	}
	return all & is
}

// as compares values as the first of the types.
func (c *comparison) as(s *shape, m may, l, r int32, at position) (n node) {
	switch {
	case m&mayDict != 0:
		return c.dict(s.dict, l, r, at)
	case m&mayScalar != 0:
		c.check(s.scalar, l, c.left)
		c.check(s.scalar, r, c.right)
		n.marks = c.leaf(l, r)
		return n
	case m&mayList != 0:
		return c.list(s.list, l, r)
	}
	c.odd = true
	return n
}

// check compares a scalar with its type.
func (c *comparison) check(want smd.Scalar, i int32, t *tape) {
	if i == none {
		return
	}
	kind := t.values[i].kind
	if kind == '{' || kind == '[' || kind == 'n' {
		return // another form, or null, which is any
	}
	if want == smd.Numeric && kind != '0' || want == smd.String && kind != '"' || want == smd.Boolean && kind != 't' && kind != 'f' {
		c.odd = true
	}
}

// leaf compares values that are one path.
func (c *comparison) leaf(l, r int32) marks {
	switch {
	case l == none:
		return taken
	case r == none:
		return gone
	case equal(c.left, l, c.right, r):
		return 0
	}
	return taken
}

// ofKind returns the value if it has that kind, otherwise none.
func ofKind(t *tape, i int32, kind byte) int32 {
	if i == none || t.values[i].kind != kind {
		return none
	}
	return i
}

func empty(t *tape, i int32) bool { return i == none || t.values[i].children == 0 }

// presence marks a value that was added or removed as a whole.
func presence(l, r int32) marks {
	switch {
	case l == none:
		return taken
	case r == none:
		return gone
	}
	return 0
}

func (c *comparison) dict(d *dictShape, l, r int32, at position) (n node) {
	lm, rm := ofKind(c.left, l, '{'), ofKind(c.right, r, '{')
	if d.atomic || empty(c.left, lm) && empty(c.right, rm) {
		n.marks = c.leaf(l, r)
		return n
	}
	base := len(c.stack)
	met := int32(0)
	var look lookup
	if lm != none {
		look = newLookup(c.left, lm)
	}
	if rm != none {
		for m := rm + 1; m < c.right.values[rm].next; m = c.right.values[m].next {
			key := c.right.key(m)
			was := none
			if lm != none {
				if was = look.find(key); was != none {
					met++
				}
			}
			c.member(d, key, was, m, at)
		}
	}
	if lm != none && met < c.left.values[lm].children {
		var back lookup
		if rm != none {
			back = newLookup(c.right, rm)
		}
		for m := lm + 1; m < c.left.values[lm].next; m = c.left.values[m].next {
			if key := c.left.key(m); rm == none || back.find(key) == none {
				c.member(d, key, m, none, at)
			}
		}
	}
	n.first, n.n = c.collect(base)
	n.marks = presence(l, r)
	return n
}

// member compares one member of a map.
func (c *comparison) member(d *dictShape, key []byte, l, r int32, at position) {
	if at.metadata && string(key) == "managedFields" {
		return
	}
	if !validText(key) {
		c.odd = true
		return
	}
	n := c.value(d.of(key), l, r, position{metadata: at.root && string(key) == "metadata"})
	c.push(n, 'f', key)
}

func (c *comparison) push(n node, tag byte, text []byte) {
	if n.marks != 0 || n.n > 0 {
		n.tag, n.text = tag, text
		c.stack = append(c.stack, n)
	}
}

// collect moves the siblings above base into the trie, in order.
func (c *comparison) collect(base int) (first, n int32) {
	s := c.stack[base:]
	if len(s) == 0 {
		return 0, 0
	}
	sortNodes(s)
	first = int32(len(c.out.nodes))
	c.out.nodes = append(c.out.nodes, s...)
	c.stack = c.stack[:base]
	return first, int32(len(s))
}

func (c *comparison) list(s *listShape, l, r int32) (n node) {
	ll, rl := ofKind(c.left, l, '['), ofKind(c.right, r, '[')
	if s.atomic || empty(c.left, ll) && empty(c.right, rl) {
		n.marks = c.leaf(l, r)
		return n
	}
	if s.odd {
		c.odd = true
		return n
	}
	from := len(c.pairs)
	c.elements(s, c.left, ll)
	mid := len(c.pairs)
	c.elements(s, c.right, rl)
	if c.odd {
		return n
	}
	base := len(c.stack)
	c.match(s, from, mid)
	c.pairs = c.pairs[:from]
	n.first, n.n = c.collect(base)
	n.marks = presence(l, r)
	return n
}

// elements determines the keys of a list's elements.
func (c *comparison) elements(s *listShape, t *tape, list int32) {
	if list == none {
		return
	}
	from := len(c.pairs)
	for e := list + 1; e < t.values[list].next && !c.odd; e = t.values[e].next {
		tag := byte('v')
		start := len(c.scratch)
		if len(s.keys) > 0 {
			tag = 'k'
			c.keyText(s, t, e)
		} else {
			c.scalarText(t, e)
		}
		c.pairs = append(c.pairs, element{tag, c.scratch[start:len(c.scratch):len(c.scratch)], e})
	}
	if own := c.pairs[from:]; repeated(own) {
		c.odd = true
	}
}

// repeated reports whether there are duplicate elements.
func repeated(s []element) bool {
	if len(s) > manyMembers {
		seen := make(map[string]bool, len(s))
		for i := range s {
			if seen[string(s[i].text)] {
				return true
			}
			seen[string(s[i].text)] = true
		}
		return false
	}
	for i := range s {
		for j := range i {
			if string(s[i].text) == string(s[j].text) {
				return true
			}
		}
	}
	return false
}

// keyText writes the key of an element of a keyed list.
func (c *comparison) keyText(s *listShape, t *tape, e int32) {
	if t.values[e].kind != '{' {
		c.odd = true
		return
	}
	c.scratch = append(c.scratch, '{')
	some := false
	for i := range s.keys {
		k := &s.keys[i]
		at := t.find(e, []byte(k.name), e+1)
		if at == none && k.standsIn == nil {
			continue
		}
		if some {
			c.scratch = append(c.scratch, ',')
		}
		some = true
		c.scratch = append(jsontext.AppendString(c.scratch, k.name), ':')
		if at == none {
			c.scratch = append(c.scratch, k.standsIn...)
			continue
		}
		c.scalarText(t, at)
	}
	c.scratch = append(c.scratch, '}')
	if !some {
		c.odd = true
	}
}

// scalarText writes a scalar as the library does in path elements.
func (c *comparison) scalarText(t *tape, i int32) {
	raw := t.raw(i)
	switch t.values[i].kind {
	case '"':
		text := t.text(i)
		if !validText(text) {
			c.odd = true
			return
		}
		c.scratch = jsontext.AppendString(c.scratch, string(text))
	case '0':
		if len(raw) > 15 || bytes.ContainsAny(raw, ".eE") || string(raw) == "-0" {
			c.odd = true
			return
		}
		c.scratch = append(c.scratch, raw...)
	case 't', 'f':
		c.scratch = append(c.scratch, raw...)
	default:
		c.odd = true
	}
}

// match compares the elements in pairs: those of the left list begin at from, those of the
// right one at mid.
func (c *comparison) match(s *listShape, from, mid int) {
	left, right := c.pairs[from:mid], c.pairs[mid:]
	var index map[string]int
	if len(left) > manyMembers {
		index = make(map[string]int, len(left))
		for i := range left {
			index[string(left[i].text)] = i
		}
	}
	cursor, met := 0, 0
	for i := range right {
		was := none
		if j := findElement(left, right[i].text, cursor, index); j >= 0 {
			was, cursor = left[j].at, j+1
			met++
			left[j].at = none
		}
		e := right[i] // the slice may move
		n := c.value(s.each, was, e.at, position{})
		c.push(n, e.tag, e.text)
		left, right = c.pairs[from:mid], c.pairs[mid:]
	}
	if met == len(left) {
		return
	}
	for i := range left {
		if e := c.pairs[from+i]; e.at != none {
			n := c.value(s.each, e.at, none, position{})
			c.push(n, e.tag, e.text)
		}
	}
}

func findElement(s []element, text []byte, cursor int, index map[string]int) int {
	if cursor < len(s) && string(s[cursor].text) == string(text) {
		return cursor
	}
	if index != nil {
		if i, ok := index[string(text)]; ok {
			return i
		}
		return -1
	}
	for i := range s {
		if string(s[i].text) == string(text) {
			return i
		}
	}
	return -1
}
