package fairness_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// TestBytes: a user holds at most as many bytes as it leaves to others, a level has some for itself,
// and a privileged user may hold all that are free.
func TestBytes(t *testing.T) {
	const limit, part = 1 << 20, 1 << 14 // a 64th
	g := fairness.New(fairness.Config{Bytes: limit})
	g.Configure([]fairness.Level{{Name: "a", Shares: 1}, {Name: "b", Shares: 1}, {Name: "c", Shares: 1}}, 1000)
	// The amount that levels share: all but an eighth, and a 64th for each of the three.
	const open = limit - limit/8 - 3*part
	most := func(s *fairness.Seat) (n int64) {
		for s.Hold(part / 16) {
			n += part / 16
		}
		return n
	}
	within := func(what string, got, want int64) {
		t.Helper()
		if got > want || got < want-part {
			t.Errorf("%s holds %d, want about %d", what, got, want)
		}
	}
	one := mustAcquire(t, g, fairness.Request{Level: "a", User: "one"})
	two := mustAcquire(t, g, fairness.Request{Level: "a", User: "two"})
	within("one user", most(one), open/2+part)
	within("the second user", most(two), open/4+part)
	if one.Suspend(1) {
		t.Error("a user with its part still waits")
	}
	for i := range 100 {
		most(mustAcquire(t, g, fairness.Request{Level: "a", User: fmt.Sprint(i)}))
	}
	used := g.Bytes()
	within("a level with many users", used, open+part)
	within("another level", most(mustAcquire(t, g, fairness.Request{Level: "b", User: "three"})), part)
	root := mustAcquire(t, g, fairness.Request{Level: "c", User: "root", Privileged: true})
	within("a privileged user", most(root), limit-used-part)
	root.Release()
	one.Release()
	two.Release()
	if !mustAcquire(t, g, fairness.Request{Level: "c", User: "four"}).Hold(open / 8) {
		t.Error("what was released is not free")
	}
}

// TestRefusedHold: a request that is refused counts nothing, not even while another one is decided.
func TestRefusedHold(t *testing.T) {
	const limit = 1 << 20
	g := fairness.New(fairness.Config{Bytes: limit})
	g.Configure([]fairness.Level{{Name: "l", Shares: 1}}, 1000)
	large := mustAcquire(t, g, fairness.Request{Level: "l", User: "large", Privileged: true})
	var ended atomic.Bool
	var refused sync.WaitGroup
	refused.Go(func() {
		for !ended.Load() {
			if large.Hold(limit + 1) {
				t.Error("a request holds more than the budget")
			}
		}
	})
	for range 20_000 {
		s := mustAcquire(t, g, fairness.Request{Level: "l", User: "small", Privileged: true})
		fits := s.Hold(limit / 2)
		s.Release()
		if !fits {
			t.Error("a request that fits is refused beside one that does not fit")
			break
		}
	}
	ended.Store(true)
	refused.Wait()
	large.Release()
	if n := g.Bytes(); n != 0 {
		t.Errorf("%d bytes are held after the last release", n)
	}
}

// TestUsersAreForgotten: users do not stay when their requests have ended.
func TestUsersAreForgotten(t *testing.T) {
	g := one(1000, fairness.Level{})
	for i := range 10_000 {
		s := mustAcquire(t, g, fairness.Request{User: fmt.Sprint(i)})
		s.Hold(1)
		s.Release()
	}
	if n := g.Users(); n > 100 {
		t.Errorf("%d users are kept", n)
	}
}

// TestNotAccommodated: a request that needs more seats than are free is counted while it is the next one.
func TestNotAccommodated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(2, fairness.Level{Queues: 1, HandSize: 1, QueueLength: 1})
		metrics := fairness.NewFlowMetrics("l", "s")
		first := mustAcquire(t, g, fairness.Request{Level: "l", Metrics: metrics})
		go func() {
			if s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Width: 2, Metrics: metrics}); err != nil {
				t.Error(err)
			} else {
				s.Release()
			}
		}()
		synctest.Wait()
		if n := metrics.State().NotAccommodated; n != 1 {
			t.Errorf("one of two seats is free: counted %d times, want 1", n)
		}
		first.Release()
		synctest.Wait()
		if s := metrics.State(); s.NotAccommodated != 1 || s.Dispatched != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestTally counts the stages of a request of a flow schema.
func TestTally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(2, fairness.Level{Queues: 1, HandSize: 1, QueueLength: 1})
		metrics := fairness.NewFlowMetrics("l", "s")
		first := mustAcquire(t, g, fairness.Request{Width: 2, Metrics: metrics})
		done := make(chan bool)
		go func() {
			s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Metrics: metrics})
			if err != nil {
				t.Error(err)
			}
			s.Release()
			done <- true
		}()
		synctest.Wait()
		if _, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Metrics: metrics}); err == nil {
			t.Error("the queue is not full")
		}
		time.Sleep(3 * time.Second)
		s := metrics.State()
		if s.QueuedRequests != 1 || s.QueuedSeats != 1 || s.ExecutingRequests != 1 || s.ExecutingSeats != 2 || s.Dispatched != 1 || s.Rejected[fairness.QueueFull] != 1 {
			t.Errorf("%+v", s)
		}
		first.Release()
		<-done
		s = metrics.State()
		if s.QueuedRequests != 0 || s.ExecutingRequests != 0 || s.ExecutingSeats != 0 || s.Dispatched != 2 ||
			s.WaitedToExecute.Count != 2 || s.WaitedToExecute.Sum != 3 || s.WaitedToExecute.Buckets[2] != 1 || s.WaitedToExecute.Buckets[5] != 2 ||
			s.Executed.Count != 2 || s.Executed.Sum != 3 || s.Seats.Count != 3 || s.Seats.Sum != 4 {
			t.Errorf("%+v", s)
		}
		l := state(t, g, "l")
		if h := l.SeatUtilization; h.Nanos[len(h.Nanos)-2] != uint64(3*time.Second) || h.Sum != float64(3*time.Second) {
			t.Errorf("the seats were all in use for three seconds: %+v", h)
		}
		time.Sleep(3 * time.Second)
		g.Adjust()
		if d := state(t, g, "l").Demand; d.HighWatermark != 3 || d.Average != 1.5 || d.Deviation != 1.5 || d.Smoothed != 3 {
			t.Errorf("half of the time three seats were wanted: %+v", d)
		}
	})
}
