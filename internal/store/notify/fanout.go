package notify

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Fanout is a set of waiters whose readers write to one connection. To wake a goroutine, and to
// have it wait again, costs as much as all else that an event does to a watch. So a batch
// wakes one waiter of the fanout, the leader. The leader's goroutine delivers to all others
// that wait, which sleep on, and flushes once.
//
// A reader that the leader cannot serve (its client has no room, it ends, it has to read
// the log) is woken and goes on by itself. A leader that fills the connection stops
// there and flushes, and the next leader serves the rest. No waiter waits for a
// flush: the leader gives the others back before.
//
// At any time a waiter belongs to one of three:
//
//	its own goroutine   ... which calls Wait: parked
//	the fanout          parked: a batch makes it the leader, a leader takes it,
//	                    Wake gives it back to its goroutine
//	a leader            Deliver: parked again, or back to its goroutine
//
// While one leader flushes, the fanout may have another. A waiter that is not
// shared has a fanout of its own, whose leader only returns from Wait.
//
// The zero value is an empty fanout. All methods are safe for concurrent use.
type Fanout struct {
	// waits is whether waiters are parked and no leader is on its way to them. It is
	// written with mu held.
	waits atomic.Bool

	mu     sync.Mutex // no other lock is taken while it is held
	parked []*Waiter
	spare  []*Waiter // room for parked; nil: a leader has it

	// wokenBy and batch are the last batch that woke the fanout.
	wokenBy *Topic
	batch   uint64
}

// Reader reads for a waiter of a fanout.
type Reader interface {
	// Deliver reads changes in memory, such as with Cursor.TryRecent of package store, on behalf of the goroutine that waits,
	// and passes them on. It does not wait, and does not panic: all readers of
	// the topic depend on it.
	Deliver() Delivery
	// Flush sends the delivered changes of the readers of the fanout. It may wait.
	Flush()
}

// Delivery is the result of a Deliver.
type Delivery int

const (
	Delivered Delivery = iota // nothing is left
	Full                      // nothing is left, and it is time for Flush
	Declined                  // the goroutine that waits has to look
)

// park adds a waiter to those that wait, unless it has something to read.
func (g *Fanout) park(c *Waiter) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.parked = append(g.parked, c)
	g.waits.Store(true) // before the look: a batch that comes after it finds the waiter
	if c.due() {
		g.remove(len(g.parked) - 1)
		return false
	}
	return true
}

// remove takes a waiter out of parked. The lock is held.
func (g *Fanout) remove(i int) *Waiter {
	c := g.parked[i]
	g.parked = slices.Delete(g.parked, i, i+1)
	if len(g.parked) == 0 {
		g.waits.Store(false)
	}
	return c
}

// release gives a waiter back to its goroutine, if it is parked.
func (g *Fanout) release(c *Waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.parked, c); i >= 0 {
		g.remove(i).ready <- struct{}{}
	}
}

// wake makes a waiter the leader, as part of the topic's batch, and reports whether it did. A
// batch needs one leader of a fanout: a waiter that is parked after that leader was elected has seen the
// changes of the batch.
func (g *Fanout) wake(t *Topic) bool {
	if !g.waits.Load() {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.waits.Load() || g.wokenBy == t && g.batch == t.batch {
		return false
	}
	g.wokenBy, g.batch = t, t.batch
	t.running.Add(1)
	g.elect(t)
	return true
}

// elect makes the waiter that was parked last the leader: its stack is the warmest. The
// batch is that of t; nil: it is no part of one. The lock is held.
func (g *Fanout) elect(t *Topic) {
	c := g.remove(len(g.parked) - 1)
	g.waits.Store(false)
	c.leads, c.wokenBy = true, t
	c.ready <- struct{}{}
}

// lead does the leader's part, on its goroutine, and reports whether the leader itself has
// nothing left to do.
func (g *Fanout) lead(c *Waiter) (idle bool) {
	c.leads = false
	if c.reader == nil {
		c.endBatch()
		return false
	}
	others := g.take()
	d := c.reader.Deliver()
	idle = d != Declined
	seen, served := 0, others[:0]
	for ; seen < len(others) && d != Full; seen++ {
		o := others[seen]
		if o.Ready() {
			if d = o.reader.Deliver(); d == Declined {
				o.ready <- struct{}{}
				continue
			}
		}
		served = append(served, o)
	}
	g.giveBack(others, seen, len(served))
	c.endBatch()
	c.reader.Flush()
	return idle && !c.woken.Load()
}

// take takes all that are parked, for a leader.
func (g *Fanout) take() []*Waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := append(g.spare, g.parked...)
	g.spare = nil
	clear(g.parked)
	g.parked = g.parked[:0]
	g.waits.Store(false)
	return all
}

// giveBack parks the waiters that a leader took: taken[seen:], which it has not come to, then
// taken[:served], which it has served. If a parked waiter has something to read, the fanout
// gets its next leader.
func (g *Fanout) giveBack(taken []*Waiter, seen, served int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	due := seen < len(taken)
	g.parked = append(append(g.parked, taken[seen:]...), taken[:served]...)
	clear(taken)
	g.spare = taken[:0]
	g.waits.Store(len(g.parked) > 0)
	g.parked = slices.DeleteFunc(g.parked, func(c *Waiter) bool {
		if c.woken.Load() { // while the leader had it
			c.ready <- struct{}{}
			return true
		}
		due = due || c.due()
		return false
	})
	if len(g.parked) == 0 {
		g.waits.Store(false)
	} else if due {
		g.elect(nil)
	}
}
