package sharedwriter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// A barrier names a revision that is not older than any change acknowledged before the barrier
// began, by one call of Shared.Head. All that wait when a call begins share it. Those that come
// during a call share the next one: the call under way may have looked before they came.
//
//	A  [Head......]
//	B      ........[Head......]
//	C          ....[same.....]
//
// A call costs many times as much as a read. Of clients that read again as soon as they have their
// responses, the first one would begin a call, and all others would have to wait for the next one.
// So after a call for several readers the next one begins when all but a few of them have returned,
// at the latest after a pause. Readers who do not return cost the others the pause, which saves calls
// then, too: it has more readers. A reader that is alone waits for it only right after such a call.
type barrier struct {
	mu      sync.Mutex
	closed  bool
	calling bool      // a goroutine makes calls
	next    *headCall // has not begun; nil: no reader waits for it
	// The next call begins when it has enough readers, or when the pause ends.
	enough   int
	pauseEnd time.Time
	together chan struct{} // has an item if there may be enough
}

// headCall is a call of Head.
type headCall struct {
	readers  int // that have joined; not changed after the call has begun
	done     chan struct{}
	revision store.Revision
	err      error
}

const (
	// manyReaders is the number of readers from which on they come together.
	manyReaders = 4
	// callsPerPause is the length of the pause, in calls, and longestPause its limit.
	callsPerPause = 4
	longestPause  = 2 * time.Millisecond
	// longestHead bounds a call of Head, so that one that hangs does not hold up all reads.
	longestHead = 10 * time.Second
)

// MostRecent implements store.Writer: it waits for a barrier, and until its revision is published.
func (f *writer) MostRecent(ctx context.Context) (*store.State, error) {
	c, err := f.join()
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.err != nil {
		return nil, c.err
	}
	return f.store.Reached(ctx, c.revision)
}

// join returns a call that begins after this one does.
func (f *writer) join() (*headCall, error) {
	b := &f.barrier
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, store.ErrClosed
	}
	if b.next == nil {
		b.next = &headCall{done: make(chan struct{})}
	}
	if !b.calling {
		b.calling = true
		f.store.Go(f.heads)
	}
	if b.next.readers++; b.next.readers == b.enough {
		select {
		case b.together <- struct{}{}:
		default:
		}
	}
	return b.next, nil
}

// heads makes calls until no reader waits for one.
func (f *writer) heads() {
	b := &f.barrier
	for {
		b.mu.Lock()
		c := b.next
		if c == nil {
			b.calling = false
			b.mu.Unlock()
			return
		}
		pause := time.Until(b.pauseEnd)
		if c.readers >= b.enough || f.store.Context().Err() != nil {
			pause = 0
		}
		if pause <= 0 {
			b.next = nil
		}
		b.mu.Unlock()
		if pause > 0 {
			f.pause(pause)
			continue
		}
		began := time.Now()
		c.revision, c.err = f.head()
		took := time.Since(began)
		close(c.done)
		b.mu.Lock()
		b.plan(c, took)
		b.mu.Unlock()
	}
}

// plan determines when the call after this one begins. Readers are those of this call, who may return, and those
// who have come meanwhile.
func (b *barrier) plan(last *headCall, took time.Duration) {
	readers := last.readers
	if b.next != nil {
		readers += b.next.readers
	}
	b.enough, b.pauseEnd = 1, time.Time{}
	if readers >= manyReaders && last.err == nil {
		b.enough, b.pauseEnd = readers-max(1, readers/8), time.Now().Add(min(callsPerPause*took, longestPause))
	}
}

// pause waits until enough readers have come together, but not longer than the store is open.
func (f *writer) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.barrier.together:
	case <-f.store.Context().Done():
	}
}

// head calls Head. A head below a published revision is that of another log.
func (f *writer) head() (store.Revision, error) {
	s := f.store
	published := s.Any().Revision()
	ctx, cancel := context.WithTimeout(s.Context(), longestHead)
	defer cancel()
	r, err := f.log.Head(ctx)
	switch {
	case s.Context().Err() != nil:
		return 0, store.ErrClosed
	case err != nil && ctx.Err() != nil:
		return 0, &store.UnavailableError{Err: fmt.Errorf("the storage did not respond within %v: %w", longestHead, err)}
	case err == nil && r < published:
		err = fmt.Errorf("%w: its revision is %d, and was %d before", store.ErrReset, r, published)
	}
	f.note(err)
	return r, err
}

// close lets no further barrier begin.
func (b *barrier) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
