package fairness_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// mustAcquire takes a seat that is free.
func mustAcquire(t *testing.T, g *fairness.Gate, r fairness.Request) *fairness.Seat {
	t.Helper()
	if r.Level == "" {
		r.Level = "l"
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it must not wait
	s, err := g.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWaitingTakesNoSeat: a request that waits leaves its seat to others, and gets one back when
// it goes on.
func TestWaitingTakesNoSeat(t *testing.T) {
	for _, l := range []fairness.Level{{}, {Queues: 4, HandSize: 2, QueueLength: 10}} {
		synctest.Test(t, func(t *testing.T) {
			g := one(1, l)
			first := mustAcquire(t, g, fairness.Request{})
			if !first.Suspend(1000) || !first.Suspend(0) {
				t.Fatal("no room to wait")
			}
			second := mustAcquire(t, g, fairness.Request{})
			if err := first.Resume(t.Context()); err != nil { // of the inner one: it waits still
				t.Fatal(err)
			}
			resumed := make(chan error)
			go func() { resumed <- first.Resume(t.Context()) }()
			synctest.Wait()
			if s := state(t, g, "l"); s.Seats != 1 || s.Waiting != 1 || s.Requests != 2 || g.Bytes() < 1000 {
				t.Errorf("%+v, %d bytes", s, g.Bytes())
			}
			second.Release()
			if err := <-resumed; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if s := state(t, g, "l"); s.Seats != 1 || s.Waiting != 0 || g.Bytes() != 0 {
				t.Errorf("%+v, %d bytes", s, g.Bytes())
			}
			first.Release()
			if s := state(t, g, "l"); s.Seats != 0 || s.Requests != 0 || s.ActiveQueues != 0 {
				t.Errorf("%+v is left", s)
			}
		})
	}
}

// TestResumedGoFirst: of one queue, requests that resume go before new ones, which hold less
// memory. Of two queues, each gets its turn.
func TestResumedGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(1, fairness.Level{Queues: 2, HandSize: 1, QueueLength: 10})
		// The odd flow belongs to the other queue.
		resuming := []*fairness.Seat{mustAcquire(t, g, fairness.Request{Flow: 2})}
		resuming[0].Suspend(0)
		resuming = append(resuming, mustAcquire(t, g, fairness.Request{Flow: 2}))
		resuming[1].Suspend(0)
		busy := mustAcquire(t, g, fairness.Request{Flow: 2})

		var order []string
		var all sync.WaitGroup
		work := func(name string, get func() (*fairness.Seat, error)) {
			all.Go(func() {
				s, err := get()
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, name) // one at a time
				time.Sleep(3 * time.Millisecond)
				s.Release()
			})
			synctest.Wait()
		}
		acquire := func(flow uint64) func() (*fairness.Seat, error) {
			return func() (*fairness.Seat, error) {
				return g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: flow})
			}
		}
		work("new", acquire(2))
		work("new", acquire(2))
		for _, s := range resuming {
			work("resumed", func() (*fairness.Seat, error) { return s, s.Resume(t.Context()) })
		}
		work("other flow", acquire(3))
		time.Sleep(3 * time.Millisecond)
		busy.Release()
		all.Wait()
		if got, want := fmt.Sprint(order), "[other flow resumed resumed new new]"; got != want {
			t.Errorf("the order was %s, want %s", got, want)
		}
	})
}

// TestLeavingWhileWaiting: a request whose client leaves while it waits for a seat does not get
// one.
func TestLeavingWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(1, fairness.Level{})
		s := mustAcquire(t, g, fairness.Request{})
		s.Suspend(0)
		other := mustAcquire(t, g, fairness.Request{})
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- s.Resume(ctx) }()
		synctest.Wait()
		if _, err := g.Acquire(t.Context(), fairness.Request{Level: "l"}); !errors.Is(err, fairness.ErrConcurrencyLimit) {
			t.Errorf("a new one beside one that waits: %v", err)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		other.Release()
		mustAcquire(t, g, fairness.Request{}).Release()
		s.Release()
	})
}

// TestExtra: the seats of a write stay taken for the extra time, also if its response is on its
// way. Waiting requests get them when the time has passed.
func TestExtra(t *testing.T) {
	for name, end := range map[string]func(*fairness.Seat){
		"released":             (*fairness.Seat).Release,
		"waits for its client": func(s *fairness.Seat) { s.Leave(0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := one(5, fairness.Level{Queues: 1, HandSize: 1, QueueLength: 10})
				s := mustAcquire(t, g, fairness.Request{Width: 1, FinalWidth: 4, Extra: time.Second})
				if n := state(t, g, "l").Seats; n != 4 {
					t.Errorf("%d seats at once, want 4", n)
				}
				end(s)
				began := time.Now()
				wide, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Width: 2})
				if err != nil || time.Since(began) != time.Second {
					t.Errorf("two more seats after %v, %v", time.Since(began), err)
				}
				wide.Release()
				if name != "released" {
					s.Release()
				}
				if s := state(t, g, "l"); s.Seats != 0 || s.Requests != 0 || g.Bytes() != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestFinalWidth: a final width above the limit becomes a longer time at the limit.
func TestFinalWidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(2, fairness.Level{Queues: 1, HandSize: 1, QueueLength: 1})
		mustAcquire(t, g, fairness.Request{FinalWidth: 10, Extra: time.Second}).Release()
		began := time.Now()
		s, err := g.Acquire(t.Context(), fairness.Request{Level: "l"})
		if err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("a seat after %v, %v", time.Since(began), err)
		}
		s.Release()
	})
}

// TestWide: a request that is wider than its level executes alone, and others do not overtake it
// forever.
func TestWide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(4, fairness.Level{Queues: 8, HandSize: 1, QueueLength: 100})
		end := time.Now().Add(time.Second)
		var all sync.WaitGroup
		for flow := range uint64(6) { // six clients keep four seats busy
			all.Go(func() {
				for time.Now().Before(end) {
					s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: flow})
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(10 * time.Millisecond)
					s.Release()
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 7, Width: 100})
		if err != nil {
			t.Fatal(err)
		}
		// Its work is 300 ms of a seat. Of four seats for seven queues, its queue gets that in
		// 525 ms.
		if d := time.Since(began); d > 550*time.Millisecond {
			t.Errorf("the wide request waited for %v", d)
		}
		if s := state(t, g, "l"); s.Executing != 1 || s.Seats != 100 {
			t.Errorf("beside the wide request: %+v", s)
		}
		s.Release()
		all.Wait()
	})
}

// TestWiden: a body may need more seats, at most those of the level.
func TestWiden(t *testing.T) {
	g := one(4, fairness.Level{})
	s := mustAcquire(t, g, fairness.Request{})
	s.Widen(3) // it is not suspended
	if n := state(t, g, "l").Seats; n != 1 {
		t.Errorf("%d seats", n)
	}
	s.Suspend(0)
	s.Widen(100)
	if err := s.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := state(t, g, "l").Seats; n != 4 {
		t.Errorf("%d seats, want all", n)
	}
	s.Release()
}

// TestWatches: a watch has a seat until it has begun. Watches are shared by users; the seat of an
// exempt level does not protect from that.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fairness.New(fairness.Config{Bytes: 1 << 20, Watches: 64})
		g.Configure([]fairness.Level{{Name: "exempt", Exempt: true}, {Name: "l", Shares: 1, Queues: 1, HandSize: 1, QueueLength: 1}}, 1)
		open := func(r fairness.Request) (all []*fairness.Seat) {
			for {
				r.Watch = true
				s, err := g.Acquire(t.Context(), r)
				if errors.Is(err, fairness.ErrWatches) {
					return all
				}
				if err != nil {
					t.Fatal(err)
				}
				if !s.Leave(0) {
					t.Fatal("a watch does not leave its seat")
				}
				all = append(all, s)
			}
		}
		a := open(fairness.Request{Level: "l", User: "a"})
		b := open(fairness.Request{Level: "l", User: "b"})
		rest := open(fairness.Request{Level: "exempt", User: "root", Privileged: true})
		if len(a) < 25 || len(a) > 32 || len(b) < 12 || len(b) > 16 || len(a)+len(b)+len(rest) != 64 {
			t.Errorf("%d, %d and %d watches", len(a), len(b), len(rest))
		}
		if s := state(t, g, "l"); s.Seats != 0 || g.Bytes() != 0 {
			t.Errorf("%+v, %d bytes", s, g.Bytes())
		}
		if !a[0].Suspend(10) || g.Bytes() == 0 {
			t.Error("a watch whose client does not read holds no bytes")
		}
		if err := a[0].Resume(t.Context()); err != nil || g.Bytes() != 0 {
			t.Errorf("%v, %d bytes", err, g.Bytes())
		}
		for _, s := range append(append(a, b...), rest...) {
			s.Release()
		}
		if n := g.Snapshot(false).Watches; n != 0 {
			t.Errorf("%d watches are left", n)
		}
	})
}

// TestWait checks that a call without a seat just runs, and that one for which there is no room
// does not.
func TestWait(t *testing.T) {
	if err := fairness.Wait(t.Context(), 1<<40, func() error { return nil }); err != nil {
		t.Error(err)
	}
	g := one(1, fairness.Level{})
	s := mustAcquire(t, g, fairness.Request{})
	ctx := fairness.WithSeat(t.Context(), s)
	err := fairness.Wait(ctx, 0, func() error {
		return fairness.Wait(ctx, 0, func() error {
			if s := state(t, g, "l"); s.Seats != 0 {
				t.Errorf("%+v while it waits", s)
			}
			return nil
		})
	})
	if s := state(t, g, "l"); err != nil || s.Seats != 1 || g.Bytes() != 0 {
		t.Errorf("%v; %+v afterwards", err, s)
	}
	if err := fairness.Wait(ctx, 1<<30, func() error { t.Error("it ran"); return nil }); !errors.Is(err, fairness.ErrFull) {
		t.Errorf("got %v", err)
	}
	s.Release()
}

// TestConnections: users share the connections to other servers, at exempt levels too.
func TestConnections(t *testing.T) {
	g := fairness.New(fairness.Config{Bytes: 1 << 20, Connections: 64})
	g.Configure([]fairness.Level{{Name: "exempt", Exempt: true}}, 1)
	connect := func(r fairness.Request) (all []*fairness.Seat) {
		r.Level = "exempt"
		for {
			s := mustAcquire(t, g, r)
			if !s.Connect() {
				s.Release()
				return all
			}
			if !s.Connect() || !s.Leave(0) {
				t.Fatal("a request with a connection does not leave its seat")
			}
			all = append(all, s)
		}
	}
	a := connect(fairness.Request{User: "a"})
	b := connect(fairness.Request{User: "b"})
	rest := connect(fairness.Request{User: "root", Privileged: true})
	if len(a) != 28 || len(b) != 14 || len(a)+len(b)+len(rest) != 64 || g.Bytes() != 0 {
		t.Errorf("%d, %d and %d connections, %d bytes", len(a), len(b), len(rest), g.Bytes())
	}
	for _, s := range slices.Concat(a, b, rest) {
		s.Release()
	}
	if n := len(connect(fairness.Request{User: "root", Privileged: true})); n != 64 {
		t.Errorf("%d connections after all were closed", n)
	}
}

// TestWaitTogether: goroutines of one request wait at once, such as the deletions of a
// deletecollection. Each counts its bytes only while it waits.
func TestWaitTogether(t *testing.T) {
	g := one(1, fairness.Level{Queues: 4, HandSize: 1, QueueLength: 9})
	s := mustAcquire(t, g, fairness.Request{})
	ctx := fairness.WithSeat(t.Context(), s)
	last := make(chan bool)
	var all, others sync.WaitGroup
	all.Go(func() {
		if err := fairness.Wait(ctx, 0, func() error { <-last; return nil }); err != nil {
			t.Error(err)
		}
	})
	for range 16 {
		others.Go(func() {
			for range 500 { // 16 times 64 KiB fit into the budget, 500 times do not
				if err := fairness.Wait(ctx, 64<<10, func() error { runtime.Gosched(); return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	others.Wait()
	close(last)
	all.Wait()
	if s := state(t, g, "l"); s.Seats != 1 || s.Waiting != 0 || g.Bytes() != 0 {
		t.Errorf("%+v afterwards, with %d bytes", s, g.Bytes())
	}
	s.Release()
	if s := state(t, g, "l"); s.Seats != 0 || s.Requests != 0 {
		t.Errorf("%+v in the end", s)
	}
}

// TestExempt: exempt requests never wait, whatever their number, and are counted.
func TestExempt(t *testing.T) {
	g := fairness.New(fairness.Config{Bytes: 1 << 20, Watches: 1})
	g.Configure([]fairness.Level{{Name: "exempt", Exempt: true}}, 1)
	var all []*fairness.Seat
	for range 100 {
		all = append(all, mustAcquire(t, g, fairness.Request{Level: "exempt", Write: true}))
	}
	all[0].Suspend(0)
	if s := state(t, g, "exempt"); s.Seats != 99 || s.Requests != 100 || g.Executing(true) != 99 || g.Executing(false) != 0 {
		t.Errorf("%+v", s)
	}
	all[0].Widen(5)
	if err := all[0].Resume(t.Context()); err != nil {
		t.Error(err)
	}
	if s := state(t, g, "exempt"); s.Seats != 104 || s.Counts.Dispatched != 100 {
		t.Errorf("%+v", s)
	}
	for _, s := range all {
		s.Release()
	}
	if s := state(t, g, "exempt"); s.Seats != 0 || s.Requests != 0 {
		t.Errorf("%+v", s)
	}
}

// TestVisit shows the requests that wait or execute.
func TestVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fairness.New(fairness.Config{Bytes: 1 << 20, Watches: 1})
		g.Configure([]fairness.Level{{Name: "exempt", Exempt: true}, {Name: "l", Shares: 1, Queues: 4, HandSize: 1, QueueLength: 9}}, 1)
		metrics := fairness.NewFlowMetrics("l", "schema")
		root := mustAcquire(t, g, fairness.Request{Level: "exempt", User: "root"})
		watch := mustAcquire(t, g, fairness.Request{Level: "exempt", User: "watcher", Privileged: true, Watch: true})
		watch.Leave(0)
		first := mustAcquire(t, g, fairness.Request{Flow: 2, User: "a", Metrics: metrics, Detail: "first"})
		done := make(chan bool)
		go func() {
			s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 3, Width: 2, User: "b"})
			if err != nil {
				t.Error(err)
			}
			s.Release()
			done <- true
		}()
		synctest.Wait()
		rows := map[string]string{}
		g.Visit(func(r fairness.RequestState) {
			rows[r.User] = fmt.Sprintf("%s %s %d %d %d %v %v", r.Level, r.Schema, r.Queue, r.Place, r.Width, r.Began.IsZero(), r.Detail)
		})
		want := map[string]string{"root": "exempt  -1 -1 1 false <nil>", "a": "l schema 2 -1 1 false first", "b": "l  3 0 2 true <nil>"}
		for user, w := range want {
			if rows[user] != w {
				t.Errorf("%s: %q, want %q", user, rows[user], w)
			}
		}
		if len(rows) != len(want) {
			t.Errorf("%v", rows)
		}
		first.Release()
		<-done
		root.Release()
		watch.Release()
	})
}

// TestGoroutinesWait: goroutines that work for one request, such as those of a deletecollection, wait
// at the same time. The request has its seat again when all of them have waited.
func TestGoroutinesWait(t *testing.T) {
	g := one(1, fairness.Level{Queues: 4, HandSize: 1, QueueLength: 9})
	s := mustAcquire(t, g, fairness.Request{Level: "l"})
	ctx := fairness.WithSeat(t.Context(), s)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				err := fairness.Wait(ctx, 10, func() error {
					runtime.Gosched()
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	others, end := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		for others.Err() == nil {
			if s, err := g.Acquire(others, fairness.Request{Level: "l", Flow: 1}); err == nil {
				runtime.Gosched()
				s.Release()
			}
		}
	})
	all.Wait()
	end()
	other.Wait()
	if s := state(t, g, "l"); s.Seats != 1 || s.Executing != 1 || s.Waiting != 0 || g.Bytes() != 0 {
		t.Errorf("%+v, %d bytes", s, g.Bytes())
	}
	s.Release()
	if s := state(t, g, "l"); s.Seats != 0 || s.Executing != 0 || s.Requests != 0 {
		t.Errorf("%+v is left", s)
	}
}
