package webhook

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
)

// Key identifies what a call asks: a hash of it.
type Key [sha256.Size]byte

// Flights are the calls of one service under way. Requests with the same key share a call. A call ends when the last
// request that waits for it leaves.
//
// The number of requests that wait is bounded. A group of requests, such as those of one user, may have as many as there
// is room left for others: one group alone gets half of the room, two get a third each. So no group takes the room of
// another. A large request counts as several: one more for each 64 KiB that it sends. A call that goes on although its
// context has ended counts as a request that waits.
type Flights[V any] struct {
	// Most bounds the requests that wait.
	Most int
	// Limit bounds a call.
	Limit time.Duration

	mu      sync.Mutex // guards the following and the flights
	running map[Key]*flight[V]
	load    map[string]int // requests that wait, by group
	total   int            // the sum of load
}

// placeBytes is how many bytes a request may send until it counts as one more. With 1,200 requests, what waits is bounded
// by 75 MiB: the names in a request may be of 1 MiB, which JSON can write with six times as many bytes.
const placeBytes = 64 << 10

// flight is a call for all requests with its key.
type flight[V any] struct {
	waiting  int
	returned bool
	// last is the group of the last request, which has left before the call returned, and kept what it counts as. They are
	// valid if abandoned is set.
	last      string
	kept      int
	abandoned bool

	cancel context.CancelFunc
	done   chan struct{} // closed when v and err are set
	v      V
	err    error
}

// Join waits for the call for k, which sends a number of bytes, and begins it if there is none. It returns ErrBusy if too
// many requests of the group wait.
func (f *Flights[V]) Join(ctx context.Context, k Key, group string, bytes int, call func(context.Context) (V, error)) (v V, err error) {
	places := 1 + bytes/placeBytes
	f.mu.Lock()
	if f.load[group]+2*places-1 > f.Most-f.total { // it would have more than it leaves
		f.mu.Unlock()
		return v, ErrBusy
	}
	f.charge(group, places)
	one := f.running[k]
	if one == nil {
		one = f.begin(ctx, k, call)
	}
	one.waiting++
	f.mu.Unlock()
	select {
	case <-one.done:
		v, err = one.v, one.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	f.leave(k, one, group, places)
	return v, err
}

// Waiting returns the number of requests that wait. Large ones count several times.
func (f *Flights[V]) Waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// charge changes the number of requests of a group. f.mu is held.
func (f *Flights[V]) charge(group string, n int) {
	if f.load == nil {
		f.load = map[string]int{}
	}
	f.total += n
	if f.load[group] += n; f.load[group] == 0 {
		delete(f.load, group)
	}
}

// begin starts a call. f.mu is held.
func (f *Flights[V]) begin(ctx context.Context, k Key, call func(context.Context) (V, error)) *flight[V] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.Limit)
	one := &flight[V]{cancel: cancel, done: make(chan struct{})}
	if f.running == nil {
		f.running = map[Key]*flight[V]{}
	}
	f.running[k] = one
	go func() {
		defer cancel()
		defer close(one.done)
		defer f.end(k, one)
		defer func() {
			if v := recover(); v != nil {
				one.err = fmt.Errorf("the call of the webhook panicked: %v", v)
			}
		}()
		one.v, one.err = call(ctx)
	}()
	return one
}

// leave ends the waiting of a request, and the call if no other request waits for it.
func (f *Flights[V]) leave(k Key, one *flight[V], group string, places int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.waiting--
	if one.waiting > 0 || one.returned {
		f.charge(group, -places)
		return
	}
	one.last, one.kept, one.abandoned = group, places, true
	f.remove(k, one)
	one.cancel()
}

// end records that a call has returned.
func (f *Flights[V]) end(k Key, one *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.returned = true
	f.remove(k, one)
	if one.abandoned {
		f.charge(one.last, -one.kept)
	}
}

func (f *Flights[V]) remove(k Key, one *flight[V]) {
	if f.running[k] == one {
		delete(f.running, k)
	}
}
