package fairness_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// one is a gate with a level "l" that has so many seats.
func one(seats int, l fairness.Level) *fairness.Gate {
	g := fairness.New(fairness.Config{Bytes: 256 << 20, Watches: 1000})
	l.Name, l.Shares = "l", 1
	g.Configure([]fairness.Level{l}, seats)
	return g
}

// state returns the state of a level.
func state(t *testing.T, g *fairness.Gate, level string) fairness.LevelState {
	t.Helper()
	for _, l := range g.Snapshot(true).Levels {
		if l.Name == level {
			return l
		}
	}
	t.Fatalf("there is no level %q", level)
	return fairness.LevelState{}
}

// TestRejects: a level without queues refuses requests without a free seat.
func TestRejects(t *testing.T) {
	g := one(2, fairness.Level{})
	a, err := g.Acquire(t.Context(), fairness.Request{Level: "l"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Width: 2}); !errors.Is(err, fairness.ErrConcurrencyLimit) {
		t.Errorf("two seats of one: %v", err)
	}
	b, err := g.Acquire(t.Context(), fairness.Request{Level: "l"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Acquire(t.Context(), fairness.Request{Level: "l"}); !errors.Is(err, fairness.ErrConcurrencyLimit) {
		t.Errorf("a third request: %v", err)
	}
	a.Release()
	b.Release()
	if s := state(t, g, "l"); s.Seats != 0 || s.Requests != 0 || s.Counts.Dispatched != 2 || s.Counts.Rejected != 2 {
		t.Errorf("%+v", s)
	}
}

// TestQueues: requests wait while there is room in their queue, and end in time.
func TestQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(1, fairness.Level{Queues: 1, HandSize: 1, QueueLength: 2})
		first, err := g.Acquire(t.Context(), fairness.Request{Level: "l"})
		if err != nil {
			t.Fatal(err)
		}
		results := make(chan error, 2)
		acquire := func(ctx context.Context, r fairness.Request) {
			s, err := g.Acquire(ctx, r)
			results <- err
			if err == nil {
				s.Release()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		go acquire(ctx, fairness.Request{Level: "l"})
		go acquire(t.Context(), fairness.Request{Level: "l", MaxWait: time.Second})
		synctest.Wait()
		if s := state(t, g, "l"); s.Waiting != 2 || g.Bytes() != 2*16<<10 {
			t.Errorf("%d wait with %d bytes", s.Waiting, g.Bytes())
		}
		if _, err := g.Acquire(t.Context(), fairness.Request{Level: "l"}); !errors.Is(err, fairness.ErrQueueFull) {
			t.Errorf("a third one: %v", err)
		}
		if err := <-results; !errors.Is(err, fairness.ErrTimeout) {
			t.Errorf("after a second: %v", err)
		}
		cancel()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("a client that left: %v", err)
		}
		go acquire(t.Context(), fairness.Request{Level: "l"})
		synctest.Wait()
		first.Release()
		if err := <-results; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		s := state(t, g, "l")
		if want := (fairness.Counts{Dispatched: 2, Rejected: 1, TimedOut: 1, Cancelled: 1}); s.Counts != want || s.Requests != 0 || g.Bytes() != 0 {
			t.Errorf("%+v", s)
		}
	})
}
