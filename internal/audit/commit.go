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

	mu   sync.Mutex
	open *group // takes events; guarded by mu

	// turn is held to write. It is locked before mu.
	turn   sync.Mutex
	closed bool   // guarded by turn
	spare  *group // guarded by turn
}

// group is a batch that is written at once.
type group struct {
	batch
	written bool  // guarded by turn
	err     error // guarded by turn
	read    int   // how many have read err; guarded by turn
}

func newCommitter(out output, name string, fail func(string, int, error)) *committer {
	return &committer{name: name, out: out, fail: fail, open: &group{}, spare: &group{}}
}

func (c *committer) put(line []byte) error {
	c.mu.Lock()
	g := c.open
	g.add(line)
	c.mu.Unlock()

	c.turn.Lock()
	defer c.turn.Unlock()
	if !g.written {
		c.write(g)
	}
	err := g.err
	if g.read++; g.read == len(g.ends) && c.spare == nil {
		g.reset()
		*g = group{batch: g.batch}
		c.spare = g
	}
	return err
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
	c.closed = true
	return c.out.close()
}

const (
	// directPatience bounds the sending of an event in the mode blocking, with all attempts.
	directPatience = 30 * time.Second
	// downPatience is the same after an event that could not be sent, until one is sent again. Otherwise a webhook that
	// hangs would hold up each request for directPatience.
	downPatience = 2 * time.Second
)

// direct is the sink of a blocking webhook: put returns when the event is sent.
type direct struct {
	name string
	out  output
	fail func(plugin string, events int, err error)

	ctx    context.Context // done when the server does not wait any longer
	cancel context.CancelFunc
	down   atomic.Bool // the last event could not be sent
}

func newDirect(out output, name string, fail func(string, int, error)) *direct {
	d := &direct{name: name, out: out, fail: fail}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	return d
}

func (d *direct) put(line []byte) error {
	var b batch
	b.add(line)
	patience := directPatience
	if d.down.Load() {
		patience = downPatience
	}
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	err := d.out.write(ctx, &b)
	d.down.Store(err != nil)
	if err != nil {
		d.fail(d.name, 1, err)
	}
	return err
}

func (d *direct) close(context.Context) error {
	d.cancel()
	return d.out.close()
}
