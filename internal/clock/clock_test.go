package clock_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/clock"
)

// TestStanding checks a clock that stands: timers fire by Advance alone, in order, each at its time.
func TestStanding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		c := &clock.Clock{Start: start}
		var fired []string
		at := func(d time.Duration) *clock.Timer {
			return c.At(start.Add(d), func() { fired = append(fired, fmt.Sprint(d, c.Now().Sub(start))) })
		}
		at(3 * time.Hour)
		at(time.Hour)
		stopped := at(2 * time.Hour)
		c.At(start.Add(time.Hour), func() { at(90 * time.Minute) })
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if !c.Now().Equal(start) || len(fired) > 0 {
			t.Fatalf("the clock shows %v, and has fired %v", c.Now(), fired)
		}
		if !stopped.Stop() || stopped.Stop() {
			t.Error("Stop reports the wrong result")
		}
		c.Advance(150 * time.Minute)
		if want := []string{"1h0m0s 1h0m0s", "1h30m0s 1h30m0s"}; !slices.Equal(fired, want) {
			t.Errorf("fired %v, want %v", fired, want)
		}
		at(0) // it has passed
		synctest.Wait()
		if len(fired) != 3 || !c.Now().Equal(start.Add(150*time.Minute)) {
			t.Errorf("fired %v at %v", fired, c.Now())
		}
	})
}

// TestRunning checks a clock that runs: timers fire as time passes, and by Advance.
func TestRunning(t *testing.T) {
	for _, c := range []*clock.Clock{nil, {}} {
		synctest.Test(t, func(t *testing.T) {
			begin := c.Now()
			var fired atomic.Int64
			c.At(begin.Add(time.Hour), func() { fired.Add(1) })
			c.At(begin.Add(3*time.Hour), func() { fired.Add(1) })
			c.At(begin.Add(4*time.Hour), func() { fired.Add(1) }).Stop()
			time.Sleep(time.Hour)
			synctest.Wait()
			if fired.Load() != 1 {
				t.Errorf("%d timers have fired, want 1", fired.Load())
			}
			if c == nil {
				return
			}
			c.Advance(time.Hour)
			c.Advance(-time.Hour)
			if got := c.Now().Sub(begin); got != 2*time.Hour || fired.Load() != 1 {
				t.Errorf("after %v, %d timers have fired", got, fired.Load())
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if fired.Load() != 2 {
				t.Errorf("%d timers have fired, want 2", fired.Load())
			}
		})
	}
}

func TestConcurrent(t *testing.T) {
	c := new(clock.Clock)
	var mu sync.Mutex
	fired := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				c.At(c.Now().Add(time.Hour), func() { mu.Lock(); defer mu.Unlock(); fired++ })
				c.Advance(time.Minute)
			}
		})
	}
	wg.Wait()
	c.Advance(time.Hour)
	mu.Lock()
	defer mu.Unlock()
	if fired != 800 {
		t.Errorf("%d timers have fired, want 800", fired)
	}
}

// TestOrder: on a clock that runs, the functions of one time are called in the order of At, and a function may stop a
// timer of the same time.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock.Clock
		at := c.Now().Add(time.Hour)
		var got, want []int
		for i := range 100 {
			c.At(at, func() { got = append(got, i) })
			want = append(want, i)
		}
		var stopped *clock.Timer
		c.At(at, func() { stopped.Stop() })
		stopped = c.At(at, func() { t.Error("a stopped timer has fired") })
		c.At(at.Add(-time.Minute), func() {
			if len(got) > 0 {
				t.Error("a later timer was first")
			}
		})
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("the order is %v", got)
		}
	})
}

// TestFork: a clock and its fork begin with the same time, and each moves alone.
func TestFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for name, c := range map[string]*clock.Clock{"runs": {}, "stands": {Start: start}, "nil": nil} {
			if c != nil {
				c.Advance(time.Hour)
			}
			f := c.Fork()
			if got, want := f.Now(), c.Now(); !got.Equal(want) {
				t.Errorf("%s: the fork shows %v, want %v", name, got, want)
			}
			before := c.Now()
			f.Advance(time.Minute)
			if got := f.Now().Sub(before); got != time.Minute || !c.Now().Equal(before) {
				t.Errorf("%s: the fork moved by %v, the clock to %v", name, got, c.Now())
			}
		}
	})
}
