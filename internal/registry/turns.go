package registry

import (
	"context"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

const (
	// largeObject is from how many bytes on requests change an object one after the other. A patch of a few bytes decodes,
	// compares and encodes all of the object, in about twenty times the memory. Requests that did so at once would repeat
	// that work: only one of them can win.
	largeObject = 64 << 10
	// largeRepeats is how often a change of a large object is made again after a conflict.
	largeRepeats = 10
)

// turns lets requests change a large object one after the other. The zero value is ready. Its methods are safe for
// concurrent use.
type turns struct {
	mu sync.Mutex
	of map[turnKey]*turn
}

type turnKey struct{ collection, key string }

// turn is that of one object. It exists while a request has it or waits for it.
type turn struct {
	free    chan struct{} // has one element while no request has the turn
	members int           // requests that have it or wait for it
}

// take waits for the turn of an object, without the seats of the request. The caller calls done when it has changed the
// object.
func (t *turns) take(ctx context.Context, collection, key string) (done func(), err error) {
	k := turnKey{collection, key}
	t.mu.Lock()
	if t.of == nil {
		t.of = map[turnKey]*turn{}
	}
	own := t.of[k]
	if own == nil {
		own = &turn{free: make(chan struct{}, 1)}
		own.free <- struct{}{}
		t.of[k] = own
	}
	own.members++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.members--; own.members == 0 {
			delete(t.of, k)
		}
	}
	taken := false
	select {
	case <-own.free:
		taken = true
	default:
		err = fairness.Wait(ctx, 0, func() error {
			select {
			case <-own.free:
				taken = true
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	done = func() {
		if taken {
			own.free <- struct{}{}
		}
		leave()
	}
	if err != nil { // also if the request got no seats again
		done()
		return nil, err
	}
	return done, nil
}
