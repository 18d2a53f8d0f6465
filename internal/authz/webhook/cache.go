package webhook

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
)

// key is a hash of what was asked.
type key [sha256.Size]byte

// cache keeps decisions for a time. It is safe for concurrent use.
type cache struct{ entries *utilcache.LRUExpireCache }

// clock implements the clock of LRUExpireCache.
type clock func() time.Time

// Now returns the time.
func (c clock) Now() time.Time { return c() }

func newCache(size int, now func() time.Time) *cache {
	return &cache{utilcache.NewLRUExpireCacheWithClock(size, clock(now))}
}

func (c *cache) get(k key) (status, bool) {
	if s, ok := c.entries.Get(k); ok {
		return s.(status), true
	}
	return status{}, false
}

func (c *cache) put(k key, s status, ttl time.Duration) {
	if ttl > 0 {
		c.entries.Add(k, s, ttl)
	}
}

// flights are the calls under way.
type flights struct {
	mu      sync.Mutex
	running map[key]*flight // guarded by mu
}

// flight is a call for all requests that ask the same.
type flight struct {
	waiting int // guarded by flights.mu
	cancel  context.CancelFunc
	done    chan struct{} // closed when s and err are set
	s       status
	err     error
}

// join waits for the call for k, and begins it if there is none. The call is given up when no
// request waits for it any more.
func (f *flights) join(ctx context.Context, k key, call func(context.Context) (status, error)) (status, error) {
	f.mu.Lock()
	one := f.running[k]
	if one == nil {
		one = f.begin(ctx, k, call)
	}
	one.waiting++
	f.mu.Unlock()
	select {
	case <-one.done:
		return one.s, one.err
	case <-ctx.Done():
		f.leave(k, one)
		return status{}, ctx.Err()
	}
}

// begin starts a call. f.mu is held.
func (f *flights) begin(ctx context.Context, k key, call func(context.Context) (status, error)) *flight {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	one := &flight{cancel: cancel, done: make(chan struct{})}
	if f.running == nil {
		f.running = map[key]*flight{}
	}
	f.running[k] = one
	go func() {
		defer cancel()
		defer close(one.done)
		defer f.remove(k, one)
		defer func() {
			if v := recover(); v != nil {
				one.err = fmt.Errorf("the call of the webhook panicked: %v", v)
			}
		}()
		one.s, one.err = call(ctx)
	}()
	return one
}

// leave gives up a call if no other request waits for it.
func (f *flights) leave(k key, one *flight) {
	f.mu.Lock()
	one.waiting--
	last := one.waiting == 0
	if last && f.running[k] == one {
		delete(f.running, k)
	}
	f.mu.Unlock()
	if last {
		one.cancel()
	}
}

func (f *flights) remove(k key, one *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[k] == one {
		delete(f.running, k)
	}
}
