package apply

import (
	"slices"
	"sync"
)

// comparisons are kept for reuse: their tapes and tries are larger than the results.
var comparisons = sync.Pool{New: func() any { return &comparison{left: &tape{}, right: &tape{}} }}

// maxKeptNodes is the most that an unused comparison holds.
const maxKeptNodes = 20_000

func (c *comparison) release() {
	if cap(c.left.values)+cap(c.right.values)+cap(c.out.nodes) > maxKeptNodes || cap(c.scratch) > 1<<16 {
		return
	}
	c.left.data, c.right.data = nil, nil // nodes may still refer to an object; the pool forgets them
	comparisons.Put(c)
}

// compare compares two objects of this version; a nil old is the empty object. The caller
// releases the comparison. ok is false where the library has to decide.
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

// updateFast is Update by one walk over the bytes. ok is false where the library has to
// decide.
func (s *Schema) updateFast(entries []*entry, old, next []byte, w Write) (after []*entry, ok bool) {
	c, ok := s.compare(old, next, w.Subresource)
	defer c.release()
	if !ok {
		return nil, false
	}
	changes := &c.out
	disown(changes)
	after = make([]*entry, 0, len(entries)+1)
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
	return after, true
}

func (e *entry) operationBit() int {
	if e.applied {
		return 1
	}
	return 0
}

// without returns the entry without the changed fields: nil if none is left, the entry itself if it
// lost none.
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

// take adds the fields that were set to the entry.
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

// systemMetadata is metadata that no manager owns.
var systemMetadata = []string{
	"clusterName", "creationTimestamp", "generation", "managedFields", "name", "namespace", "resourceVersion", "selfLink", "uid",
}

// disown removes system metadata from the fields of the writer. Other managers lose it as well.
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

// applyFast is Apply on bytes: it makes the configuration's set and the merged object, removes
// fields that are no longer applied, and finds the changes. ok is false where the library has to
// decide: for conflicts, and for each error in the patch. next is nil if the object does not
// change.
func (s *Schema) applyFast(entries []*entry, live, patch []byte, w applying) (next []byte, after []*entry, ok bool) {
	c := comparisons.Get().(*comparison)
	defer c.release()
	if c.left.read(live) != nil || c.right.read(patch) != nil || !s.isPatch(c.right) {
		return nil, nil, false
	}
	for _, e := range entries {
		if e.apiVersion != s.apiVersion() || !e.fields.fit(s.shape()) {
			return nil, nil, false
		}
	}
	c.patchSet(s.shape(), c.right)
	if c.odd {
		return nil, nil, false
	}
	s.resets[w.Subresource].filter(&c.out)
	own := w.entry(s, true)
	var last *entry
	if at := slices.IndexFunc(entries, own.same); at >= 0 {
		last = entries[at]
	}
	var owned *trie // set if fields are no longer applied
	if last != nil && !within(&last.fields.trie, &last.fields.trie.nodes[0], &c.out, &c.out.nodes[0]) {
		owned = ownedBy(entries, own, &c.out)
	}
	own.mention(&c.out)
	m := merging{c: c, left: c.left, right: c.right, out: make([]byte, 0, len(live)+len(patch)/4)}
	m.run(s.shape())
	if c.odd {
		return nil, nil, false
	}
	if owned != nil {
		pruned, ok := c.prune(s.shape(), m.out, &last.fields.trie, owned)
		if !ok {
			return nil, nil, false
		}
		if pruned != nil {
			m.changed, m.out = true, pruned
		}
	}
	if !m.changed {
		own.time, own.seconds = "", 0
		if last != nil {
			own.time, own.seconds = last.time, last.seconds
		}
		after, ok = others(entries, own, nil, w.force)
		return nil, after, ok
	}
	c.right = m.right // the configuration is not needed any more
	if c.right.read(m.out) != nil {
		return nil, nil, false
	}
	c.run(s.shape())
	if c.odd {
		return nil, nil, false
	}
	s.resets[w.Subresource].filter(&c.out)
	after, ok = others(entries, own, &c.out, w.force)
	return m.out, after, ok
}

// ownedBy returns the fields of all managers once own applies the mentioned ones.
func ownedBy(entries []*entry, own *entry, mentioned *trie) *trie {
	sets := []*trie{mentioned.clone()}
	for _, e := range entries {
		if !e.same(own) {
			sets = append(sets, &e.fields.trie)
		}
	}
	for len(sets) > 1 { // pairwise: there may be many
		half := sets[:0:0]
		for ; len(sets) > 1; sets = sets[2:] {
			half = append(half, mixed(sets[0], sets[1], either))
		}
		sets = append(half, sets...)
	}
	return sets[0]
}

// isPatch reports whether a configuration has this kind and version, and no managed fields.
func (s *Schema) isPatch(t *tape) bool {
	is := func(name, want string) bool {
		i := t.find(0, []byte(name), 1)
		return i != none && t.values[i].kind == '"' && string(t.text(i)) == want
	}
	if !is("apiVersion", s.apiVersion()) || !is("kind", s.kind.Kind) {
		return false
	}
	meta := t.find(0, []byte("metadata"), 1)
	return meta == none || t.values[meta].kind == '{' && t.find(meta, []byte("managedFields"), meta+1) == none
}

// mention sets an applier's entry to the fields in the configuration, without system
// metadata.
func (e *entry) mention(set *trie) {
	for i := range set.nodes { // the applier owns the mentioned fields
		if set.nodes[i].marks&member != 0 {
			set.nodes[i].marks = taken
		}
	}
	disown(set)
	e.take(set)
}

// others returns the entries after an apply: own, and the others with the fields that they keep.
func others(entries []*entry, own *entry, changes *trie, force bool) (after []*entry, ok bool) {
	for _, e := range entries {
		switch {
		case e.same(own):
			continue
		case changes == nil:
			if len(e.fields.json) > len(emptyFields) {
				after = append(after, e)
			}
			continue
		}
		set := &e.fields.trie
		if !force && conflicts(set, &set.nodes[0], changes, &changes.nodes[0]) {
			return nil, false
		}
		if e = e.without(changes); e != nil {
			after = append(after, e)
		}
	}
	if len(own.fields.json) > len(emptyFields) {
		after = append(after, own)
	}
	return after, true
}
