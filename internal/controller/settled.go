package controller

import (
	"context"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// settling wakes those who wait for the loops.
type settling struct {
	mu   sync.Mutex
	next chan struct{} // closed when there may be something new; nil while no goroutine waits
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

// Settled waits until, at one moment, the loops had seen everything that is stored
// and had nothing left to do: no object to look at, none that failed and is tried
// again. What is due at a time to come (the end of an event, of a certificate) does
// not count, nor does what a loop that is paused would do. The error is that of the
// context.
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

// settled looks at the queues first: when they are empty and then nothing newer is
// stored than what was read before, nothing was written in between, and nothing can
// have been put into a queue.
func (l *Loops) settled() bool {
	seen := store.Revision(l.position.Load())
	for _, r := range l.running {
		if !r.queue.settled() {
			return false
		}
	}
	return l.store.Any().Revision() == seen
}
