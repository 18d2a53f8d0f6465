package fairness_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// fewLarge is a gate with a level "l" with queues, of whose large requests only so many execute at once.
func fewLarge(large, seats int, c fairness.Config) *fairness.Gate {
	c.Large, c.Watches = large, 10
	g := fairness.New(c)
	g.Configure([]fairness.Level{{Name: "l", Shares: 1, Queues: 16, HandSize: 1, QueueLength: 50}}, seats)
	return g
}

// acquire takes seats in another goroutine, and returns a channel that is closed when it has them.
func acquire(t *testing.T, g *fairness.Gate, r fairness.Request) <-chan *fairness.Seat {
	got := make(chan *fairness.Seat, 1)
	r.Level = "l"
	go func() {
		if s, err := g.Acquire(t.Context(), r); err == nil {
			got <- s
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return got
}

// TestLarge: of the large requests of a level, only a few execute at once, whatever the seats. Small
// requests do not wait for them. Those that wait for their clients let others execute.
func TestLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fewLarge(2, 100, fairness.Config{Bytes: 256 << 20})
		var seats []*fairness.Seat
		for range 2 {
			seats = append(seats, mustAcquire(t, g, fairness.Request{Flow: 1, Large: true}))
		}
		third := acquire(t, g, fairness.Request{Flow: 1, Large: true})
		other := acquire(t, g, fairness.Request{Flow: 2, Large: true})
		if s := state(t, g, "l"); s.Executing != 2 || s.Waiting != 2 || s.QueuesWithWaiting != 2 {
			t.Fatalf("%+v", s)
		}
		small := mustAcquire(t, g, fairness.Request{Flow: 3})
		small.Suspend(0)
		if err := small.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		small.Release()

		// The flow that has used less goes first.
		time.Sleep(10 * time.Millisecond)
		if !seats[0].Suspend(0) {
			t.Fatal("no room to wait")
		}
		synctest.Wait()
		if len(other) != 1 || len(third) != 0 {
			t.Fatalf("%d of the other flow, %d of the same flow execute", len(other), len(third))
		}
		resumed := make(chan error, 1)
		go func() { resumed <- seats[0].Resume(t.Context()) }()
		synctest.Wait()
		if len(resumed) != 0 {
			t.Error("a large request resumed while two others execute")
		}
		(<-other).Release()
		if err := <-resumed; err != nil || len(third) != 0 {
			t.Errorf("%v: a request that resumes goes ahead of new ones", err)
		}
		seats[0].Release()
		(<-third).Release()
		seats[1].Release()
		if s := state(t, g, "l"); s.Executing != 0 || s.Waiting != 0 || s.Seats != 0 || s.ActiveQueues != 0 {
			t.Errorf("%+v is left", s)
		}
	})
}

// TestLargeWithoutMemory: a large request that cannot give up its seats while it waits still lets
// other large requests execute.
func TestLargeWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fewLarge(1, 100, fairness.Config{Bytes: 100 << 10})
		for _, wait := range []func(*fairness.Seat) bool{
			func(s *fairness.Seat) bool { return s.Suspend(200 << 10) },
			func(s *fairness.Seat) bool { return s.Leave(200 << 10) },
		} {
			first := mustAcquire(t, g, fairness.Request{Flow: 1, Large: true})
			second := acquire(t, g, fairness.Request{Flow: 2, Large: true})
			if len(second) != 0 {
				t.Fatal("two large requests execute")
			}
			if wait(first) {
				t.Fatal("there is room to wait")
			}
			(<-second).Release()
			first.Release()
		}
		if s := state(t, g, "l"); s.Executing != 0 || s.Requests != 0 {
			t.Errorf("%+v is left", s)
		}
		// The count is right: one more executes, a second one does not.
		first := mustAcquire(t, g, fairness.Request{Flow: 1, Large: true})
		second := acquire(t, g, fairness.Request{Flow: 2, Large: true})
		if len(second) != 0 {
			t.Error("two large requests execute")
		}
		first.Release()
		(<-second).Release()
	})
}

// TestLargeBodies: a request that turns out to be large, when its body has arrived, waits for other
// large ones. Small requests do not.
func TestLargeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fewLarge(1, 100, fairness.Config{Bytes: 256 << 20})
		var resumed [2]chan error
		var seats [2]*fairness.Seat
		for i := range seats {
			seats[i] = mustAcquire(t, g, fairness.Request{Flow: uint64(i), Write: true})
			if !seats[i].Suspend(0) {
				t.Fatal("no room to wait")
			}
			seats[i].Widen(2)
			resumed[i] = make(chan error, 1)
			go func() { resumed[i] <- seats[i].Resume(t.Context()) }()
			synctest.Wait()
		}
		if len(resumed[0]) != 1 || len(resumed[1]) != 0 {
			t.Errorf("%d of the first large request and %d of the second execute", len(resumed[0]), len(resumed[1]))
		}
		small := mustAcquire(t, g, fairness.Request{Flow: 3})
		small.Suspend(0)
		small.Widen(1)
		if err := small.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		small.Release()
		seats[0].Release()
		if err := <-resumed[1]; err != nil {
			t.Error(err)
		}
		seats[1].Release()
	})
}

// TestWidenLarge: a request that finds out that it is large waits for other large ones, once. Small ones, those of
// levels without a limit, and work of the server itself do not.
func TestWidenLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fewLarge(1, 100, fairness.Config{Bytes: 256 << 20})
		first := mustAcquire(t, g, fairness.Request{Flow: 1, Write: true})
		second := mustAcquire(t, g, fairness.Request{Flow: 2, Write: true})
		widen := func(s *fairness.Seat, bytes int) <-chan error {
			widened := make(chan error, 1)
			ctx := t.Context()
			if s != nil {
				ctx = fairness.WithSeat(ctx, s)
			}
			go func() { widened <- fairness.Widen(ctx, bytes) }()
			synctest.Wait()
			return widened
		}
		if len(widen(first, 3*fairness.SeatBytes)) != 1 || len(widen(second, fairness.SeatBytes)) != 1 || len(widen(nil, 1<<30)) != 1 {
			t.Fatal("a request waits for nothing")
		}
		if s := state(t, g, "l"); s.Seats != 4+1 {
			t.Errorf("a large and a small request have %d seats", s.Seats)
		}
		waiting := widen(second, 3*fairness.SeatBytes)
		if len(widen(first, 3*fairness.SeatBytes)) != 1 {
			t.Fatal("a request that is large already waits")
		}
		if len(waiting) != 0 {
			t.Fatal("two large requests execute")
		}
		first.Release()
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		second.Release()
	})
}

// TestYieldOfMany: several goroutines of a large request let a large request of another flow go first.
func TestYieldOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fewLarge(1, 100, fairness.Config{Bytes: 256 << 20})
		first := mustAcquire(t, g, fairness.Request{Flow: 1, Large: true})
		second := acquire(t, g, fairness.Request{Flow: 2, Large: true})
		time.Sleep(time.Second) // the first queue has used more
		if len(second) != 0 {
			t.Fatal("two large requests execute")
		}
		yielded := make(chan error, 4)
		for range cap(yielded) {
			go func() { yielded <- first.Yield(t.Context()) }()
		}
		(<-second).Release()
		for range cap(yielded) {
			if err := <-yielded; err != nil {
				t.Error(err)
			}
		}
		first.Release()
	})
}
