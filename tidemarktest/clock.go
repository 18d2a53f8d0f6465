package tidemarktest

import (
	"context"
	"time"
)

// Clock is the clock of a cluster. It begins with the time of the machine and is for points in time: the timestamps of
// objects, the expiry of tokens, of Events and of certificate requests. Clients have clocks of their own, so
// RequeueAfter and the leases of leader election do not follow it. It is safe for concurrent use.
type Clock struct{ env *Env }

// maxAdvance is how far one call of Advance moves the clock at most.
const maxAdvance = 10 * 365 * 24 * time.Hour

// Clock returns the clock of the cluster. All users of the cluster have the same one.
func (e *Env) Clock() Clock { return Clock{e.root()} }

// Now returns the time of the clock.
func (c Clock) Now(t TB) time.Time {
	t.Helper()
	return c.call(t, "GET", nil, "clock")
}

// Advance moves the clock ahead, by at least a millisecond and at most ten years. The controllers
// of the server then do the work that is due; Settle waits for that. With a Host whose server has a
// clock for all worlds, the test fails: move that clock.
func (c Clock) Advance(t TB, d time.Duration) {
	t.Helper()
	if d < time.Millisecond {
		t.Fatalf("tidemarktest: Advance(%v): want a millisecond or more: a clock does not go back", d)
		return
	}
	if d > maxAdvance {
		t.Fatalf("tidemarktest: Advance(%v): want at most ten years, which are %v", d, maxAdvance)
		return
	}
	c.call(t, "POST", map[string]int64{"milliseconds": d.Milliseconds()}, "clock/advance")
}

func (c Clock) call(t TB, method string, body any, what string) time.Time {
	t.Helper()
	var clock struct{ Now time.Time }
	call(t, func(ctx context.Context) error {
		return c.env.session.control.call(ctx, method, worldPath(c.env.world.Name, what), body, &clock)
	})
	return clock.Now
}
