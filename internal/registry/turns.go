package registry

import (
	"context"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

const (
	// largeObject is the size in bytes from which on requests change an object one after the other. A patch of a few
	// bytes decodes, compares and encodes the whole object, in about twenty times its memory. Concurrent requests would
	// repeat that work, because only one of them can win.
	largeObject = 64 << 10
	// largeRepeats is how often a change of a large object is repeated after a conflict.
	largeRepeats = 10
)

// turns lets requests change a large object one after the other. The zero value is ready. Its methods are safe for
// concurrent use.
type turns struct {
	mu sync.Mutex
	of map[turnKey]*turn // objects with requests that have the turn or wait for it
}

type turnKey struct{ collection, key string }

// turn is the turn to change one object.
type turn struct {
	taken    chan struct{} // has an element while a request has the turn
	requests int           // those that have the turn or wait for it; guarded by turns.mu
}

// take waits for the turn to change an object. The request has no seats meanwhile. The caller calls done when it has
// changed the object. The errors are those of fairness.Wait, and that of the context.
func (t *turns) take(ctx context.Context, collection, key string) (done func(), err error) {
	k := turnKey{collection, key}
	own := t.enter(k)
	done = func() {
		<-own.taken
		t.leave(k, own)
	}
	select {
	case own.taken <- struct{}{}:
		return done, nil
	default:
	}
	taken := false
	err = fairness.Wait(ctx, 0, func() error {
		select {
		case own.taken <- struct{}{}:
			taken = true
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	switch {
	case err == nil:
		return done, nil
	case taken: // and the request got no seats again
		done()
	default:
		t.leave(k, own)
	}
	return nil, err
}

// enter adds a request to those of an object.
func (t *turns) enter(k turnKey) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[turnKey]*turn{}
	}
	own := t.of[k]
	if own == nil {
		own = &turn{taken: make(chan struct{}, 1)}
		t.of[k] = own
	}
	own.requests++
	return own
}

// leave removes a request from those of an object.
func (t *turns) leave(k turnKey, own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if own.requests--; own.requests == 0 {
		delete(t.of, k)
	}
}
