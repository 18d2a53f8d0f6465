package groupcommit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Commit implements store.Writer. A transaction that finds no space waits for room once, if there may be some soon.
func (c *committer) Commit(ctx context.Context, t *store.Txn) ([]*store.Object, error) {
	made, err := c.commitOnce(ctx, t)
	if errors.Is(err, store.ErrNoSpace) && c.awaitRoom(ctx) {
		made, err = c.commitOnce(ctx, t)
	}
	return made, err
}

func (c *committer) commitOnce(ctx context.Context, t *store.Txn) ([]*store.Object, error) {
	s := c.store
	var one [1]store.Draft
	drafts, size := s.Drafts(t, one[:0])
	for {
		c.mu.Lock()
		g, p, err := c.join(t, drafts, size)
		if p != nil && !c.leading {
			c.leading = true
			c.seal(g)
			c.mu.Unlock()
			c.leadSealed(g)
			return g.outcome(t, p)
		}
		if g == nil {
			c.mu.Unlock()
			return nil, err
		}
		done := g.finished()
		c.mu.Unlock()
		if p != nil {
			if err := c.await(ctx, g, done); err != nil {
				return nil, err
			}
			return g.outcome(t, p)
		}
		// The error rests on the group g, or g is full.
		select {
		case <-done:
		case <-ctx.Done():
			return nil, fmt.Errorf("the write was not made: %w", ctx.Err())
		}
		if err != nil && g.err == nil && !g.rebased {
			return nil, err
		}
	}
}

// join checks a transaction and adds it to the open group. It returns no member in two
// cases. With an error, the error rests on the returned group, if there is one. Without an
// error, the returned group is full. The caller holds mu.
func (c *committer) join(t *store.Txn, drafts []store.Draft, size int) (*group, *member, error) {
	switch {
	case c.failure != nil:
		return nil, nil, c.failure
	case c.closing:
		return nil, nil, store.ErrClosed
	}
	for i := range t.Writes {
		w := &t.Writes[i]
		if before := c.object(w.Collection, w.Key); before != nil {
			size += before.Len()
		}
		if w.Next {
			size += drafts[i-1].Len()
		}
	}
	if g := c.open; g != nil && (g.writes+len(t.Writes) > store.MaxGroupWrites || g.bytes+size > maxGroupBytes) {
		return g, nil, nil
	}
	if g, err := c.decide(t, drafts); err != nil {
		return g, nil, err
	}
	p := c.change(t, drafts)
	g := c.open
	if g == nil {
		g = new(group)
		g.members = g.first[:0]
		c.open = g
	}
	if c.leading && g.lead == nil {
		g.lead = make(chan struct{}, 1)
	}
	if t.Times != nil && g.times == nil {
		g.times = new(store.LogTimes)
	}
	g.members = append(g.members, p)
	g.writes += len(t.Writes)
	g.bytes += size
	return g, p, nil
}

// decide checks the conditions of a transaction, and the quota, against the newest state. With an error it returns the group
// that the error rests on, nil if that is published. The caller holds mu.
func (c *committer) decide(t *store.Txn, drafts []store.Draft) (*group, error) {
	s := c.store
	if err := t.Holds(c.object); err != nil {
		return c.failedOn(t, err), err
	}
	if err := s.Fits(t, c.bytes, c.object, func(i int) int { return drafts[i].Held() }); err != nil {
		return c.pendingAt(c.last), err
	}
	for i := range t.Guards {
		n := &t.Guards[i]
		if last := c.guards.last(n.Name); last > n.Seen {
			err := &store.TxnError{Part: store.GuardPart, Index: i, Err: store.ErrStale}
			if last <= s.Any().Revision() {
				return nil, err
			}
			return c.pendingAt(last), err
		}
	}
	return nil, nil
}

// failedOn returns the group that made the object whose condition failed.
func (c *committer) failedOn(t *store.Txn, err error) *group {
	failed := err.(*store.TxnError)
	collection, key := "", ""
	if failed.Part == store.WritePart {
		collection, key = t.Writes[failed.Index].Collection, t.Writes[failed.Index].Key
	} else {
		collection, key = t.Needs[failed.Index].Collection, t.Needs[failed.Index].Key
	}
	if v, ok := c.pending[objectName{collection, key}]; ok && v.revision > c.store.Any().Revision() {
		return c.pendingAt(v.revision)
	}
	return nil // it is published
}

// change makes the changes of a transaction. The caller holds mu.
func (c *committer) change(t *store.Txn, drafts []store.Draft) *member {
	s := c.store
	p := &member{needs: t.Needs, guards: t.Guards, deleting: true}
	p.writes = p.first[:0]
	for i := range t.Writes {
		w := &t.Writes[i]
		before := c.object(w.Collection, w.Key)
		c.last++
		next := memberWrite{key: w.Key, condition: w.If, next: w.Next, deleting: w.Deleting || w.Value == nil}
		if w.Value != nil {
			o := drafts[i].Object(c.last)
			o.Created = c.last
			if before != nil {
				o.Created, o.Key = before.Created, before.Key
			} else {
				o.Key = strings.Clone(w.Key)
			}
			next.object, next.key = o, o.Key
		}
		next.Staged = s.Stage(w.Collection, &store.Change{Revision: c.last, Before: before, After: next.object}, w.Origin)
		p.deleting = p.deleting && next.deleting
		p.writes = append(p.writes, next)
		c.apply(&p.writes[i])
	}
	c.guards.claim(p.guards, c.last, s.Any().Revision())
	return p
}

// object returns the newest version of an object, nil when there is none. The caller holds mu.
func (c *committer) object(collection, key string) *store.Object {
	if len(c.pending) > 0 {
		if v, ok := c.pending[objectName{collection, key}]; ok {
			return v.object
		}
	}
	return c.store.Any().Get(collection, key)
}

// apply makes a write the newest version of its object. The caller holds mu.
func (c *committer) apply(w *memberWrite) {
	c.pending[objectName{w.Collection(), w.key}] = version{w.object, w.Change.Revision}
	c.bytes += store.ObjectBytes(w.object) - c.store.Owned(w.Change.Before)
}

// pendingAt returns the group that a revision belongs to, which is not published.
func (c *committer) pendingAt(r store.Revision) *group {
	if c.open == nil || c.inFlight != nil && r <= c.inFlight.last {
		return c.inFlight
	}
	return c.open
}
