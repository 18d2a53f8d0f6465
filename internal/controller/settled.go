package controller

import (
	"context"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// settling wakes the callers that wait for the loops.
type settling struct {
	mu   sync.Mutex
	next chan struct{} // closed on a change; nil while no goroutine waits
}

func (s *settling) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil {
		close(s.next)
		s.next = nil
	}
}

func (s *settling) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next = make(chan struct{})
	}
	return s.next
}

// Settled waits until the loops have processed all changes and have no work left: no object in a
// queue, and no failed sync to be retried. Work that is due later (the end of an event or a
// certificate) does not count, nor does the work of paused loops. The error is that of the context.
func (l *Loops) Settled(ctx context.Context) error {
	for {
		next := l.settling.wait()
		if l.settled() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settled checks the queues before the store: when they are empty and the store is still at
// the revision that was read before, nothing was written in between, and nothing can have
// been queued.
func (l *Loops) settled() bool {
	seen := store.Revision(l.position.Load())
	for _, r := range l.running {
		if !r.queue.settled() {
			return false
		}
	}
	return l.store.Any().Revision() == seen
}
