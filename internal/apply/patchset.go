package apply

// patchSet makes the set of the paths in a configuration, as the library's ToFieldSet does, and
// checks the configuration against the shape, as its Validate does. Configurations that the library
// rejects, and duplicate members, set odd.
func (c *comparison) patchSet(s *shape, t *tape) {
	c.right = t
	c.out.nodes = append(c.out.nodes[:0], node{})
	c.stack, c.scratch, c.pairs, c.odd = c.stack[:0], c.scratch[:0], c.pairs[:0], false
	n := c.mentioned(s, 0, false)
	n.marks = 0
	c.out.nodes[0] = n
}

// mentioned visits one value; whole is set inside an atomic value.
func (c *comparison) mentioned(s *shape, i int32, whole bool) (n node) {
	if s == nil || c.odd {
		c.odd = true
		return n
	}
	switch m := c.mayBe(s, c.right, i); {
	case m&mayDict != 0:
		return c.mentionedDict(s.dict, i, whole)
	case m&mayScalar != 0:
		c.check(s.scalar, i, c.right)
		n.marks = member
		return n
	case m&mayList != 0:
		return c.mentionedList(s.list, i, whole)
	}
	c.odd = true
	return n
}

func (c *comparison) mentionedDict(d *dictShape, i int32, whole bool) (n node) {
	v := &c.right.values[i]
	if v.kind == '{' {
		c.unique(i)
		base := len(c.stack)
		for m := i + 1; m < v.next && !c.odd; m = c.right.values[m].next {
			key := c.right.key(m)
			below, declared := d.fields[string(key)]
			if !declared {
				below = d.others
			}
			if !validText(key) {
				c.odd = true
			}
			child := c.mentioned(below, m, whole || d.atomic)
			if is := &c.right.values[m]; is.kind == 'n' || is.kind == '{' && is.children == 0 || !declared {
				child.marks = member
			}
			if !whole && !d.atomic {
				c.push(child, 'f', key)
			}
		}
		if !c.odd {
			n.first, n.n = c.collect(base)
		}
	}
	if d.atomic {
		n.marks = member
	}
	return n
}

func (c *comparison) mentionedList(s *listShape, i int32, whole bool) (n node) {
	v := &c.right.values[i]
	if s.odd {
		c.odd = true
		return n
	}
	if s.atomic {
		n.marks = member
	}
	if v.kind != '[' {
		return n
	}
	from := len(c.pairs)
	if !s.atomic {
		c.elements(s, c.right, i)
	}
	base, at := len(c.stack), from
	for e := i + 1; e < v.next && !c.odd; e = c.right.values[e].next {
		child := c.mentioned(s.each, e, whole || s.atomic)
		if !s.atomic && !whole && !c.odd {
			child.marks = member
			c.push(child, c.pairs[at].tag, c.pairs[at].text)
			at++
		}
	}
	if !c.odd {
		n.first, n.n = c.collect(base)
	}
	c.pairs = c.pairs[:from]
	return n
}

// unique checks for duplicate members.
func (c *comparison) unique(object int32) {
	v := &c.right.values[object]
	if v.children > manyMembers {
		seen := make(map[string]bool, v.children)
		for m := object + 1; m < v.next; m = c.right.values[m].next {
			key := string(c.right.key(m))
			if seen[key] {
				c.odd = true
			}
			seen[key] = true
		}
		return
	}
	for m := object + 1; m < v.next; m = c.right.values[m].next {
		key := c.right.key(m)
		for o := object + 1; o < m; o = c.right.values[o].next {
			if string(c.right.key(o)) == string(key) {
				c.odd = true
				return
			}
		}
	}
}

// within reports whether all members of the set a are in b.
func within(a *trie, n *node, b *trie, m *node) bool {
	left, right := a.below(n), b.below(m)
	for len(left) > 0 {
		if len(right) == 0 {
			return false
		}
		switch order := left[0].order(&right[0]); {
		case order < 0:
			return false
		case order > 0:
			right = right[1:]
			continue
		}
		if left[0].marks&member != 0 && right[0].marks&member == 0 || !within(a, &left[0], b, &right[0]) {
			return false
		}
		left, right = left[1:], right[1:]
	}
	return true
}
