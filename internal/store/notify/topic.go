package notify

import (
	"sync"
	"sync/atomic"
	"time"
)

// Changes that many watch are worth gathering: where a topic has gatherFrom waiters or
// more, the next batch begins gatherEach for each of them after the one before, gatherMost
// at most. With a change every millisecond, an event for each of 100 or 1,000 watches costs
// a tenth less CPU with two milliseconds than with none, and comes no later.
const (
	gatherFrom = 32
	gatherEach = 20 * time.Microsecond
	gatherMost = 2 * time.Millisecond
)

// Topic has the waiters for the same changes. The zero value is ready. Its methods are safe for concurrent use, apart from Note,
// Mark and Notify, which one goroutine at a time calls.
type Topic struct {
	// last is the newest change that the topic selects, or a revision above it.
	last atomic.Uint64
	// previous is the change before last, or a revision above it. It is written before
	// last and read after it: next to an older last it can only be too new.
	previous atomic.Uint64
	marked   bool // since the last Notify

	// running is how many of those that the batch woke have not read yet, plus one while
	// the batch begins.
	running atomic.Int32
	again   atomic.Bool // something was published since the batch began

	mu       sync.Mutex
	waiters  []*Waiter
	batch    uint64      // the number of the batch
	earliest time.Time   // for the next batch; zero: at once
	pause    *time.Timer // until then; nil: there was none yet
}

// Init sets Last and Previous of a new topic, before the first Join. Its newest change is not known, so r is a revision at or
// above it.
func (t *Topic) Init(r uint64) {
	t.last.Store(r)
	t.previous.Store(r)
}

// Last returns the newest change that the topic selects, or a revision above it.
func (t *Topic) Last() uint64 { return t.last.Load() }

// Previous returns the change before Last, or a revision above it. It is called after Last.
func (t *Topic) Previous() uint64 { return t.previous.Load() }

// Note records a change that the topic selects.
func (t *Topic) Note(r uint64) {
	if t.last.Load() == r {
		return // another change of the revision
	}
	t.previous.Store(t.last.Load())
	t.last.Store(r)
}

// Mark marks the topic for Notify, and reports whether it was not marked. Then the caller adds it to the topics to notify.
func (t *Topic) Mark() bool {
	first := !t.marked
	t.marked = true
	return first
}

// Join adds a waiter.
func (t *Topic) Join(w *Waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w.topic, w.index = t, len(t.waiters)
	t.waiters = append(t.waiters, w)
}

// Leave removes a waiter, and reports whether it was the last one. The waiter does not wait any more.
func (t *Topic) Leave(w *Waiter) (empty bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	end := len(t.waiters) - 1
	moved := t.waiters[end]
	t.waiters[w.index], moved.index = moved, w.index
	t.waiters[end] = nil
	t.waiters = t.waiters[:end]
	w.topic = nil
	return end == 0
}

// WakeAll wakes all waiters.
func (t *Topic) WakeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range t.waiters {
		w.Wake()
	}
}

// Len returns the number of waiters.
func (t *Topic) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiters)
}

// Notify begins a batch. If one is under way, its end begins the next: it looks at again
// after running became zero, so again is set first here.
func (t *Topic) Notify() {
	t.marked = false
	t.again.Store(true)
	t.next()
}

// done ends one waiter's part in the batch.
func (t *Topic) done() {
	if t.running.Add(-1) == 0 {
		t.next()
	}
}

// next begins a batch if there is something new and no batch is under way.
func (t *Topic) next() {
	for t.again.Load() && t.running.Load() == 0 {
		t.mu.Lock()
		if t.again.Load() && t.running.Load() == 0 && !t.paused() {
			t.begin()
		}
		t.mu.Unlock()
	}
}

// paused delays the next batch if it is too early for it. The lock is held.
func (t *Topic) paused() bool {
	if t.earliest.IsZero() {
		return false
	}
	left := time.Until(t.earliest)
	if left <= 0 {
		return false
	}
	t.running.Store(1) // until then
	if t.pause == nil {
		t.pause = time.AfterFunc(left, t.done)
	} else {
		t.pause.Reset(left)
	}
	return true
}

// begin begins a batch: it wakes one waiter of each fanout that waits. The lock is held.
func (t *Topic) begin() {
	t.running.Store(1)
	t.batch++
	t.again.Store(false)
	t.earliest = time.Time{}
	for _, w := range t.waiters {
		if w.fanout.Load().wake(t) && len(t.waiters) >= gatherFrom && t.earliest.IsZero() {
			t.earliest = time.Now().Add(min(gatherMost, time.Duration(len(t.waiters))*gatherEach))
		}
	}
	t.running.Add(-1)
}
