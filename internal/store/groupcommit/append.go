package groupcommit

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// mostScratch bounds the scratch space of the leader, in changes.
const mostScratch = 1024

// append makes the group durable; when space is short, its deletions alone.
func (c *committer) append(g *group) error {
	c.mu.Lock()
	failure := c.failure
	c.mu.Unlock()
	if failure != nil || g.last == 0 {
		return failure
	}
	err := c.appendOnce(g)
	if errors.Is(err, store.ErrNoSpace) && g.deletes() > 0 && g.deletes() < len(g.members) {
		c.rebase(g, err, func(p *member) bool { return p.deleting })
		if g.last == 0 {
			return nil
		}
		err = c.appendOnce(g)
	}
	if errors.Is(err, store.ErrNoSpace) {
		c.rebase(g, err, func(*member) bool { return false })
		return nil
	}
	return err
}

func (g *group) deletes() int {
	n := 0
	for _, p := range g.members {
		if p.deleting {
			n++
		}
	}
	return n
}

func (c *committer) appendOnce(g *group) error {
	s := c.store
	mark, now := s.Aging().Due(g.last)
	if now.After(c.time) {
		c.time = now
	}
	entries := c.entries[:0]
	for _, p := range g.members {
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			w := &p.writes[i]
			w.SetTime(c.time)
			e := w.Entry()
			e.Deleting = w.deleting
			entries = append(entries, e)
		}
	}
	began := s.Measured().Begin()
	err := c.appendLog(entries, mark)
	s.Measured().End(began, len(entries), g.bytes, err)
	if g.times != nil {
		*g.times = s.Measured().Times(began, len(entries), g.bytes)
	}
	if err == nil && mark != nil {
		s.Aging().Add(*mark, true)
	}
	if c.written += int64(g.bytes); c.written > c.mostHistory.Load()/sizeShare {
		c.written = 0
		s.Aging().Kick()
	}
	if c.log.Short() > 0 {
		for i := range entries {
			if e := &entries[i]; err == nil && e.Before != nil {
				c.room.garbage.Add(int64(e.Before.Len()))
			}
		}
		if c.room.rested() {
			s.Aging().Kick()
		}
	}
	clear(entries)
	if cap(entries) <= mostScratch {
		c.entries = entries
	}
	return err
}

// appendLog is the only function that writes to the log. A panic of the log counts as a
// failure.
func (c *committer) appendLog(entries []store.Entry, mark *store.Mark) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.log.Append(context.Background(), entries, mark)
}

// rebase begins again with the published state: it fails the transactions of the group in flight that are not kept, and
// checks all others again, those of the open group too. A transaction that passes makes the same changes as before: its
// conditions name the versions that it replaces.
func (c *committer) rebase(g *group, err error, keep func(*member) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	published := c.store.Any()
	clear(c.pending)
	c.bytes = published.Bytes()
	c.guards.rebase(published.Revision())
	for _, p := range g.members {
		if p.err == nil && !keep(p) {
			p.err = err
		}
	}
	c.reapply(g)
	g.end()
	if c.open != nil {
		c.reapply(c.open)
	}
}

func (c *committer) reapply(g *group) {
	g.rebased = true
	for _, p := range g.members {
		if p.err == nil {
			p.err = c.recheck(p)
		}
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			c.apply(&p.writes[i])
		}
		c.guards.claim(p.guards, p.writes[len(p.writes)-1].Change.Revision, c.store.Any().Revision())
	}
}

// recheck is decide for a transaction that joined a group. Its guards hold: the claims since
// then may be gone, and there are no others.
func (c *committer) recheck(p *member) error {
	for i := range p.writes {
		w := &p.writes[i]
		if w.next {
			continue
		}
		if err := store.CheckCondition(c.object(w.Collection(), w.key), w.condition); err != nil {
			return &store.TxnError{Part: store.WritePart, Index: i, Err: err}
		}
	}
	return store.CheckNeeds(p.needs, c.object)
}
