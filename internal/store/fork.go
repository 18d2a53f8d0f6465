package store

import (
	"context"
	"fmt"
)

// # Forks
//
// A fork is a store of its own that starts at a state of its parent. It shares the trees and the objects
// of the state, so a fork takes the same time however many objects there are. Parent and fork then change
// their own copies of nodes. It is safe because:
//
//   - a published node is changed by no edit but the one that made it, and that edit is over
//   - tokens of edits grow along a line of forks: the first token of a fork is above all tokens in the
//     state, so none of its edits takes a shared node for its own
//   - revisions grow along a line as well: an object with a revision up to the fork's base was made by an
//     ancestor
//
// A fork can begin with a part of the history of its parent: the changes that led to the state. It then has
// them in memory, like its own changes, and they count in its bound. Older changes belong to the parent:
// reads of it return an *ExpiredError. So the parent compacts as if there were no forks, and may
// close before them.

// Fork makes a store at a state of this one, on a log in memory that has this state and the changes that led
// to it: memlog.From and memlog.FromHistory make one. The log is not replayed. groupcommit.Fork calls it, and
// starts the writer; other callers use stores.Fork. Options are those of Open; the
// quota counts the objects that the fork writes and the copies that StateAt made, the memory of history counts the changes
// in the log too. The account is the one that StateAt and History had. The fork owns the log, and starts no
// goroutine before its first write. The error is ErrClosed after Close; then the account stays open.
func (s *Store) Fork(state *State, o Options) (Publisher, Bounds, error) {
	s.mu.Lock()
	token := s.edit.token
	s.mu.Unlock()
	if s.closed.Load() || !s.o.Account.lend(o.Account) {
		return Publisher{}, Bounds{}, ErrClosed
	}
	o.setDefaults()
	f := &Store{base: state.revision}
	f.unreadable.Store(s.unreadable.Load())
	f.names.Store(&map[string]*collection{})
	own := &State{revision: state.revision, indexes: state.indexes, roots: state.roots, time: state.time, bytes: state.copied}
	f.trees.start(own, token+1)
	floor := o.Log.Floor()
	b := Bounds{Head: state.revision, Floor: floor, Time: state.time, InMemory: true}
	f.start(o, b, own)
	f.opened, f.history.window = floor, floor // later changes are in memory
	for e, err := range o.Log.Changes(s.ctx, "", floor, state.revision) {
		if err != nil {
			f.stop()
			return Publisher{}, Bounds{}, s.readError(err)
		}
		f.remember(f.collection(e.Collection), e.change(), 0, nil) // without history.mu: f is not in use yet
	}
	f.account()
	s.loan(state.revision, o.Account)
	return Publisher{f}, b, nil
}

// History returns the changes after a revision that led to a state, for the log of a fork. They share the
// objects of the state. A revision below the history is an *ExpiredError, one above the state a
// *TooLargeError. If the changes take more than most bytes in the history of a fork, the error wraps
// ErrTooMuchHistory. They count in the account of the fork; nil: there is none. If they do not fit into its
// budget, the error is a *QuotaError.
func (s *Store) History(ctx context.Context, after Revision, state *State, most int64, of *Account) ([]Entry, error) {
	switch {
	case after == state.revision:
		return nil, nil
	case after > state.revision:
		return nil, &TooLargeError{Revision: after, Current: state.revision}
	}
	feed, err := s.Feed(after)
	if err != nil {
		return nil, err
	}
	defer feed.Close()
	var entries []Entry
	var bytes int64
	// Each change continues the one before: the versions that a log reads back are copies.
	newest := map[[2]string]*Object{}
	buf := make([]CollectionChange, 256)
	for feed.Revision() < state.revision {
		n, err := feed.TryNext(ctx, buf)
		if err != nil {
			return nil, err
		}
		for _, c := range buf[:n] {
			if c.Revision > state.revision {
				break
			}
			e := Entry{Collection: c.Collection, Key: c.Key(), Revision: c.Revision, Object: c.After, Before: c.Before, Origin: &c.origin}
			if o := state.Get(e.Collection, e.Key); o != nil && o.Modified == e.Revision {
				e.Object = o
			}
			object := [2]string{e.Collection, e.Key}
			if o := newest[object]; o != nil && e.Before != nil {
				e.Before = o
			}
			newest[object] = e.Object
			cost := c.cost(true)
			if bytes += cost; bytes > most {
				return nil, fmt.Errorf("%w: those after revision %d up to %d take more than %d bytes", ErrTooMuchHistory, after, state.revision, most)
			}
			if err := of.remembered(cost); err != nil {
				return nil, err
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// StateAt returns the whole state at a revision, with the errors of Exact. It takes time in proportion to
// the number of changes since, or to the size of the collections whose changes left memory: it copies their objects
// at the revision from the log, apart from those that are current.
//
// The copies count in the account of the fork that is about to begin with the state; nil: they have no limit.
// If they do not fit, the error is a *CopyError.
func (s *Store) StateAt(ctx context.Context, r Revision, of *Account) (then *State, err error) {
	now := s.Any()
	switch {
	case r == now.revision:
		return now, nil
	case r > now.revision:
		return nil, &TooLargeError{Revision: r, Current: now.revision}
	}
	then = &State{revision: r, indexes: now.indexes, bytes: now.bytes}
	if then.time, err = s.TimeOf(ctx, r); err != nil {
		return nil, err
	}
	then.roots = make(roots, len(now.roots))
	for i := range then.roots {
		then.roots[i] = new([rootsPiece]*node)
	}
	for name, i := range now.indexes {
		root, copied, err := s.rootAt(ctx, name, r, of)
		if err != nil {
			return nil, err
		}
		then.copied += copied
		if root != nil {
			then.roots[i/rootsPiece][i%rootsPiece] = root
		}
		for before, after := range now.Snapshot(name).Since(Snapshot{r, root}) {
			then.bytes += s.owned(before) - s.owned(after)
		}
	}
	return then, nil
}

// loan adds a fork of a state. The history in memory has the objects that were replaced since.
func (s *Store) loan(base Revision, a *Account) {
	if a == nil {
		return
	}
	s.history.mu.Lock() // no change is recorded meanwhile
	defer s.history.mu.Unlock()
	var bytes int64
	for i := s.history.order.len() - 1; i >= 0; i-- {
		c := s.history.order.at(i).change
		if c.Revision <= base {
			break
		}
		if c.Before != nil && c.Before.Modified <= base {
			bytes += s.owned(c.Before)
		}
	}
	a.loan = s.loans.add(base, &a.budget.used, bytes)
}
