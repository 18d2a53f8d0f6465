package groupcommit

import (
	"context"
	"fmt"
)

// await waits until the group is done, and leads it if it gets the lead.
func (c *committer) await(ctx context.Context, g *group, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-g.lead:
		c.lead(g)
		return nil
	case <-ctx.Done():
		// The lead may be handed over later, and a goroutine has to take it.
		go func() {
			select {
			case <-done:
			case <-g.lead:
				c.lead(g)
			}
		}()
		return fmt.Errorf("the write may still happen: %w", ctx.Err())
	}
}

func (c *committer) lead(g *group) {
	c.mu.Lock()
	c.seal(g)
	c.mu.Unlock()
	c.leadSealed(g)
}

// leadSealed appends a sealed group to the log and publishes it, then hands the lead
// over.
func (c *committer) leadSealed(g *group) {
	defer c.finish(g) // also when OnFatal panics
	s := c.store
	if err := c.append(g); err != nil {
		failure, first := c.fail(err)
		if g.err = failure; first {
			s.Fatal(failure)
		}
	} else if g.last != 0 {
		c.publish(g)
		c.startLoop()
		if floor := c.log.Floor(); floor > s.Floor() {
			s.RaiseFloor(floor) // Append raised it to this group
			s.Trim(floor)
		}
	}
}

// fail refuses all writes from now on. It returns the first error of the log, for which the caller calls Publisher.Fatal.
func (c *committer) fail(err error) (failure error, first bool) {
	failure, first = c.store.Fail(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = failure
	return failure, first
}

// publish publishes the writes of a group that the log has.
func (c *committer) publish(g *group) {
	changes := c.changes[:0]
	for _, p := range g.members {
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			changes = append(changes, p.writes[i].Staged)
		}
	}
	c.store.Publish(changes, g.last, c.time)
	clear(changes)
	if cap(changes) <= mostScratch {
		c.changes = changes[:0]
	}
}

// finish ends the part of a leader.
func (c *committer) finish(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight = nil
	c.forget(g)
	g.over = true
	if g.done != nil {
		close(g.done)
	}
	if c.open != nil {
		c.open.lead <- struct{}{}
	} else {
		c.leading = false
	}
}

// forget removes the writes of a group from pending: they are published, or have failed. The caller holds mu.
func (c *committer) forget(g *group) {
	if c.open == nil && len(c.pending) > mostScratch {
		c.pending = map[objectName]version{} // a map does not shrink
		return
	}
	for _, p := range g.members {
		for i := range p.writes {
			w := &p.writes[i]
			if name := (objectName{w.Collection(), w.key}); c.pending[name].revision == w.Change.Revision {
				delete(c.pending, name)
			}
		}
	}
}
