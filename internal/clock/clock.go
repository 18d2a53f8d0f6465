// Package clock has a clock that tests move.
package clock

import (
	"slices"
	"sync"
	"time"
)

// Clock is a clock that tests move. It is for points in time, such as timestamps and expiries, not for
// durations. Its zero value shows the time of package time until Advance moves it ahead. A nil *Clock
// is the clock of package time. All methods are safe for concurrent use.
type Clock struct {
	// Start stops the clock: it shows Start until Advance moves it. Zero: the clock runs.
	// It must not change after the first use.
	Start time.Time

	advancing sync.Mutex // held by Advance

	mu     sync.Mutex
	ahead  time.Duration
	timers []*Timer // in no order
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.Start.IsZero() {
		return time.Now().Add(c.ahead)
	}
	return c.Start.Add(c.ahead)
}

// Advance moves the clock ahead, and returns when the functions of the timers that are due have
// returned: each is called at its own time, in order. A negative or zero duration does nothing.
func (c *Clock) Advance(d time.Duration) {
	if d <= 0 {
		return
	}
	c.advancing.Lock()
	defer c.advancing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	for end := c.now().Add(d); ; {
		step := max(0, end.Sub(c.now()))
		next := c.first()
		if next == nil || next.at.After(end) {
			c.ahead += step
			break
		}
		c.ahead += min(step, max(0, next.at.Sub(c.now())))
		next.remove()
		c.mu.Unlock()
		next.f()
		c.mu.Lock()
	}
	for _, t := range c.timers {
		t.arm()
	}
}

// first returns the timer that is due first, nil if there is none. The lock is held.
func (c *Clock) first() *Timer {
	if len(c.timers) == 0 {
		return nil
	}
	return slices.MinFunc(c.timers, func(a, b *Timer) int { return a.at.Compare(b.at) })
}

// Timer calls a function at a point in time.
type Timer struct {
	c    *Clock
	at   time.Time
	f    func()
	real *time.Timer // nil: the clock stands
	gone bool        // guarded by c.mu; it was called or stopped
}

// At calls f when the clock shows a time, or has passed it: in the goroutine of Advance if that reaches
// the time, otherwise in a goroutine of its own.
func (c *Clock) At(at time.Time, f func()) *Timer {
	t := &Timer{c: c, at: at, f: f}
	if c == nil {
		t.real = time.AfterFunc(time.Until(at), f)
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timers = append(c.timers, t)
	t.arm()
	return t
}

// arm sets the timer of the runtime by the current time. The lock is held.
func (t *Timer) arm() {
	left := t.at.Sub(t.c.now())
	switch {
	case left > 0 && !t.c.Start.IsZero(): // only Advance brings it closer
	case t.real != nil:
		t.real.Reset(left)
	default:
		t.real = time.AfterFunc(left, t.fire)
	}
}

// fire calls the function, unless it was called or stopped meanwhile.
func (t *Timer) fire() {
	t.c.mu.Lock()
	early := t.at.After(t.c.now())
	if early && !t.gone { // the wall clock was set
		t.arm()
	}
	call := !t.gone && !early
	if call {
		t.remove()
	}
	t.c.mu.Unlock()
	if call {
		t.f()
	}
}

// remove takes the timer out of its clock. The lock is held.
func (t *Timer) remove() {
	t.gone = true
	if i := slices.Index(t.c.timers, t); i >= 0 {
		t.c.timers = slices.Delete(t.c.timers, i, i+1)
	}
	if t.real != nil {
		t.real.Stop()
	}
}

// Stop prevents the call, and reports whether it did. A call that has begun may still run.
func (t *Timer) Stop() bool {
	if t.c == nil {
		return t.real.Stop()
	}
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	stopped := !t.gone
	t.remove()
	return stopped
}
