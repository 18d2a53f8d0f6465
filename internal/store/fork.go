package store

import "context"

// # Forks
//
// A fork is a store of its own that starts at a state of its parent. It shares the trees and the objects
// of the state, so a fork takes the same time however many objects there are. Parent and fork then change
// their own copies of nodes. What makes that safe:
//
//   - a published node is changed by no edit but the one that made it, and that edit is over
//   - tokens of edits grow along a line of forks: the first token of a fork is above all tokens in the
//     state, so none of its edits takes a shared node for its own
//   - revisions grow along a line as well: an object with a revision up to the fork's base was made by an
//     ancestor
//
// History below the base belongs to the parent: the fork answers reads of it with an *ExpiredError. So
// the parent compacts as if there were no forks, and may close before them.

// Fork starts a store at a state of this one, on a log that begins with this state: memlog.From makes one.
// The log is not replayed. Options are those of Open; the quota and the memory of history count what the
// fork writes. The fork owns the log, and starts no goroutine before its first write. The error is
// ErrClosed after Close.
func (s *Store) Fork(state *State, o Options) (*Store, error) {
	s.mu.Lock()
	token, closing := s.edit.token, s.closing
	s.mu.Unlock()
	if closing {
		return nil, ErrClosed
	}
	o.setDefaults()
	f := &Store{base: state.revision}
	f.names.Store(&map[string]*collection{})
	own := &State{revision: state.revision, indexes: state.indexes, roots: state.roots, time: state.time}
	f.committer.start(own, token+1)
	f.start(o, Bounds{Head: state.revision, Floor: state.revision, Time: state.time, InMemory: true}, own)
	return f, nil
}

// StateAt returns the whole state at a revision, with the errors of Exact. It takes time in proportion to
// what changed since, or to the size of the collections whose changes left memory.
func (s *Store) StateAt(ctx context.Context, r Revision) (*State, error) {
	now := s.Any()
	switch {
	case r == now.revision:
		return now, nil
	case r > now.revision:
		return nil, &TooLargeError{Revision: r, Current: now.revision}
	}
	then := &State{revision: r, indexes: now.indexes, bytes: now.bytes, time: now.time}
	then.roots = make(roots, len(now.roots))
	for i := range then.roots {
		then.roots[i] = new([rootsPiece]*node)
	}
	for name, i := range now.indexes {
		root, err := s.rootAt(ctx, name, r)
		if err != nil {
			return nil, err
		}
		if root != nil {
			then.roots[i/rootsPiece][i%rootsPiece] = root
		}
		for before, after := range now.Snapshot(name).Since(Snapshot{r, root}) {
			then.bytes += s.owned(before) - s.owned(after)
		}
	}
	return then, nil
}

// rootAt returns the tree of a collection at a revision.
func (s *Store) rootAt(ctx context.Context, collection string, r Revision) (*node, error) {
	v, err := s.Exact(ctx, collection, r, 0)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	if t := v.tree(); t != nil {
		return t.root, nil
	}
	var objects []*Object
	for o, err := range v.Scan("", "") {
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return build(objects), nil
}
