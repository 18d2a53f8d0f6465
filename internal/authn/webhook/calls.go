package webhook

import (
	"context"
	"fmt"
	"sync"
)

// calls are the calls under way, one for each key. Its zero value is ready.
type calls struct {
	mu      sync.Mutex
	running map[key]*call // guarded by mu
}

// call is a call whose result all requests with its key get.
type call struct {
	done chan struct{} // closed when a and err are set
	a    *answer
	err  error
}

// join waits for the result of the call for k, and begins the call if there is none. A call goes on
// when the request that began it ends: others may wait for it, and its answer is kept.
func (c *calls) join(ctx context.Context, k key, do func(context.Context) (*answer, error)) (*answer, error) {
	c.mu.Lock()
	one := c.running[k]
	if one == nil {
		if len(c.running) >= maxCalls {
			c.mu.Unlock()
			return nil, errBusy
		}
		if c.running == nil {
			c.running = map[key]*call{}
		}
		one = &call{done: make(chan struct{})}
		c.running[k] = one
		go c.run(context.WithoutCancel(ctx), k, one, do)
	}
	c.mu.Unlock()
	select {
	case <-one.done:
		return one.a, one.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *calls) run(ctx context.Context, k key, one *call, do func(context.Context) (*answer, error)) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	defer close(one.done)
	defer func() {
		c.mu.Lock()
		delete(c.running, k)
		c.mu.Unlock()
	}()
	defer func() {
		if v := recover(); v != nil {
			one.a, one.err = nil, fmt.Errorf("the call of the token webhook panicked: %v", v)
		}
	}()
	one.a, one.err = do(ctx)
}
