package store

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// arrival lets readers and writers wait for a revision.
type arrival struct {
	waiting atomic.Int64
	mu      sync.Mutex
	waiters []*waiter // by revision
}

type waiter struct {
	revision Revision
	reached  chan struct{} // closed when the revision is published
}

// await returns the newest state once it has reached a revision. When late fires it returns a
// *TooLargeError; nil: it never does.
func (a *arrival) await(ctx context.Context, s *Store, r Revision, late <-chan time.Time) (*State, error) {
	w := &waiter{r, make(chan struct{})}
	a.join(w)
	defer a.waiting.Add(-1)
	// Check after joining: a publication in between closes the channel.
	if now := s.Any(); now.revision >= r {
		a.leave(w)
		return now, nil
	}
	var err error
	select {
	case <-w.reached:
		return s.Any(), nil
	case <-late:
		err = &TooLargeError{Revision: r, Current: s.Any().revision}
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.done:
		err = ErrClosed
	case <-s.failed:
		err = s.brokenBy()
	}
	a.leave(w)
	return nil, err
}

func (a *arrival) join(w *waiter) {
	a.waiting.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.waiters, w.revision+1, func(w *waiter, r Revision) int { return cmp.Compare(w.revision, r) })
	a.waiters = slices.Insert(a.waiters, i, w)
}

// leave forgets a waiter whose revision may not be published.
func (a *arrival) leave(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.waiters, w); i >= 0 {
		a.waiters = slices.Delete(a.waiters, i, i+1)
	}
}

// announce wakes those that wait for a revision that is now published.
func (a *arrival) announce(published Revision) {
	if a.waiting.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.waiters) && a.waiters[n].revision <= published {
		close(a.waiters[n].reached)
		n++
	}
	a.waiters = slices.Delete(a.waiters, 0, n)
}
