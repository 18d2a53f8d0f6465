package tidemark

import (
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/clock"
)

// Clock is a clock that tests move. It is for points in time, such as timestamps and expiries, not for
// durations. Its zero value shows the time of package time until Advance moves it ahead. A nil *Clock
// is the clock of package time. All methods are safe for concurrent use. A Clock must not be copied.
type Clock struct {
	// Start stops the clock: it shows Start until Advance moves it. Zero: the clock runs.
	// It must not change after the first use.
	Start time.Time

	once  sync.Once
	clock *clock.Clock // set by once
}

// Now returns the time.
func (c *Clock) Now() time.Time { return c.of().Now() }

// Advance moves the clock ahead, and returns when all due work has been done: each part at its own
// time, in order. A negative or zero duration does nothing.
func (c *Clock) Advance(d time.Duration) { c.of().Advance(d) }

// of returns the clock as the parts of a server know it.
func (c *Clock) of() *clock.Clock {
	if c == nil {
		return nil
	}
	c.once.Do(func() {
		if c.clock == nil {
			c.clock = &clock.Clock{Start: c.Start}
		}
	})
	return c.clock
}

// clockOf returns a Clock that is another one.
func clockOf(c *clock.Clock) *Clock {
	if c == nil {
		return nil
	}
	return &Clock{Start: c.Start, clock: c}
}
