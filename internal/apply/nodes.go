package apply

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/tidemark-dev/tidemark/internal/jsontext"
)

// node is a path in an object, in the trie that FieldsV1 is: a path element, its marks, and
// the paths below it, which are nodes[first:first+n] of the same trie in the library's
// order.
type node struct {
	// tag of FieldsV1: f is a field's name, k the keys of a list's element, v the value of a set's
	// element, i an index. text is the rest: a name, or JSON as the library writes it.
	tag   byte
	marks marks
	text  []byte
	first int32
	n     int32
}

// marks describe the changes of a path, or that it is in a set.
type marks uint8

const (
	member marks = 1 << iota // of a set
	taken                    // set or changed: the writer owns it
	gone                     // changed otherwise: no manager owns it any longer
)

// trie is a set of paths, or a set of changes. The first node is the object itself.
type trie struct {
	nodes []node
}

func (t *trie) below(n *node) []node { return t.nodes[n.first : n.first+n.n] }

// order compares path elements: by tag, then by text.
func (a *node) order(b *node) int {
	if a.tag == 'f' && b.tag == 'f' {
		return bytes.Compare(a.text, b.text)
	}
	if a.tag != b.tag {
		return cmp.Compare(rank(a.tag), rank(b.tag))
	}
	if string(a.text) == string(b.text) {
		return 0
	}
	switch a.tag {
	case 'i':
		i, _ := strconv.Atoi(string(a.text))
		j, _ := strconv.Atoi(string(b.text))
		return cmp.Compare(i, j)
	case 'v':
		c, _, _ := orderScalar(a.text, b.text)
		return c
	}
	return orderKeys(a.text, b.text)
}

func rank(tag byte) int { return bytes.IndexByte([]byte("fkvi"), tag) }

// orderKeys compares {"name":scalar,...}, whose names are sorted.
func orderKeys(a, b []byte) int {
	a, b = a[1:], b[1:]
	for {
		switch endA, endB := len(a) < 2, len(b) < 2; {
		case endA && endB:
			return 0
		case endA:
			return -1
		case endB:
			return 1
		}
		c, n, m := orderScalar(a, b)
		if c != 0 {
			return c
		}
		a, b = a[n+1:], b[m+1:] // the colon
		if c, n, m = orderScalar(a, b); c != 0 {
			return c
		}
		a, b = a[n:], b[m:]
		if a[0] == ',' {
			a = a[1:]
		}
		if b[0] == ',' {
			b = b[1:]
		}
	}
}

// orderScalar compares the scalars at the start of two texts, numbers before strings before
// booleans, and returns their lengths.
func orderScalar(a, b []byte) (order, lenA, lenB int) {
	kindA, lenA := scalarAt(a)
	kindB, lenB := scalarAt(b)
	if kindA != kindB {
		return cmp.Compare(kindA, kindB), lenA, lenB
	}
	x, y := a[:lenA], b[:lenB]
	switch kindA {
	case aNumber:
		i, err1 := strconv.ParseInt(string(x), 10, 64)
		j, err2 := strconv.ParseInt(string(y), 10, 64)
		if err1 == nil && err2 == nil {
			return cmp.Compare(i, j), lenA, lenB
		}
		f, _ := strconv.ParseFloat(string(x), 64)
		g, _ := strconv.ParseFloat(string(y), 64)
		return cmp.Compare(f, g), lenA, lenB
	case aString:
		if bytes.IndexByte(x, '\\') >= 0 || bytes.IndexByte(y, '\\') >= 0 {
			return bytes.Compare(unquoted(x), unquoted(y)), lenA, lenB
		}
		return bytes.Compare(x[1:lenA-1], y[1:lenB-1]), lenA, lenB
	}
	return bytes.Compare(x, y), lenA, lenB // false before true
}

const (
	aNumber = iota
	aString
	aBool
	aNothing
)

func scalarAt(s []byte) (kind, length int) {
	if len(s) == 0 {
		return aNothing, 0
	}
	switch s[0] {
	case '"':
		end, _, ok := stringEnd(s, 0)
		if !ok {
			return aNothing, 0
		}
		return aString, end
	case 't':
		return aBool, min(4, len(s))
	case 'f':
		return aBool, min(5, len(s))
	}
	end, ok := numberEnd(s, 0)
	if !ok {
		return aNothing, 0
	}
	return aNumber, end
}

// sortNodes sorts siblings, which are mostly in order.
func sortNodes(s []node) {
	if len(s) > 24 {
		slices.SortFunc(s, func(a, b node) int { return a.order(&b) })
		return
	}
	for i := 1; i < len(s); i++ {
		for j := i; j > 0 && s[j].order(&s[j-1]) < 0; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
}

// anywhere reports whether a node of the subtree has one of the marks.
func (t *trie) anywhere(n *node, m marks) bool {
	if n.marks&m != 0 {
		return true
	}
	for i := range t.below(n) {
		if t.anywhere(&t.nodes[int(n.first)+i], m) {
			return true
		}
	}
	return false
}

// special are the bytes that encoding/json may escape: U+2028 and U+2029 begin with the
// last one.
var special = [256]bool{'"': true, '\\': true, '<': true, '>': true, '&': true, 0xe2: true}

// appendName writes a path element as a member's name in FieldsV1.
func (n *node) appendName(b []byte) []byte {
	b = append(b, '"', n.tag, ':')
	plain := 0
	for plain < len(n.text) && !special[n.text[plain]] {
		plain++
	}
	b = append(b, n.text[:plain]...)
	for i, c := range n.text[plain:] {
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '<', '>', '&':
			b = append(b, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		case 0xe2:
			rest := jsontext.AppendString(nil, string(n.text[plain+i:]))
			return append(b, rest[1:]...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// writer writes a set as FieldsV1, given the set before and the changes.
type writer struct {
	out []byte
	// set is the previously owned fields, and changes are the changes since then. With own, the set
	// gains the fields that were set; otherwise it only loses changed ones.
	set, changes *trie
	own          bool
}

// write appends the new set, and reports whether it has members.
func (w *writer) write(set, changes *node) bool {
	w.out = append(w.out, '{')
	some := w.children(set, changes, true)
	w.out = append(w.out, '}')
	return some
}

var noNode node

// children writes the members of a path; first is false after another member.
func (w *writer) children(set, changes *node, first bool) bool {
	var a, c []node
	if w.set != nil {
		a = w.set.below(set)
	}
	c = w.changes.below(changes)
	some := false
	for len(a) > 0 || len(c) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(c) == 0:
			order = -1
		default:
			order = a[0].order(&c[0])
		}
		x, y := &noNode, &noNode
		if order <= 0 {
			x, a = &a[0], a[1:]
		}
		if order >= 0 {
			y, c = &c[0], c[1:]
		}
		if order > 0 && !w.own {
			if len(a) == 0 {
				break
			}
			c = from(c, &a[0])
			continue
		}
		if w.place(x, y, first) {
			first, some = false, true
		}
	}
	return some
}

// place writes one member, if it has a content.
func (w *writer) place(set, changes *node, first bool) bool {
	start := len(w.out)
	if !first {
		w.out = append(w.out, ',')
	}
	named := set
	if set.tag == 0 {
		named = changes
	}
	w.out = append(named.appendName(w.out), ':', '{')
	is := set.marks&member != 0 && changes.marks&(taken|gone) == 0 || w.own && changes.marks&taken != 0
	if set.n == 0 && changes.n == 0 {
		if !is {
			w.out = w.out[:start]
			return false
		}
		w.out = append(w.out, '}')
		return true
	}
	inside := len(w.out)
	if is {
		w.out = append(w.out, `".":{}`...)
	}
	some := w.children(set, changes, !is)
	if !some {
		if !is {
			w.out = w.out[:start]
			return false
		}
		w.out = w.out[:inside]
	}
	w.out = append(w.out, '}')
	return true
}

// from returns the sorted siblings from a path on. Sets are small compared to the changes
// of a large object, so a scan of all changes for each set would take long.
func from(s []node, at *node) []node {
	if len(s) < 16 {
		for len(s) > 0 && s[0].order(at) < 0 {
			s = s[1:]
		}
		return s
	}
	i, _ := slices.BinarySearchFunc(s, at, func(a node, b *node) int { return a.order(b) })
	return s[i:]
}

// touches reports whether changes include members of a set.
func touches(set *trie, s *node, changes *trie, c *node) bool {
	return meet(set, s, changes, c, taken|gone)
}

// conflicts reports whether members of a set are set to new values.
func conflicts(set *trie, s *node, changes *trie, c *node) bool {
	return meet(set, s, changes, c, taken)
}

func meet(set *trie, s *node, changes *trie, c *node, m marks) bool {
	if s.marks&member != 0 && c.marks&m != 0 {
		return true
	}
	a, b := set.below(s), changes.below(c)
	for len(a) > 0 && len(b) > 0 {
		switch order := a[0].order(&b[0]); {
		case order < 0:
			a = a[1:]
		case order > 0:
			b = from(b, &a[0])
		default:
			if meet(set, &a[0], changes, &b[0], m) {
				return true
			}
			a, b = a[1:], b[1:]
		}
	}
	return false
}
