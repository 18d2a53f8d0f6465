package http2

import (
	"sync"
	"time"
)

// stallTimer calls a function when an operation takes longer than a limit. Operations begin
// and end often, and few stall. So neither touches the timer of the runtime: the timer runs
// from the first operation on, and when it fires it looks how long the current one takes.
// The connection's lock guards it.
type stallTimer struct {
	since   time.Time     // when the operation under way began; zero: there is none
	limit   time.Duration // must be set before begin
	timer   *time.Timer   // nil before the first operation
	running bool
}

// operation is guarded by a stallTimer.
type operation interface {
	// stalled is called with the lock held.
	stalled()
}

// begin begins an operation, unless one is under way. mu is the connection's lock.
func (t *stallTimer) begin(mu *sync.Mutex, o operation) {
	if t.since.IsZero() {
		t.since = time.Now()
	}
	switch {
	case t.running:
		return
	case t.timer == nil:
		t.timer = time.AfterFunc(t.limit, func() {
			mu.Lock()
			defer mu.Unlock()
			t.check(o)
		})
	default:
		t.timer.Reset(t.limit)
	}
	t.running = true
}

// end ends the operation.
func (t *stallTimer) end() { t.since = time.Time{} }

// setLimit changes the limit, also for an operation under way.
func (t *stallTimer) setLimit(d time.Duration) {
	t.limit = d
	if t.running {
		t.timer.Reset(d)
	}
}

// stop ends the operation and releases the timer.
func (t *stallTimer) stop() {
	t.end()
	if t.running {
		t.timer.Stop()
		t.running = false
	}
}

func (t *stallTimer) check(o operation) {
	t.running = false
	if t.since.IsZero() {
		return
	}
	if left := t.limit - time.Since(t.since); left > 0 {
		t.timer.Reset(left)
		t.running = true
		return
	}
	o.stalled()
}
