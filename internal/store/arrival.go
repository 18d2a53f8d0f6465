package store

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// arrival lets readers and writers wait for a revision.
type arrival struct {
	count   atomic.Int64
	mu      sync.Mutex
	waiters []*waiter // by revision
}

type waiter struct {
	revision Revision
	reached  chan struct{} // closed when the revision is published
}

// join adds a waiter. The caller calls leave.
func (a *arrival) join(r Revision) *waiter {
	w := &waiter{r, make(chan struct{})}
	a.count.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.waiters, w.revision+1, func(w *waiter, r Revision) int { return cmp.Compare(w.revision, r) })
	a.waiters = slices.Insert(a.waiters, i, w)
	return w
}

// leave forgets a waiter.
func (a *arrival) leave(w *waiter) {
	defer a.count.Add(-1)
	select {
	case <-w.reached: // announce removes it
		return
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.waiters, w); i >= 0 {
		a.waiters = slices.Delete(a.waiters, i, i+1)
	}
}

// announce wakes those that wait for a revision that is now published.
func (a *arrival) announce(published Revision) {
	if a.count.Load() == 0 {
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
