package apply

// merging writes the live object merged with a configuration, as the library's Merge does:
// nothing is removed, a leaf of the configuration wins, and lists keep the live order
// unless the configuration orders them otherwise. The configuration is known to fit the
// shape.
type merging struct {
	c           *comparison // whose left tape is the live object, the right one the configuration
	out         []byte
	changed     bool
	left, right *tape
}

// run merges the objects, without managed fields.
func (m *merging) run(s *shape) { m.value(s, 0, 0, position{root: true}) }

// value writes the value of a path that exists on at least one side.
func (m *merging) value(s *shape, l, r int32, at position) {
	switch {
	case l == none:
		m.changed = true
		m.out = append(m.out, m.right.raw(r)...)
		return
	case r == none && at.metadata && m.left.values[l].kind == '{':
		m.keep(l)
		return
	case r == none || !at.root && !at.metadata && string(m.left.raw(l)) == string(m.right.raw(r)):
		m.out = append(m.out, m.left.raw(l)...)
		return
	}
	switch may := m.c.mayBe(s, m.right, r); {
	case m.c.odd:
	case may&mayDict != 0:
		m.dict(s.dict, l, r, at)
	case may&mayScalar != 0:
		m.leaf(l, r)
	default:
		m.list(s.list, l, r)
	}
}

// keep writes the live object's metadata without its managed fields.
func (m *merging) keep(l int32) {
	m.out = append(m.out, '{')
	for i := l + 1; i < m.left.values[l].next; i = m.left.values[i].next {
		if string(m.left.key(i)) != "managedFields" {
			m.name(m.left, i)
			m.out = append(m.out, m.left.raw(i)...)
		}
	}
	m.out = append(m.out, '}')
}

func (m *merging) leaf(l, r int32) {
	if equal(m.left, l, m.right, r) {
		m.out = append(m.out, m.left.raw(l)...)
		return
	}
	m.changed = true
	m.out = append(m.out, m.right.raw(r)...)
}

func (m *merging) dict(d *dictShape, l, r int32, at position) {
	lm, rm := ofKind(m.left, l, '{'), ofKind(m.right, r, '{')
	switch {
	case d.atomic || empty(m.left, lm) && empty(m.right, rm):
		m.leaf(l, r)
		return
	case lm == none:
		m.changed = true
		m.out = append(m.out, m.right.raw(r)...)
		return
	case rm == none:
		m.out = append(m.out, m.left.raw(l)...)
		return
	}
	m.out = append(m.out, '{')
	look, met := newLookup(m.right, rm), int32(0)
	for i := lm + 1; i < m.left.values[lm].next; i = m.left.values[i].next {
		key := m.left.key(i)
		if at.metadata && string(key) == "managedFields" {
			continue
		}
		to := look.find(key)
		if to != none {
			met++
		}
		m.name(m.left, i)
		m.value(d.of(key), i, to, position{metadata: at.root && string(key) == "metadata"})
	}
	if met < m.right.values[rm].children {
		back := newLookup(m.left, lm)
		for i := rm + 1; i < m.right.values[rm].next; i = m.right.values[i].next {
			key := m.right.key(i)
			if back.find(key) == none {
				if !at.root || string(key) != "apiVersion" && string(key) != "kind" { // the live object has them
					m.changed = true
				}
				m.name(m.right, i)
				m.out = append(m.out, m.right.raw(i)...)
			}
		}
	}
	m.out = append(m.out, '}')
}

// name writes the name of a member, after a comma where needed.
func (m *merging) name(t *tape, i int32) {
	if last := m.out[len(m.out)-1]; last != '{' {
		m.out = append(m.out, ',')
	}
	v := &t.values[i]
	m.out = append(append(m.out, t.data[v.key0-1:v.key1+1]...), ':')
}

func (m *merging) list(s *listShape, l, r int32) {
	ll, rl := ofKind(m.left, l, '['), ofKind(m.right, r, '[')
	switch {
	case s.atomic || empty(m.left, ll) && empty(m.right, rl):
		m.leaf(l, r)
		return
	case empty(m.left, ll):
		m.changed = true
		m.out = append(m.out, m.right.raw(r)...)
		return
	case empty(m.right, rl):
		m.out = append(m.out, m.left.raw(l)...)
		return
	}
	from := len(m.c.pairs)
	m.c.elements(s, m.left, ll)
	mid := len(m.c.pairs)
	m.c.elements(s, m.right, rl)
	if m.c.odd {
		return
	}
	m.elements(s, append([]element(nil), m.c.pairs[from:mid]...), append([]element(nil), m.c.pairs[mid:]...))
	m.c.pairs = m.c.pairs[:from]
}

// elements merges two lists in the library's order: elements of both come in the
// configuration's order, and those of the live list alone stay about where they were.
func (m *merging) elements(s *listShape, left, right []element) {
	inRight, inLeft, shared := positions(left, right)
	merged := make([]bool, len(right))
	next := 0 // of shared
	order := 0
	m.out = append(m.out, '[')
	put := func(li, ri int) {
		if m.out[len(m.out)-1] != '[' {
			m.out = append(m.out, ',')
		}
		l, r := none, none
		if li >= 0 {
			l = left[li].at
		}
		if ri >= 0 {
			r = right[ri].at
		}
		if li != order {
			m.changed = true
		}
		order++
		m.value(s.each, l, r, position{})
	}
	for li, ri := 0, 0; li < len(left) || ri < len(right); {
		if li < len(left) && ri < len(right) {
			if inRight[li] == ri {
				merged[ri] = true
				put(li, ri)
				li, ri, next = li+1, ri+1, next+1
				continue
			}
			if inRight[li] >= 0 && next < len(shared) && shared[next] != inRight[li] {
				li++ // it is shared, and its turn comes later
				continue
			}
		}
		if li < len(left) {
			if inRight[li] < 0 {
				put(li, -1)
				li++
				continue
			}
			if merged[inRight[li]] {
				li++
			}
		}
		if ri < len(right) {
			merged[ri] = true
			put(inLeft[ri], ri)
			if next < len(shared) && shared[next] == ri {
				next++
			}
			ri++
		}
	}
	m.out = append(m.out, ']')
}

// positions returns where each element is in the other list, or -1, and which elements of
// the right list are in both.
func positions(left, right []element) (inRight, inLeft, shared []int) {
	inRight, inLeft = make([]int, len(left)), make([]int, len(right))
	for i := range inRight {
		inRight[i] = -1
	}
	var index map[string]int
	if len(left) > manyMembers {
		index = make(map[string]int, len(left))
		for i := range left {
			index[string(left[i].text)] = i
		}
	}
	cursor := 0
	for i := range right {
		j := findElement(left, right[i].text, cursor, index)
		if inLeft[i] = j; j >= 0 {
			inRight[j], cursor = i, j+1
			shared = append(shared, i)
		}
	}
	return inRight, inLeft, shared
}
