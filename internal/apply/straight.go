package apply

import (
	"slices"
	"sync"
)

// comparisons are walks to use again: their tapes and tries are larger than what
// comes out.
var comparisons = sync.Pool{New: func() any { return &comparison{left: &tape{}, right: &tape{}} }}

// maxKeptNodes is what a comparison may hold while nobody uses it.
const maxKeptNodes = 20_000

func (c *comparison) release() {
	if cap(c.left.values)+cap(c.right.values)+cap(c.out.nodes) > maxKeptNodes || cap(c.scratch) > 1<<16 {
		return
	}
	clear(c.out.nodes[:cap(c.out.nodes)]) // they refer to the objects
	clear(c.stack[:cap(c.stack)])
	clear(c.pairs[:cap(c.pairs)])
	c.left.data, c.right.data = nil, nil
	comparisons.Put(c)
}

// compare holds two objects of this version against each other; old nil is the
// empty one. The caller releases the comparison. ok is false where the library has
// to say.
func (s *Schema) compare(old, next []byte, subresource string) (c *comparison, ok bool) {
	if old == nil {
		old = s.empty
	}
	c = comparisons.Get().(*comparison)
	if c.left.read(old) != nil || c.right.read(next) != nil {
		return c, false
	}
	c.run(s.shape())
	if c.odd {
		return c, false
	}
	s.resets[subresource].filter(&c.out)
	return c, true
}

// updateStraight is Update by one walk over the bytes. ok is false where the
// library has to say.
func (s *Schema) updateStraight(entries []*entry, old, next []byte, w Write) (managed []byte, ok bool) {
	c, ok := s.compare(old, next, w.Subresource)
	defer c.release()
	if !ok {
		return nil, false
	}
	changes := &c.out
	disown(changes)
	after := make([]*entry, 0, len(entries)+1)
	own := w.entry(s, false)
	owns := changes.anywhere(&changes.nodes[0], taken)
	updates := 0
	for _, e := range entries {
		if e.apiVersion != own.apiVersion || !e.fields.fit(s.shape()) {
			return nil, false
		}
		if owns && e.same(own) {
			own.fields = e.fields
			continue
		}
		if e = e.without(changes); e != nil {
			after = append(after, e)
			updates += 1 - e.operationBit()
		}
	}
	if owns {
		own.take(changes)
		after = append(after, own)
		updates++
	}
	if updates > maxUpdateEntries {
		var err error
		if after, err = capped(after); err != nil {
			return nil, false
		}
	}
	return encodeManaged(after), true
}

func (e *entry) operationBit() int {
	if e.applied {
		return 1
	}
	return 0
}

// without is the entry less what changed; nil when nothing is left, the same one
// when it lost nothing.
func (e *entry) without(changes *trie) *entry {
	set := &e.fields.trie
	if len(e.fields.json) == len(emptyFields) {
		return nil
	}
	if !touches(set, &set.nodes[0], changes, &changes.nodes[0]) {
		return e
	}
	w := writer{out: make([]byte, 0, len(e.fields.json)), set: set, changes: changes}
	if !w.write(&set.nodes[0], &changes.nodes[0]) {
		return nil
	}
	less := *e
	less.fields = &fields{json: w.out}
	return &less
}

// take gives the entry what was set, beside what it had.
func (e *entry) take(changes *trie) {
	w := writer{changes: changes, own: true}
	root := &noNode
	if e.fields != nil {
		w.set, root = &e.fields.trie, &e.fields.trie.nodes[0]
		w.out = make([]byte, 0, len(e.fields.json)+256)
	} else {
		w.out = make([]byte, 0, 32*len(changes.nodes))
	}
	w.write(root, &changes.nodes[0])
	if e.fields == nil || string(e.fields.json) != string(w.out) {
		e.fields = &fields{json: w.out}
	}
}

// systemMetadata is what nobody owns, whoever writes it.
var systemMetadata = []string{
	"clusterName", "creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid",
}

// disown takes system metadata from who writes; others lose it all the same.
func disown(t *trie) {
	lose := func(n *node) {
		if n.marks&taken != 0 {
			n.marks = n.marks&^taken | gone
		}
	}
	root := t.below(&t.nodes[0])
	for i := range root {
		switch n := &root[i]; string(n.text) {
		case "apiVersion", "kind":
			lose(n)
		case "metadata":
			lose(n)
			for j := range t.below(n) {
				if m := &t.below(n)[j]; slices.Contains(systemMetadata, string(m.text)) {
					lose(m)
				}
			}
		}
	}
}
