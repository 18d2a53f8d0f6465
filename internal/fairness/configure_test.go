package fairness_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// limits shows "nominal lower..upper current" of each level.
func limits(g *fairness.Gate) map[string]string {
	all := map[string]string{}
	for _, l := range g.Snapshot(false).Levels {
		all[l.Name] = fmt.Sprintf("%d %d..%d %d", l.Nominal, l.Lower, l.Upper, l.Current)
	}
	return all
}

// TestNominalSeats compares the limits of the suggested levels with those of an idle
// kube-apiserver.
func TestNominalSeats(t *testing.T) {
	g := fairness.New(fairness.Config{})
	g.Configure(suggested(), 600)
	got := limits(g)
	for level, want := range map[string]string{
		"exempt": "0 0..600 0", "system": "74 50..674 117", "node-high": "98 73..698 170", "leader-election": "25 25..625 58",
		"workload-high": "98 49..698 114", "workload-low": "245 24..845 56", "global-default": "49 24..649 56", "catch-all": "13 13..613 30",
	} {
		if got[level] != want {
			t.Errorf("%s: %s, want %s", level, got[level], want)
		}
	}
}

// TestBorrowing: a level that needs seats gets those that others lend, within ten seconds, and
// gives them back when the others need them.
func TestBorrowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fairness.New(fairness.Config{Bytes: 1 << 30})
		half := 50
		levels := []fairness.Level{
			{Name: "a", Shares: 1, LendablePercent: 50, Queues: 8, HandSize: 1, QueueLength: 1000},
			{Name: "b", Shares: 1, LendablePercent: 50, BorrowingLimitPercent: &half, Queues: 8, HandSize: 1, QueueLength: 1000},
		}
		g.Configure(levels, 100)
		load := func(level string, clients int) (stop func()) {
			ended := make(chan bool)
			for i := range clients {
				go func() {
					for {
						s, err := g.Acquire(t.Context(), fairness.Request{Level: level, Flow: uint64(i)})
						if err != nil {
							t.Error(err)
						}
						time.Sleep(time.Second)
						s.Release()
						select {
						case <-ended:
							return
						default:
						}
					}
				}()
			}
			return func() { close(ended); time.Sleep(5 * time.Second); synctest.Wait() }
		}
		period := func() {
			time.Sleep(10 * time.Second)
			g.Adjust()
		}
		want := func(what, a, b string) {
			t.Helper()
			if l := limits(g); l["a"] != a || l["b"] != b {
				t.Errorf("%s: a has %s, want %s; b has %s, want %s", what, l["a"], a, l["b"], b)
			}
		}
		want("idle", "50 25..150 50", "50 25..75 50")
		stop := load("a", 200)
		period()
		want("a is busy", "50 25..150 75", "50 25..75 25")
		if s := state(t, g, "a"); s.Executing != 75 || s.Demand.HighWatermark != 200 {
			t.Errorf("%+v", s)
		}
		stopB := load("b", 200)
		period()
		period()
		want("both are busy", "50 25..150 50", "50 25..75 50")
		stop()
		period() // a was busy in this one
		period()
		want("b is busy", "50 25..150 49", "50 25..75 51")
		for range 180 { // half of the demand of before is forgotten in five minutes
			period()
		}
		want("b has been busy", "50 25..150 25", "50 25..75 75")
		stopB()
	})
}

// TestExemptDemand: other levels do not borrow the seats that exempt requests use.
func TestExemptDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fairness.New(fairness.Config{})
		g.Configure([]fairness.Level{{Name: "exempt", Exempt: true}, {Name: "a", Shares: 1, LendablePercent: 20}, {Name: "b", Shares: 1, LendablePercent: 100}}, 100)
		for exempt, want := range map[int]map[string]string{
			10:  {"exempt": "0 0..100 10", "a": "50 40..150 90", "b": "50 0..150 0"},
			80:  {"exempt": "0 0..100 80", "a": "50 40..150 40", "b": "50 0..150 0"},
			200: {"exempt": "0 0..100 200", "a": "50 40..150 40", "b": "50 0..150 0"},
		} {
			var all []*fairness.Seat
			for range exempt {
				all = append(all, mustAcquire(t, g, fairness.Request{Level: "exempt"}))
			}
			time.Sleep(time.Second)
			for _, s := range all {
				s.Release()
			}
			g.Adjust()
			for level, w := range want {
				if got := limits(g)[level]; got != w {
					t.Errorf("%d exempt requests: %s has %s, want %s", exempt, level, got, w)
				}
			}
			time.Sleep(time.Second)
			g.Adjust()
		}
	})
}

// TestRandomBorrowing checks that for any demand, limits keep their bounds, and the sum of the
// current ones is the number of seats.
func TestRandomBorrowing(t *testing.T) {
	r := testrand.New(t)
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			g := fairness.New(fairness.Config{Bytes: 1 << 30})
			var levels []fairness.Level
			for i := range 1 + r.IntN(8) {
				l := fairness.Level{Name: fmt.Sprint(i), Shares: r.IntN(50), LendablePercent: r.IntN(101)}
				if p := r.IntN(300); p < 200 {
					l.BorrowingLimitPercent = &p
				}
				levels = append(levels, l)
			}
			levels = append(levels, fairness.Level{Name: "exempt", Exempt: true, Shares: r.IntN(10), LendablePercent: r.IntN(101)})
			total := r.IntN(700)
			g.Configure(levels, total)
			for range 3 {
				var all []*fairness.Seat
				for _, l := range levels {
					for range r.IntN(100) {
						if s, err := g.Acquire(t.Context(), fairness.Request{Level: l.Name, Width: 1 + r.IntN(5)}); err == nil {
							all = append(all, s)
						}
					}
				}
				time.Sleep(10 * time.Second)
				for _, s := range all {
					s.Release()
				}
				g.Adjust()
				checkLimits(t, g.Snapshot(false), total)
			}
		}
	})
}

func checkLimits(t *testing.T, s fairness.Snapshot, total int) {
	t.Helper()
	nominal, current, least, most := 0, 0, 0, 0
	for _, l := range s.Levels {
		nominal += l.Nominal
		current += l.Current
		if l.Exempt {
			least += l.Current
			most += l.Current
			continue
		}
		least += l.Lower
		most += l.Upper
		if l.Current < l.Lower || l.Current > l.Upper || l.Lower > l.Nominal || l.Upper < l.Nominal {
			t.Errorf("%s: %+v", l.Name, l)
		}
	}
	n := len(s.Levels)
	if nominal != 0 && (nominal < total || nominal > total+n) {
		t.Errorf("%d nominal seats of %d", nominal, total)
	}
	want := max(least, min(most, nominal))
	if math.Abs(float64(current-want)) > float64(n) { // each is rounded
		t.Errorf("%d current seats, want %d: %+v", current, want, s)
	}
}

// TestReconfigure: levels come, go and change while requests execute and wait.
func TestReconfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := fairness.New(fairness.Config{Bytes: 1 << 30})
		queues := fairness.Level{Name: "a", Shares: 1, Queues: 4, HandSize: 2, QueueLength: 10}
		catchAll := fairness.Level{Name: fairness.CatchAll, Shares: 1}
		if _, err := g.Acquire(t.Context(), fairness.Request{Level: "a"}); !errors.Is(err, fairness.ErrConcurrencyLimit) {
			t.Errorf("without levels: %v", err)
		}
		g.Configure([]fairness.Level{catchAll, queues}, 2)
		first := mustAcquire(t, g, fairness.Request{Level: "a"})
		waiting := make(chan *fairness.Seat)
		go func() {
			s, err := g.Acquire(t.Context(), fairness.Request{Level: "a"})
			if err != nil {
				t.Error(err)
			}
			waiting <- s
		}()
		synctest.Wait()

		g.Configure([]fairness.Level{catchAll}, 2)
		if s := state(t, g, "a"); !s.Quiescing || s.Executing != 1 || s.Waiting != 1 || s.Nominal != 1 {
			t.Errorf("a level that has gone: %+v", s)
		}
		g.Configure([]fairness.Level{catchAll, queues}, 2)
		if s := state(t, g, "a"); s.Quiescing || s.Waiting != 1 {
			t.Errorf("a level that is back: %+v", s)
		}
		few := queues
		few.Queues, few.HandSize = 1, 1
		g.Configure([]fairness.Level{catchAll, few}, 2)
		if s := state(t, g, "a"); len(s.Queues) != 1 || s.Waiting != 1 {
			t.Errorf("with fewer queues: %+v", s)
		}
		g.Configure([]fairness.Level{catchAll, few}, 4) // more seats
		second := <-waiting

		g.Configure([]fairness.Level{catchAll, {Name: "a", Exempt: true}}, 4)
		if len(g.Snapshot(false).Levels) != 3 {
			t.Error("the level of before does not drain")
		}
		third := mustAcquire(t, g, fairness.Request{Level: "a"})
		g.Configure([]fairness.Level{catchAll}, 4)
		for i, s := range []*fairness.Seat{first, second, third} {
			if got := len(g.Snapshot(false).Levels); got != []int{3, 3, 2}[i] {
				t.Errorf("%d levels", got)
			}
			s.Release()
		}
		if s := state(t, g, fairness.CatchAll); len(g.Snapshot(false).Levels) != 1 || s.Nominal != 4 {
			t.Errorf("in the end: %+v", g.Snapshot(false))
		}
		mustAcquire(t, g, fairness.Request{Level: "a"}).Release()
		if s := state(t, g, fairness.CatchAll); s.Counts.Dispatched != 1 {
			t.Errorf("a request of an unknown level: %+v", s)
		}
	})
}

// TestStatic: without priority and fairness there are two limits, and zero is none.
func TestStatic(t *testing.T) {
	for _, row := range []struct{ reads, writes, gotReads, gotWrites int }{
		{3, 2, 3, 2}, {0, 2, 20, 2}, {3, 0, 3, 20}, {0, 0, 20, 20},
	} {
		g := fairness.New(fairness.Config{})
		g.Configure(fairness.Static(row.reads, row.writes))
		count := func(level string) (n int) {
			for range 20 {
				if _, err := g.Acquire(t.Context(), fairness.Request{Level: level}); err == nil {
					n++
				}
			}
			return n
		}
		exempt := count("exempt")
		g.Adjust()
		reads, writes := count("readOnly"), count("mutating")
		if exempt != 20 || reads != row.gotReads || writes != row.gotWrites {
			t.Errorf("%+v: %d exempt requests, %d reads and %d writes", row, exempt, reads, writes)
		}
	}
}
