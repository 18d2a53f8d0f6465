package audit

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

var errClosed = errors.New("audit backend shut down")

// committer is the sink of a blocking log. put returns when the event is written. Events that
// arrive during a write are written together:
//
//	put A: joins batch 1, takes the turn, writes batch 1
//	put B: joins batch 2, waits for the turn
//	put C: joins batch 2, waits for the turn
//	put B: has the turn, writes batch 2
//	put C: has the turn, finds batch 2 written
type committer struct {
	name string
	out  output
	fail func(plugin string, events int, err error)

	mu      sync.Mutex
	open    *group // takes events; guarded by mu
	flushes bool   // a goroutine will call flush; guarded by mu

	// turn is held to write. It is locked before mu.
	turn   sync.Mutex
	closed bool   // guarded by turn
	spare  *group // guarded by turn
}

// groupBytes is the size from which on a group takes no more events. Otherwise a flood of requests would make one group of
// all their events, and copy it again and again as it grows.
const groupBytes = 1 << 20

// group is a batch that is written at once.
type group struct {
	batch
	later   int   // events whose requests do not wait; guarded by mu until the group is written
	written bool  // guarded by turn
	err     error // guarded by turn
	read    int   // events whose requests have read err; guarded by turn
}

func newCommitter(out output, name string, fail func(string, int, error)) *committer {
	return &committer{name: name, out: out, fail: fail, open: &group{}, spare: &group{}}
}

func (c *committer) put(e *Event, line []byte) error {
	if e.NoWait {
		return c.putLater(line)
	}
	g := c.join(line)
	c.turn.Lock()
	defer c.turn.Unlock()
	if !g.written {
		c.write(g)
	}
	err := g.err
	g.read++
	c.reuse(g)
	return err
}

// putLater adds an event to the open group, which a goroutine writes if no request does. It refuses the event if the group
// is full, because the log hangs then.
func (c *committer) putLater(line []byte) error {
	c.mu.Lock()
	if len(c.open.data) >= groupBytes {
		c.mu.Unlock()
		c.fail(pluginBuffered, 1, errBufferFull)
		return errBufferFull
	}
	c.open.add(line)
	c.open.later++
	start := !c.flushes
	c.flushes = true
	c.mu.Unlock()
	if start {
		go func() {
			c.turn.Lock()
			defer c.turn.Unlock()
			c.flush()
		}()
	}
	return nil
}

// flush writes the open group unless it is empty. turn is held.
func (c *committer) flush() {
	c.mu.Lock()
	g := c.open
	empty := len(g.ends) == 0
	c.flushes = false
	c.mu.Unlock()
	if !empty {
		c.write(g)
		c.reuse(g)
	}
}

// reuse keeps a written group as the spare one if no request will read its error any more. turn is held.
func (c *committer) reuse(g *group) {
	if g.read+g.later == len(g.ends) && c.spare == nil {
		g.reset()
		*g = group{batch: g.batch}
		c.spare = g
	}
}

// join adds an event to the open group, and returns the group. If that is full, join waits for the turn and writes it.
func (c *committer) join(line []byte) *group {
	for {
		c.mu.Lock()
		g := c.open
		if len(g.data) < groupBytes {
			g.add(line)
			c.mu.Unlock()
			return g
		}
		c.mu.Unlock()
		c.writeFull(g)
	}
}

// writeFull writes a full group, unless it has been written meanwhile. Then another group is open, or the same one again
// with fewer events.
func (c *committer) writeFull(g *group) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.mu.Lock()
	full := c.open == g && len(g.data) >= groupBytes
	c.mu.Unlock()
	if full {
		c.write(g)
	}
}

// write writes a group. turn is held.
func (c *committer) write(g *group) {
	next := c.spare
	if c.spare = nil; next == nil {
		next = &group{}
	}
	c.mu.Lock()
	c.open = next
	c.mu.Unlock()
	g.written = true
	if g.err = errClosed; !c.closed {
		g.err = c.out.write(context.Background(), &g.batch)
	}
	if g.err != nil {
		c.fail(c.name, len(g.ends), g.err)
	}
}

func (c *committer) close(context.Context) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.closed {
		return nil
	}
	c.flush()
	c.closed = true
	return c.out.close()
}

const (
	// sendPatience is how long all attempts to send a batch may take in the blocking modes.
	sendPatience = 30 * time.Second
	// requestPatience is how long a request waits for a webhook, for all its events together.
	requestPatience = 10 * time.Second
	// downPatience is the same after a wait that failed, until a batch has been sent again. Otherwise a
	// webhook that hangs would hold up each request for requestPatience.
	downPatience = time.Second
	// waitingEvents is the maximum number of events that wait to be sent.
	waitingEvents = 10_000
)

// waiting is the sink of a blocking webhook. put returns when the event has been sent, or when the request has
// waited long enough; the event is sent later then. Events that arrive while all senders are busy are sent
// together, so a webhook that hangs does not hold a connection for each request.
type waiting struct {
	*buffered
	down atomic.Bool // the last event could not be sent in time
}

func newWaiting(out output, senders int, name string, fail func(string, int, error)) *waiting {
	c := BatchConfig{BufferSize: waitingEvents, MaxSize: 400, maxBytes: maxBatchBytes}
	b := newBuffered(c, out, senders, name, fail)
	b.limit = sendPatience
	return &waiting{buffered: b}
}

var errNoTime = errors.New("the audit webhook did not respond in time")

func (w *waiting) put(e *Event, line []byte) error {
	result, err := w.add(line, true)
	if err != nil || e.NoWait {
		return err
	}
	patience := requestPatience
	if w.down.Load() {
		patience = downPatience
	}
	began := time.Now()
	timer := time.NewTimer(max(0, patience-e.waited))
	defer timer.Stop()
	select {
	case <-result.done:
		e.waited += time.Since(began)
		w.down.Store(result.err != nil)
		return result.err
	case <-timer.C:
		e.waited = requestPatience
		w.down.Store(true)
		return errNoTime
	case <-e.Done:
		return context.Canceled
	}
}
