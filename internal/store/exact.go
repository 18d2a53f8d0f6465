package store

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"time"
)

// # Exact
//
// A collection at a revision is, in this order of preference:
//
//   - the tree of the published state, when the collection did not change since
//   - the tree of a kept state or of an earlier Exact, when it did not change in
//     between
//   - made from the nearest of those by undoing or redoing changes, at most
//     keepEvery of them, and cached for the next page of the list
//   - when its changes left memory: read back from the log as it is scanned, in
//     batches, so that a reader that stalls holds one batch and nothing of the
//     log. Few batches are read at a time; time linear in the versions stored in
//     the range
//
// Options.MaxMemory covers the tree of a view: when the changes after its revision leave
// memory, the view loses its tree and goes on from the log. A scan under way does so, too; it
// holds one batch.

// InMemory reports whether the view reads objects in memory: none from the log, so far.
func (v *View) InMemory() bool { return v.pin != nil && v.pin.root.Load() != nil }

// View is a collection at a revision that may be read back from the log.
type View struct {
	store      *Store
	ctx        context.Context // of Exact: reads from the log end with it
	collection *collection
	revision   Revision
	// pin is nil when the view reads from the log.
	pin    *pinned
	closed atomic.Bool
}

// Exact returns the state at the revision. Below the history it returns an *ExpiredError,
// for a revision that is not reached within wait a *TooLargeError. A state that left memory
// is read back from the log as it is scanned, until the context ends. The caller closes the view.
func (s *Store) Exact(ctx context.Context, collection string, r Revision, wait time.Duration) (*View, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if _, err := s.NotOlderThan(ctx, r, wait); err != nil {
		return nil, err
	}
	v := &View{store: s, ctx: ctx, collection: s.collection(collection), revision: r}
	v.pin = s.pin(v.collection, r)
	if floor := Revision(s.floor.Load()); r < floor {
		if v.pin != nil {
			v.Close()
		}
		return nil, &ExpiredError{Revision: r, Floor: floor}
	}
	return v, nil
}

// Hold returns a view of the published state for a reader that may be slow: when the
// changes after it leave memory, the view goes on from the log. The caller closes the view.
//
// It takes next to no memory, however large the collection is: until then each node
// that later states have replaced was replaced by a change in memory.
func (s *Store) Hold(ctx context.Context, collection string) *View {
	c, h := s.collection(collection), &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	state := s.Any() // it stays the published state while mu is held
	c.mu.RLock()
	at := c.effective(c.after(state.revision))
	c.mu.RUnlock()
	p := h.find(c, at)
	if p == nil {
		p = &pinned{collection: c, revision: at, bytes: keptOverhead, held: true}
		p.root.Store(&tree{state.roots.at(c.index)})
		h.pinned = append(h.pinned, p)
		h.bytes.Add(p.bytes)
	}
	p.views++
	return &View{store: s, ctx: ctx, collection: c, revision: state.revision, pin: p}
}

// pin returns the tree of the collection at the revision, or nil if changes that it needs
// left memory.
func (s *Store) pin(c *collection, r Revision) *pinned {
	for {
		p, known := s.findTree(c, r)
		if known {
			return p
		}
		// It was made without a lock. If the window moved on meanwhile, try again.
		root, at, ok := s.derive(c, r)
		if !ok {
			continue
		}
		h := &s.history
		h.mu.Lock()
		c.mu.RLock()
		if c.trimmed <= r {
			p = h.pin(c, at, root, s.o.MaxMemory/8)
		}
		c.mu.RUnlock()
		h.mu.Unlock()
		if p != nil {
			return p
		}
	}
}

// findTree looks for a tree of exactly that revision. Known without a tree means that there
// cannot be one, because changes that it needs left memory.
func (s *Store) findTree(c *collection, r Revision) (p *pinned, known bool) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	c.mu.RLock()
	if r < c.trimmed {
		c.mu.RUnlock()
		return nil, true
	}
	now := s.Any() // at least at r
	i := c.after(r)
	at := c.effective(i)
	unchanged := i == c.records.len() || c.records.at(i).revision > now.revision
	c.mu.RUnlock()
	if unchanged {
		return h.pin(c, at, now.roots.at(c.index), s.o.MaxMemory/8), true
	}
	if h.find(c, at) != nil {
		return h.pin(c, at, nil, s.o.MaxMemory/8), true
	}
	return nil, false
}

// derive makes the tree of a revision from the nearest one, and returns the revision of its
// last change. It returns false if changes left memory meanwhile.
func (s *Store) derive(c *collection, r Revision) (root *node, at Revision, ok bool) {
	base, root := s.nearest(c, r)
	c.mu.RLock()
	if r < c.trimmed || base < c.trimmed {
		c.mu.RUnlock()
		return nil, 0, false
	}
	i, j := c.after(min(base, r)), c.after(max(base, r))
	at = c.effective(c.after(r))
	changes := make([]*Change, 0, j-i)
	for ; i < j; i++ {
		changes = append(changes, c.records.at(i).change)
	}
	c.mu.RUnlock()
	e := edit{token: derivations.Add(1)}
	if base > r {
		for _, ch := range slices.Backward(changes) {
			root = e.set(root, ch.Before, ch.Key())
		}
	} else {
		for _, ch := range changes {
			root = e.set(root, ch.After, ch.Key())
		}
	}
	return root, at, true
}

// derivations numbers the edits that make old states, apart from the edits of publications.
// Stores of one process may share it: only a unique number matters.
var derivations = func() (n atomic.Uint64) { n.Store(1 << 63); return }()

// nearest returns the available tree that is the fewest revisions away from r.
func (s *Store) nearest(c *collection, r Revision) (Revision, *node) {
	now := s.Any()
	base, root := now.revision, now.roots.at(c.index)
	near := func(q Revision) bool { return max(q, r)-min(q, r) < max(base, r)-min(base, r) }
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range h.kept {
		if q := k.state.revision; near(q) && q <= now.revision {
			base, root = q, k.state.roots.at(c.index)
		}
	}
	for _, p := range h.pinned {
		if t := p.root.Load(); p.collection == c && t != nil && near(p.revision) {
			base, root = p.revision, t.root
		}
	}
	return base, root
}

// Revision is the requested revision.
func (v *View) Revision() Revision { return v.revision }

// Scan is Snapshot.Scan; an error ends it, such as an *ExpiredError when compaction
// overtook the scan.
func (v *View) Scan(prefix, after string) iter.Seq2[*Object, error] {
	return v.Select(prefix, after, nil)
}

// Select is Scan that may leave out objects for whose digest may returns false. It does so
// where the digests of the neighbours are set too, and then does not touch the objects that it
// leaves out. A nil function leaves out nothing.
func (v *View) Select(prefix, after string, may func(digest uint64) bool) iter.Seq2[*Object, error] {
	return func(yield func(*Object, error) bool) {
		var batch []*Object
		after := after // the iterator may be used again
		for more := true; more; {
			var err error
			batch, more, err = v.next(batch[:0], prefix, after, may)
			for _, o := range batch {
				if !yield(o, nil) {
					return
				}
				after = o.Key
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// next appends a batch of the objects that Select yields, from the tree while the view has one. More
// reports that there may be another batch. Nothing holds the tree between batches.
func (v *View) next(batch []*Object, prefix, after string, may func(uint64) bool) (_ []*Object, more bool, err error) {
	r, some := newSpan(prefix, after)
	t := v.tree()
	switch {
	case v.closed.Load():
		return batch, false, ErrClosed
	case !some || t != nil && t.root == nil:
		return batch, false, nil
	case t == nil:
		batch, err = v.old(batch, prefix, after)
		return batch, len(batch) > 0, err
	}
	r.may = may
	size := 0
	t.root.scan(&r, true, true, func(o *Object) bool {
		batch = append(batch, o)
		size += len(o.Held)
		more = len(batch) >= oldBatch || size >= oldBytes
		return !more
	})
	return batch, more, nil
}

// old reads the next batch from the log.
func (v *View) old(batch []*Object, prefix, after string) ([]*Object, error) {
	size := 0
	err := v.eachOld(prefix, after, func(o *Object) bool {
		batch = append(batch, o)
		size += len(o.Held)
		return len(batch) < oldBatch && size < oldBytes
	})
	return batch, err
}

func (v *View) eachOld(prefix, after string, f func(*Object) bool) error {
	s := v.store
	slots := s.old.batches
	if v.pin == nil {
		slots = s.old.views
	}
	return s.old.batch(v.ctx, slots, func(ctx context.Context) error {
		if floor := Revision(s.floor.Load()); v.revision < floor {
			return &ExpiredError{Revision: v.revision, Floor: floor}
		}
		for o, err := range s.archive.ObjectsAt(ctx, v.collection.name, v.revision, prefix, after) {
			if err != nil {
				return s.readError(err)
			}
			if !f(o) {
				break
			}
		}
		return nil
	})
}

// Count counts the objects that Scan would yield, in O(log n). It is not known if the view reads from the
// log, since that would take a whole scan.
func (v *View) Count(prefix, after string) (n int, known bool) {
	t := v.tree()
	if t == nil || v.closed.Load() {
		return 0, false
	}
	return Snapshot{v.revision, t.root}.Count(prefix, after), true
}

// tree is the tree of the view, nil if it has none or has lost it.
func (v *View) tree() *tree {
	if v.pin == nil {
		return nil
	}
	return v.pin.root.Load()
}

// Close releases the view. It is idempotent.
func (v *View) Close() {
	if v.closed.Swap(true) {
		return
	}
	if v.pin == nil {
		return
	}
	h := &v.store.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.pin.views--; v.pin.views == 0 && v.pin.held {
		h.unpin(func(p *pinned) bool { return p == v.pin })
	}
}
