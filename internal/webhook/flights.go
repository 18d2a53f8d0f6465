package webhook

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"
)

// Key identifies a call: the hash of its request.
type Key [sha256.Size]byte

// Flights are the calls to one service under way. Requests with the same key share a call. The context of a call ends
// when the last request that waits for it leaves. Its methods are safe for concurrent use.
//
// The number of waiting requests is limited. A group of requests, such as those of one user, may have as many as it leaves
// for others: one group alone gets half of the room, two groups a third each. So no group can use up the room. A request
// counts once more for each 64 KiB that it sends. A call that continues after its context has ended counts as a waiting
// request.
type Flights[V any] struct {
	// Most is the maximum number of waiting requests.
	Most int
	// Limit is the timeout of a call.
	Limit time.Duration
	// Fresh is for how long requests join a call after it began; zero: until it ends. A later request begins another call,
	// which further ones join, so that no request gets a result which was asked for long before it.
	Fresh time.Duration
	// Keep is called with each result that is no error, unless a later call for the key has returned one before; nil: nothing
	// is. It must not call methods of Flights. Its calls are one after the other.
	Keep func(Key, V)

	mu      sync.Mutex       // guards the following and the flights
	running map[Key]*line[V] // keys with calls that have not returned
	load    map[string]int   // requests that wait, by group
	total   int              // the sum of load
}

// line is the calls for a key that have not returned.
type line[V any] struct {
	newest  *flight[V] // nil: no request may join one
	running int
	begun   int // the number of the call that began last
	kept    int // the number of the call whose result was kept last; zero: none
}

// placeBytes is the number of bytes for which a request counts once more. So 1,200 waiting requests send 75 MiB at most,
// although one request can have names of 1 MiB, which JSON can escape to six times as many bytes.
const placeBytes = 64 << 10

// flight is a call for all requests with its key.
type flight[V any] struct {
	number   int // a later call for the key has a larger one
	began    time.Time
	waiting  int
	returned bool
	// abandoned is true if the last request left before the call returned. The call counts until
	// then, as kept requests of the group last.
	abandoned bool
	last      string
	kept      int

	cancel context.CancelFunc
	done   chan struct{} // closed when v and err are set
	v      V
	err    error
}

// Join waits for the newest call for k, which sends so many bytes, and begins the call if there is none that is Fresh. The
// call runs in a goroutine that may outlive the request, so it must not use memory of the request that is reused. Join
// returns the result of the call, the error of the context, or ErrBusy if too many requests of the group wait.
func (f *Flights[V]) Join(ctx context.Context, k Key, group string, bytes int, call func(context.Context) (V, error)) (v V, err error) {
	places := 1 + bytes/placeBytes
	f.mu.Lock()
	if f.load[group]+2*places-1 > f.Most-f.total { // it would have more than it leaves
		f.mu.Unlock()
		return v, ErrBusy
	}
	f.charge(group, places)
	var one *flight[V]
	if all := f.running[k]; all != nil {
		one = all.newest
	}
	if one == nil || f.Fresh > 0 && time.Since(one.began) >= f.Fresh {
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

// Waiting returns the number of waiting requests. Large ones count several times.
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
	all := f.running[k]
	if all == nil {
		all = &line[V]{}
		if f.running == nil {
			f.running = map[Key]*line[V]{}
		}
		f.running[k] = all
	}
	all.running++
	all.begun++
	one := &flight[V]{number: all.begun, began: time.Now(), cancel: cancel, done: make(chan struct{})}
	all.newest = one
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

// leave ends the wait of a request. It cancels the call if no other request waits for it.
func (f *Flights[V]) leave(k Key, one *flight[V], group string, places int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.waiting--
	if one.waiting > 0 || one.returned {
		f.charge(group, -places)
		return
	}
	one.last, one.kept, one.abandoned = group, places, true
	f.running[k].leave(one)
	one.cancel()
}

// end records that a call has returned, and keeps its result.
func (f *Flights[V]) end(k Key, one *flight[V]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.returned = true
	all := f.running[k]
	all.leave(one)
	if all.running--; all.running == 0 {
		delete(f.running, k)
	}
	if one.err == nil && one.number > all.kept && f.Keep != nil {
		all.kept = one.number
		f.Keep(k, one.v)
	}
	if one.abandoned {
		f.charge(one.last, -one.kept)
	}
}

// leave lets no more requests join a call.
func (l *line[V]) leave(one *flight[V]) {
	if l.newest == one {
		l.newest = nil
	}
}
