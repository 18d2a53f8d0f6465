package store

import (
	"context"
	"slices"
)

// Feed is a position in the log of all collections: a Cursor that selects everything,
// for readers of all changes in their one order. It holds no queue
// and no copy, and lags as a Cursor does. One goroutine uses a feed.
type Feed struct {
	store  *Store
	ready  signal
	at     position
	epoch  uint32 // of the history, when it began
	closed bool
}

// Feed starts a feed that begins with the first change after the revision. A revision
// below the history is an *ExpiredError.
func (s *Store) Feed(after Revision) (*Feed, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if floor := Revision(s.floor.Load()); after < floor {
		return nil, &ExpiredError{Revision: after, Floor: floor}
	}
	f := &Feed{store: s, at: position{revision: after}, ready: make(signal, 1)}
	h := &s.history
	h.mu.Lock()
	// A new slice each time: the goroutine that publishes walks the one it saw without the lock.
	h.feeds = append(slices.Clip(h.feeds), f.ready)
	f.epoch = h.epoch.Load()
	h.mu.Unlock()
	f.remind()
	if s.closed.Load() { // Close may have missed it
		f.ready.send()
	}
	return f, nil
}

// remind makes Ready give a value if there is something to read.
func (f *Feed) remind() {
	if f.store.Any().revision > f.at.revision {
		f.ready.send()
	}
}

// TryNext fills buf with the changes that follow, in the order of their revisions,
// and returns their number, zero if there are none. It splits a revision only if that does not
// fit into buf. It does not wait. An *ExpiredError means
// that the reader was too slow and the history went on without it, ErrClosed that the store
// was closed. The context bounds reads from the log.
func (f *Feed) TryNext(ctx context.Context, buf []CollectionChange) (int, error) {
	for {
		if f.closed || f.store.closed.Load() {
			return 0, ErrClosed
		}
		upTo := f.store.Any().revision
		if f.epoch != f.store.history.epoch.Load() {
			return 0, &ExpiredError{Revision: f.at.revision, Floor: upTo}
		}
		if upTo <= f.at.revision || len(buf) == 0 {
			return 0, nil
		}
		n, found := f.read(upTo, buf)
		if !found {
			var err error
			if n, err = f.readBack(ctx, buf); err != nil {
				return 0, err
			}
		}
		if n > 0 {
			f.remind()
			return n, nil
		}
	}
}

// read fills buf from memory and moves the feed. It returns false if some of the changes that
// follow left memory.
func (f *Feed) read(upTo Revision, buf []CollectionChange) (n int, found bool) {
	h := &f.store.history
	h.mu.Lock() // no trim meanwhile
	defer h.mu.Unlock()
	if f.at.revision < h.window {
		return 0, false
	}
	var r reading
	i, skip := h.after(f.at.revision), f.at.within
	for ; i < h.order.len() && n < len(buf); i++ {
		o := h.order.at(i)
		if o.change.Revision > upTo {
			break
		}
		if r.look(o.change.Revision, n); skip > 0 {
			skip--
			continue
		}
		buf[n] = CollectionChange{o.collection.name, o.change}
		n++
	}
	if n < len(buf) {
		f.at = position{upTo, 0}
		return n, true
	}
	next := Revision(0)
	if i < h.order.len() {
		next = h.order.at(i).change.Revision
	}
	kept, p := r.stop(next, n)
	clear(buf[kept:n])
	f.at = p
	return kept, true
}

// readBack fills buf from the log, with changes that left memory.
func (f *Feed) readBack(ctx context.Context, buf []CollectionChange) (n int, err error) {
	s := f.store
	s.history.mu.Lock()
	upTo := s.history.window
	s.history.mu.Unlock()
	err = s.old.batch(ctx, s.old.batches, func(ctx context.Context) (err error) {
		if floor := Revision(s.floor.Load()); f.at.revision < floor {
			return &ExpiredError{Revision: f.at.revision, Floor: floor}
		}
		n, _, err = s.readLog(ctx, "", &f.at, upTo, len(buf), 0, func(n int, e *Entry) bool {
			buf[n] = CollectionChange{e.Collection, e.change()}
			return true
		})
		return err
	})
	if n > 0 {
		err = nil // the caller gets these changes, and the error with the next call
	}
	return n, err
}

// Ready returns a channel that gets a value when TryNext may have something. A
// value may be spurious, none is lost.
func (f *Feed) Ready() <-chan struct{} { return f.ready }

// Revision is how far the feed has read: no change is left at or below it.
func (f *Feed) Revision() Revision { return f.at.revision }

// Close releases the feed. It is idempotent.
func (f *Feed) Close() {
	if f.closed {
		return
	}
	f.closed = true
	h := &f.store.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.feeds = slices.DeleteFunc(slices.Clone(h.feeds), func(other signal) bool { return other == f.ready })
}
