package store

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// waiters are the readers and writers that wait for a revision.
type waiters struct {
	count atomic.Int64
	mu    sync.Mutex
	all   []*waiter // by revision
}

type waiter struct {
	revision Revision
	reached  chan struct{} // closed when the revision is published
}

// join adds a waiter. The caller calls leave.
func (a *waiters) join(r Revision) *waiter {
	w := &waiter{r, make(chan struct{})}
	a.count.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	i, _ := slices.BinarySearchFunc(a.all, w.revision+1, func(w *waiter, r Revision) int { return cmp.Compare(w.revision, r) })
	a.all = slices.Insert(a.all, i, w)
	return w
}

// leave forgets a waiter.
func (a *waiters) leave(w *waiter) {
	defer a.count.Add(-1)
	select {
	case <-w.reached: // announce removes it
		return
	default:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.all, w); i >= 0 {
		a.all = slices.Delete(a.all, i, i+1)
	}
}

// announce wakes those that wait for a revision that is now published.
func (a *waiters) announce(published Revision) {
	if a.count.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.all) && a.all[n].revision <= published {
		close(a.all[n].reached)
		n++
	}
	a.all = slices.Delete(a.all, 0, n)
}
