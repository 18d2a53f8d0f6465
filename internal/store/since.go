package store

import "iter"

// Since yields what changed in the collection after an older snapshot of it, in the
// order of keys: what was there, nil for a new object, and what is there, nil for one
// that is gone. It looks at the leaves that the two do not share alone.
func (s Snapshot) Since(old Snapshot) iter.Seq2[*Object, *Object] {
	return func(yield func(before, after *Object) bool) {
		was, is := apart(old.root, s.root)
		for len(was) > 0 || len(is) > 0 {
			var before, after *Object
			if len(is) == 0 || len(was) > 0 && was[0].Key <= is[0].Key {
				before = was[0]
			}
			if len(was) == 0 || len(is) > 0 && is[0].Key <= was[0].Key {
				after = is[0]
			}
			if before != nil {
				was = was[1:]
			}
			if after != nil {
				is = is[1:]
			}
			if before != after && !yield(before, after) {
				return
			}
		}
	}
}

// apart are the objects of the leaves that two trees do not share.
func apart(a, b *node) (ofA, ofB []*Object) {
	if a == b {
		return nil, nil
	}
	shared := map[*node]bool{}
	a.eachLeaf(func(n *node) { shared[n] = false })
	b.eachLeaf(func(n *node) {
		if _, ok := shared[n]; ok {
			shared[n] = true
			return
		}
		ofB = append(ofB, n.objects...)
	})
	a.eachLeaf(func(n *node) {
		if !shared[n] {
			ofA = append(ofA, n.objects...)
		}
	})
	return ofA, ofB
}

// eachLeaf calls f with the leaves, in the order of their keys.
func (n *node) eachLeaf(f func(*node)) {
	if n == nil {
		return
	}
	if n.leaf() {
		f(n)
		return
	}
	for _, b := range n.branches {
		b.eachLeaf(f)
	}
}
