// Package clock has a clock that tests move.
package clock

import (
	"cmp"
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
	timers []*Timer    // by their time, and those of one time in the order of At
	real   *time.Timer // for the first of them; nil: there was none yet
	firing bool        // fire runs
}

// Fork returns a clock that shows the same time now and moves by itself. It has no timers. The clock that a nil
// *Clock returns runs with that of package time.
func (c *Clock) Fork() *Clock {
	if c == nil {
		return new(Clock)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return &Clock{Start: c.Start, ahead: c.ahead}
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
		c.call(next)
	}
	c.arm()
}

// first returns the timer that is due first, nil if there is none. The lock is held.
func (c *Clock) first() *Timer {
	if len(c.timers) == 0 {
		return nil
	}
	return c.timers[0]
}

// call calls the function of a timer, once. The lock is held, but not during the call.
func (c *Clock) call(t *Timer) {
	t.remove()
	c.mu.Unlock()
	defer c.mu.Lock()
	t.f()
}

// Timer calls a function at a point in time.
type Timer struct {
	c    *Clock
	at   time.Time
	f    func()
	real *time.Timer // of a nil *Clock
	gone bool        // guarded by c.mu; it was called or stopped
}

// At calls f when the clock shows a time, or has passed it: in the goroutine of Advance if that reaches
// the time, otherwise in another one. Functions that are due at once are called one after the other, by their
// times, and with the same time in the order of At. So f must not wait for the function of another timer.
func (c *Clock) At(at time.Time, f func()) *Timer {
	t := &Timer{c: c, at: at, f: f}
	if c == nil {
		t.real = time.AfterFunc(time.Until(at), f)
		return t
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.timers, at, func(other *Timer, at time.Time) int {
		return cmp.Or(other.at.Compare(at), -1) // behind those of the same time
	})
	if c.timers = slices.Insert(c.timers, i, t); i == 0 {
		c.arm()
	}
	return t
}

// arm sets the timer of the runtime for the first timer. The lock is held.
func (c *Clock) arm() {
	first := c.first()
	if first == nil {
		if c.real != nil {
			c.real.Stop()
		}
		return
	}
	left := first.at.Sub(c.now())
	switch {
	case left > 0 && !c.Start.IsZero(): // only Advance brings it closer
	case c.real != nil:
		c.real.Reset(left)
	default:
		c.real = time.AfterFunc(left, c.fire)
	}
}

// fire calls the functions that are due.
func (c *Clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firing {
		return // the other call goes on
	}
	c.firing = true
	for t := c.first(); t != nil && !t.at.After(c.now()); t = c.first() {
		c.call(t)
	}
	c.firing = false
	c.arm()
}

// remove takes the timer out of its clock. The lock is held.
func (t *Timer) remove() {
	t.gone = true
	if i := slices.Index(t.c.timers, t); i >= 0 {
		t.c.timers = slices.Delete(t.c.timers, i, i+1)
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
	if len(t.c.timers) == 0 {
		t.c.arm()
	}
	return stopped
}
