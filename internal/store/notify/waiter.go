package notify

import "sync/atomic"

// Source is a reader of changes, as its Waiter sees it.
type Source interface {
	// Behind reports whether something may be left to read. Other goroutines call it while the reader waits, and hold a lock of
	// this package. It does not block, and calls no method of the Waiter.
	Behind() bool
}

// Waiter lets a reader wait for its topic. One goroutine uses it; while it is in Wait, another one of its
// fanout may use the reader. It must not be copied.
type Waiter struct {
	source Source
	topic  *Topic // nil once it has left
	index  int    // in Topic.waiters

	fanout  atomic.Pointer[Fanout]
	reader  Reader        // nil: it is alone in its fanout
	woken   atomic.Bool   // by Wake; Wait has not returned since
	ready   chan struct{} // gets a value when a parked waiter is not parked any more
	leads   bool          // it then is the leader of its fanout
	wokenBy *Topic        // whose batch made it the leader; nil: none
}

// Start prepares the waiter of a source. It is called first.
func Start(w *Waiter, s Source) {
	w.source, w.ready = s, make(chan struct{}, 1)
	w.fanout.Store(new(Fanout))
}

// Wake makes Wait return: the one under way, or else the next one. It is for readers that
// also wait for something else. It is safe for concurrent use, also after Topic.Leave.
func (w *Waiter) Wake() {
	w.woken.Store(true)
	w.fanout.Load().release(w)
}

// Share adds the waiter to a fanout, whose readers deliver for each other: see Fanout. It is
// called at most once, before the first Wait.
func (w *Waiter) Share(g *Fanout, r Reader) {
	w.reader = r
	w.fanout.Store(g)
}

// Wait waits until there may be something to read, or for Wake. It may return
// spuriously. Meanwhile others of its fanout may read through its Reader.
func (w *Waiter) Wait() {
	g := w.fanout.Load()
	for w.topic != nil && g.park(w) {
		<-w.ready
		if !w.leads || !g.lead(w) {
			break
		}
	}
	w.woken.Store(false)
}

// Ready reports whether there may be something to read: Wait would return at once, or
// with the next batch.
func (w *Waiter) Ready() bool { return w.topic == nil || w.woken.Load() || w.source.Behind() }

// due reports whether Wait would return at once.
func (w *Waiter) due() bool { return w.woken.Load() || w.source.Behind() && !w.topic.again.Load() }

// endBatch ends the waiter's part in the batch that woke it.
func (w *Waiter) endBatch() {
	if w.wokenBy != nil {
		w.wokenBy.done()
		w.wokenBy = nil
	}
}
