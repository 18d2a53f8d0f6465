package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
)

// Check verifies the store: every tree is in order and has the right counts, every object
// agrees with its tree, its revision and its bytes, the history in memory is in order and
// leads to the published state, the log has the same objects, and the writer keeps nothing of
// transactions that are over. It takes the time of a scan of everything, and may run concurrently with reads and writes.
func (s *Store) Check(ctx context.Context) error {
	state := s.Any()
	for name := range state.indexes {
		c := s.collection(name)
		root := state.roots.at(c.index)
		if err := checkTree(root); err != nil {
			return fmt.Errorf("collection %q at revision %d: %w", name, state.revision, err)
		}
		if err := s.checkLog(ctx, c, state); err != nil {
			return fmt.Errorf("collection %q at revision %d against the log: %w", name, state.revision, err)
		}
		if err := c.check(); err != nil {
			return fmt.Errorf("history of collection %q: %w", name, err)
		}
	}
	if err := s.history.check(); err != nil {
		return err
	}
	return s.writer.Verify()
}

// checkTree checks the invariants of published trees, see tree.go.
func checkTree(root *node) error {
	if root == nil {
		return nil
	}
	depth := 0
	for n := root; !n.leaf(); n = n.branches[0].node {
		depth++
	}
	var last *Object
	count := 0
	if err := root.check(depth, func(o *Object) error {
		if last != nil && last.Key >= o.Key {
			return fmt.Errorf("%q comes after %q", o.Key, last.Key)
		}
		last = o
		count++
		return o.check()
	}); err != nil {
		return err
	}
	if count != root.count {
		return fmt.Errorf("the tree has %d objects and says %d", count, root.count)
	}
	return nil
}

func (n *node) check(depth int, each func(*Object) error) error {
	if n.leaf() != (depth == 0) {
		return fmt.Errorf("a leaf %d levels above the deepest", depth)
	}
	if n.leaf() {
		if len(n.objects) == 0 || len(n.objects) > leafMax || n.count != len(n.objects) {
			return fmt.Errorf("a leaf of %d objects that counts %d", len(n.objects), n.count)
		}
		for _, o := range n.objects {
			if err := each(o); err != nil {
				return err
			}
		}
		return nil
	}
	if len(n.branches) < 2 || len(n.branches) > innerMax {
		return fmt.Errorf("an inner node of %d branches", len(n.branches))
	}
	sum := 0
	for i, b := range n.branches {
		sum += b.count
		err := b.check(depth-1, func(o *Object) error {
			if o.Key < b.first || i+1 < len(n.branches) && o.Key >= n.branches[i+1].first {
				return fmt.Errorf("%q is below the branch of %q", o.Key, b.first)
			}
			return each(o)
		})
		if err != nil {
			return err
		}
	}
	if sum != n.count {
		return fmt.Errorf("an inner node counts %d and its branches %d", n.count, sum)
	}
	return nil
}

func (o *Object) check() error {
	at := fmt.Appendf(nil, "%d", o.Modified)
	if value := o.Bytes(); o.RevisionAt < 0 || int(o.RevisionAt) > len(value) || !bytes.HasPrefix(value[o.RevisionAt:], at) {
		return fmt.Errorf("%q does not hold its revision %d at %d", o.Key, o.Modified, o.RevisionAt)
	}
	if o.Created == 0 || o.Created > o.Modified {
		return fmt.Errorf("%q was created at %d and modified at %d", o.Key, o.Created, o.Modified)
	}
	return nil
}

// checkLog compares a collection with the log at the same revision.
func (s *Store) checkLog(ctx context.Context, c *collection, state *State) error {
	return s.old.batch(ctx, s.old.batches, func(ctx context.Context) error {
		rest := state.roots.at(c.index).all()
		for o, err := range s.archive.ObjectsAt(ctx, c.name, state.revision, "", "") {
			if expired := (*ExpiredError)(nil); errors.As(err, &expired) {
				return nil // compaction overtook the check
			}
			if err != nil {
				return err
			}
			if len(rest) == 0 {
				return fmt.Errorf("the log has %q more", o.Key)
			}
			if err := o.same(rest[0]); err != nil {
				return err
			}
			rest = rest[1:]
		}
		if len(rest) > 0 {
			return fmt.Errorf("the log lacks %q", rest[0].Key)
		}
		return nil
	})
}

func (o *Object) same(p *Object) error {
	if o.Key != p.Key || o.Modified != p.Modified || o.Created != p.Created ||
		o.RevisionAt != p.RevisionAt || !bytes.Equal(o.Bytes(), p.Bytes()) {
		return fmt.Errorf("%q (created %d, modified %d) is not %q (created %d, modified %d)",
			o.Key, o.Created, o.Modified, p.Key, p.Created, p.Modified)
	}
	return nil
}
