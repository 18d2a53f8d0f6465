package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A barrier names a revision that is not older than any change acknowledged before the barrier
// began, by one call of Shared.Head. All that wait when a call begins share it. Those that come
// during a call share the next one: the call under way may have looked before they came.
//
//	A  [Head......]
//	B      ........[Head......]
//	C          ....[same.....]
type barrier struct {
	mu            sync.Mutex
	closed        bool
	current, next *headCall // nil: none
}

// headCall is a call of Head.
type headCall struct {
	done     chan struct{}
	revision Revision
	err      error
}

const (
	// longestHead bounds a call of Head, so that one that hangs does not hold up all reads.
	longestHead = 10 * time.Second
	// longestLag bounds how long a read of the most recent state waits for the follower.
	longestLag = 10 * time.Second
)

// mostRecent is MostRecent on a Shared.
func (f *follower) mostRecent(ctx context.Context) (*State, error) {
	c, err := f.join()
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s := f.store
	if c.err != nil {
		return nil, c.err
	}
	if now := s.Any(); now.revision >= c.revision {
		return now, nil
	}
	timer := time.NewTimer(longestLag)
	defer timer.Stop()
	state, err := s.arrival.await(ctx, s, c.revision, timer.C)
	if late := (*TooLargeError)(nil); errors.As(err, &late) {
		return nil, &UnavailableError{Err: fmt.Errorf("this server is behind: %w", err)}
	}
	return state, err
}

// join returns a call that begins after this one does.
func (f *follower) join() (*headCall, error) {
	b := &f.barrier
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, ErrClosed
	case b.current == nil:
		c := &headCall{done: make(chan struct{})}
		b.current = c
		f.store.loop.Go(func() { f.heads(c) })
		return c, nil
	case b.next == nil:
		b.next = &headCall{done: make(chan struct{})}
	}
	return b.next, nil
}

// heads makes a call, then those that others wait for.
func (f *follower) heads(c *headCall) {
	b := &f.barrier
	for c != nil {
		c.revision, c.err = f.head()
		close(c.done)
		b.mu.Lock()
		c = b.next
		b.current, b.next = c, nil
		b.mu.Unlock()
	}
}

// head calls Head. A head below what was published before is that of another log.
func (f *follower) head() (Revision, error) {
	s := f.store
	published := s.Any().revision
	ctx, cancel := context.WithTimeout(s.ctx, longestHead)
	defer cancel()
	r, err := f.log.Head(ctx)
	switch {
	case s.ctx.Err() != nil:
		return 0, ErrClosed
	case err != nil && ctx.Err() != nil:
		return 0, &UnavailableError{Err: fmt.Errorf("the log did not answer within %v: %w", longestHead, err)}
	case err == nil && r < published:
		err = fmt.Errorf("%w: its revision is %d, and was %d before", ErrReset, r, published)
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
