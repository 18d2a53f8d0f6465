package audit

import (
	"context"
	"errors"
	"sync"
	"time"
)

// BatchConfig configures the mode batch.
type BatchConfig struct {
	// BufferSize is how many events wait at most; the others are dropped.
	BufferSize int
	// MaxSize is how many events a batch has at most. A batch of the log has no such limit if
	// MaxSize is 1: a reader of the log does not see it.
	MaxSize int
	// MaxWait is how long an event waits at most for its batch to be full.
	MaxWait time.Duration
	// Throttle limits the batches: QPS per second, after a Burst.
	Throttle bool
	QPS      float64
	Burst    int

	maxBytes int64 // of a batch
}

const (
	// maxBatchBytes bounds a batch where truncation does not.
	maxBatchBytes = 10 << 20
	// maxBufferBytes bounds the events that wait, and those under way: objects can be large.
	maxBufferBytes = 128 << 20
	// mergedSize bounds a batch of the log.
	mergedSize = 2000
	// mergedPause is between two writes to the log, so that a busy server writes many events
	// at once.
	mergedPause = 10 * time.Millisecond
)

// batch is a sequence of events, each a line.
type batch struct {
	data []byte
	ends []int // of the lines in data
	sent *sent // nil: no request waits for it
}

// sent is the outcome of sending a batch.
type sent struct {
	done chan struct{} // closed when the batch was written or lost
	err  error         // set before done is closed
}

func (b *batch) add(line []byte) {
	b.data = append(b.data, line...)
	b.ends = append(b.ends, len(b.data))
}

func (b *batch) reset() {
	if cap(b.data) > 1<<20 {
		b.data = nil
	}
	b.data, b.ends, b.sent = b.data[:0], b.ends[:0], nil
}

var errBufferFull = errors.New("audit buffer queue blocked")

// buffered is the sink of the mode batch: put adds to a bounded buffer, and one goroutine makes
// batches of it. A webhook has several senders.
type buffered struct {
	c      BatchConfig
	limit  time.Duration // for writing one batch; zero: none
	name   string
	out    output
	fail   func(plugin string, events int, err error)
	merged bool // MaxSize does not count
	bucket bucket

	wake    chan struct{} // a batch is full, or the first event has arrived
	stop    chan struct{} // closed by close
	done    chan struct{} // closed when all batches are written
	senders chan struct{} // as many as may send at once

	ctx    context.Context // of writes; done when close does not wait any longer
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool     // guarded by mu, as all below
	open   *batch   // takes events
	full   []*batch // in order
	spare  *batch   // empty, for reuse; may be nil
	events int      // in open and full
	bytes  int64    // in open, full and under way
}

func newBuffered(c BatchConfig, out output, senders int, name string, fail func(string, int, error)) *buffered {
	b := &buffered{
		c: c, name: name, out: out, fail: fail, merged: senders == 1 && c.MaxSize == 1 && !c.Throttle,
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}), senders: make(chan struct{}, senders),
		open: &batch{},
	}
	if b.merged {
		b.c.MaxSize, b.c.MaxWait = mergedSize, 0
	}
	b.bucket = bucket{qps: c.QPS, tokens: float64(c.Burst), burst: float64(c.Burst), at: time.Now()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	go b.run()
	return b
}

// put implements sink. It does not wait.
func (b *buffered) put(_ *Event, line []byte) error {
	_, err := b.add(line, false)
	return err
}

// add adds an event. If outcome is true, it returns the outcome of the event's batch.
func (b *buffered) add(line []byte, outcome bool) (*sent, error) {
	b.mu.Lock()
	var err error
	switch {
	case b.closed:
		err = errClosed
	case b.events >= b.c.BufferSize, b.bytes > 0 && b.bytes+int64(len(line)) > maxBufferBytes:
		err = errBufferFull
	}
	if err != nil {
		b.mu.Unlock()
		b.fail(pluginBuffered, 1, err)
		return nil, err
	}
	if len(b.open.ends) > 0 && int64(len(b.open.data)+len(line)) > b.c.maxBytes {
		b.fill()
	}
	b.open.add(line)
	if outcome && b.open.sent == nil {
		b.open.sent = &sent{done: make(chan struct{})}
	}
	result := b.open.sent
	b.events++
	b.bytes += int64(len(line))
	first := len(b.open.ends) == 1
	if len(b.open.ends) >= b.c.MaxSize {
		b.fill()
	}
	wake := len(b.full) > 0 || first && b.c.MaxWait <= 0
	b.mu.Unlock()
	if wake {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return result, nil
}

// fill ends the open batch. mu is held.
func (b *buffered) fill() {
	b.full = append(b.full, b.open)
	if b.open = b.spare; b.open == nil {
		b.open = &batch{}
	}
	b.spare = nil
}

// take returns the next batch, nil if there is none. all includes a batch that is not full.
func (b *buffered) take(all bool) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all && len(b.full) == 0 && len(b.open.ends) > 0 {
		b.fill()
	}
	if len(b.full) == 0 {
		return nil
	}
	next := b.full[0]
	b.full[0] = nil
	b.full = b.full[1:]
	b.events -= len(next.ends)
	return next
}

// run makes batches until close, and then of the remaining events.
func (b *buffered) run() {
	defer close(b.done)
	var overdue <-chan time.Time
	if b.c.MaxWait > 0 {
		t := time.NewTicker(b.c.MaxWait)
		defer t.Stop()
		overdue = t.C
	}
	for closing := false; !closing; {
		all := b.c.MaxWait <= 0
		select {
		case <-b.wake:
		case <-overdue:
			all = true
		case <-b.stop:
			all, closing = true, true
		}
		for next := b.take(all); next != nil; next = b.take(all) {
			b.throttle()
			b.send(next)
		}
		if b.merged && !closing {
			b.pause(mergedPause)
		}
	}
	for range cap(b.senders) { // until all have sent
		b.senders <- struct{}{}
	}
}

// send writes a batch, in a goroutine if there are several senders.
func (b *buffered) send(next *batch) {
	b.senders <- struct{}{}
	if cap(b.senders) > 1 {
		go b.write(next)
		return
	}
	b.write(next)
}

func (b *buffered) write(next *batch) {
	defer func() { <-b.senders }()
	ctx := b.ctx
	if b.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.limit)
		defer cancel()
	}
	err := b.out.write(ctx, next)
	if err != nil {
		b.fail(b.name, len(next.ends), err)
	}
	if next.sent != nil {
		next.sent.err = err
		close(next.sent.done)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= int64(len(next.data))
	next.reset()
	b.spare = next
}

// throttle waits for the turn of a batch. A server that closes does not wait.
func (b *buffered) throttle() {
	if b.c.Throttle {
		b.pause(b.bucket.take(time.Now()))
	}
}

// pause waits, at most until close.
func (b *buffered) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.stop:
	}
}

// close implements sink. Events that cannot be written until the context is done are lost and
// counted.
func (b *buffered) close(ctx context.Context) error {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if closed {
		return nil
	}
	b.out.hurry()
	close(b.stop)
	select {
	case <-b.done:
	case <-ctx.Done():
	}
	b.cancel()
	<-b.done
	return b.out.close()
}

// bucket is a token bucket. One goroutine uses it.
type bucket struct {
	qps, tokens, burst float64
	at                 time.Time // of tokens
}

// take takes a token, and returns how long to wait for it.
func (b *bucket) take(now time.Time) time.Duration {
	b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.qps)
	b.at = now
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	return time.Duration(-b.tokens / b.qps * float64(time.Second))
}
