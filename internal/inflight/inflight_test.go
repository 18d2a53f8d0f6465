package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

func newGate(reads int, bytes int64) *inflight.Gate {
	return inflight.NewGate(inflight.Limits{Seats: [...]int{inflight.Reads: reads, inflight.Writes: reads, inflight.Watches: reads}, Bytes: bytes})
}

// TestShares: a user gets half of the seats, a privileged one all that are free, and
// classes do not share.
func TestShares(t *testing.T) {
	g := newGate(4, 1<<20)
	for i, row := range []struct {
		class      inflight.Class
		user       string
		privileged bool
		want       bool
	}{
		{inflight.Reads, "a", false, true},
		{inflight.Reads, "a", false, true},
		{inflight.Reads, "a", false, false},
		{inflight.Writes, "a", false, true},
		{inflight.Reads, "b", false, true},
		{inflight.Reads, "root", true, true},
		{inflight.Reads, "root", true, false},
		{inflight.Watches, "root", true, true},
	} {
		if got := g.Acquire(row.class, row.user, row.privileged) != nil; got != row.want {
			t.Errorf("%d: a seat for %s: %v, want %v", i, row.user, got, row.want)
		}
	}
	if s := newGate(1, 0).Acquire(inflight.Reads, "a", false); s == nil {
		t.Error("half of one seat is no seat")
	}
}

// TestWaitingTakesNoSeat: a request that waits leaves its seat to others, and gets one
// back when it goes on.
func TestWaitingTakesNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1<<20)
		first := g.Acquire(inflight.Reads, "a", true)
		if !first.Suspend(1000) || !first.Suspend(0) {
			t.Fatal("no room to wait")
		}
		second := g.Acquire(inflight.Reads, "b", true)
		if second == nil {
			t.Fatal("the seat of a request that waits is not free")
		}
		if err := first.Resume(t.Context()); err != nil { // of the inner one: it waits still
			t.Fatal(err)
		}
		resumed := make(chan error)
		go func() { resumed <- first.Resume(t.Context()) }()
		synctest.Wait()
		if u := g.Usage(inflight.Reads); u.Seats != 1 || u.Waiting != 1 || u.Bytes < 1000 {
			t.Errorf("%+v", u)
		}
		if g.Acquire(inflight.Reads, "c", true) != nil {
			t.Error("a third request got a seat")
		}
		second.Release()
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		if g.Acquire(inflight.Reads, "c", true) != nil {
			t.Error("two requests have the one seat")
		}
		first.Release()
		if u := g.Usage(inflight.Reads); u != (inflight.Usage{}) {
			t.Errorf("%+v is left", u)
		}
	})
}

// TestSharesOfMany: the more users there are, the less each gets, and there is always some
// left for a privileged one.
func TestSharesOfMany(t *testing.T) {
	const limit = 1000
	g := newGate(limit, limit<<10)
	for _, users := range []int{1, 2, 9, 500} {
		var all []*inflight.Seat
		for range limit {
			for u := range users {
				if s := g.Acquire(inflight.Reads, fmt.Sprint(u), false); s != nil {
					s.Hold(1 << 10)
					all = append(all, s)
				}
			}
		}
		u, most := g.Usage(inflight.Reads), min(limit*users/(users+1)+1, limit-limit/8)
		if u.Seats > most || u.Seats < most*9/10 || u.Bytes > int64(most)<<10 || u.Bytes < int64(most)<<10*9/10 {
			t.Errorf("%d users have %d seats and %d bytes, want about %d and %d", users, u.Seats, u.Bytes, most, most<<10)
		}
		for range limit / 8 {
			s := g.Acquire(inflight.Reads, "root", true)
			if s == nil || !s.Hold(1<<10) {
				t.Fatalf("beside %d users nothing is left for a privileged one", users)
			}
			all = append(all, s)
		}
		for _, s := range all {
			s.Release()
		}
	}
}

// TestTurns: waiting requests get seats in turns of their users, even if one user has more
// of them waiting.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(8, 1<<30)
		take := func(user string) *inflight.Seat { // all seats, when it resumes
			s := g.Acquire(inflight.Writes, user, false)
			if s == nil || !s.Suspend(0) {
				t.Fatal("no seat")
			}
			s.Widen(8)
			return s
		}
		waiting := []*inflight.Seat{take("many"), take("many"), take("many"), take("one")}
		hold := take("root")
		if err := hold.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		var order []string
		var done sync.WaitGroup
		for i, s := range waiting {
			done.Go(func() {
				if err := s.Resume(t.Context()); err != nil {
					t.Error(err)
				}
				order = append(order, []string{"many", "many", "many", "one"}[i]) // one at a time
				s.Release()
			})
			synctest.Wait()
		}
		hold.Release()
		done.Wait()
		if len(order) != 4 || order[1] != "one" {
			t.Errorf("the order was %v", order)
		}
	})
}

// TestLeaving: a request whose client leaves while it waits for a seat is not given one.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, 1<<20)
		s := g.Acquire(inflight.Reads, "a", true)
		s.Suspend(0)
		other := g.Acquire(inflight.Reads, "b", true)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- s.Resume(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		other.Release()
		if g.Acquire(inflight.Reads, "c", true) == nil {
			t.Error("the seat went to a request that has left")
		}
		s.Release()
	})
}

// TestBytes: the budget is for all classes, half of it for one user.
func TestBytes(t *testing.T) {
	g := newGate(100, 1<<20)
	a, b, root := g.Acquire(inflight.Reads, "a", false), g.Acquire(inflight.Writes, "b", false), g.Acquire(inflight.Watches, "root", true)
	if !a.Hold(1<<19) || a.Hold(1) || a.Suspend(1) {
		t.Error("a user holds more than half")
	}
	if !b.Hold(1<<18) || b.Hold(1<<18) {
		t.Error("another one does not get half of the rest")
	}
	if !root.Hold(1<<18) || root.Hold(1) {
		t.Error("what is left is not there for a privileged user")
	}
	a.Release()
	if !root.Hold(1 << 19) {
		t.Error("what was released is not free")
	}
}

// TestWide: a request that takes several seats is not kept out by small ones, and keeps
// them out.
func TestWide(t *testing.T) {
	g := newGate(4, 1<<30)
	wide, small := g.Acquire(inflight.Writes, "a", true), g.Acquire(inflight.Writes, "a", true)
	wide.Suspend(0)
	wide.Widen(100)
	if err := wide.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if u := g.Usage(inflight.Writes); u.Seats != 5 {
		t.Errorf("%d seats are taken, want all four and the small one's", u.Seats)
	}
	small.Release()
	if g.Acquire(inflight.Writes, "a", true) != nil {
		t.Error("a seat beside a request that takes all")
	}
	wide.Release()
	if g.Acquire(inflight.Writes, "a", true) == nil {
		t.Error("no seat afterwards")
	}
}

// TestWait: what has no seat just runs; what finds no room does not.
func TestWait(t *testing.T) {
	if err := inflight.Wait(t.Context(), 1<<40, func() error { return nil }); err != nil {
		t.Error(err)
	}
	g := newGate(1, 1<<20)
	s := g.Acquire(inflight.Reads, "a", true)
	ctx := inflight.WithSeat(t.Context(), s)
	err := inflight.Wait(ctx, 0, func() error {
		return inflight.Wait(ctx, 0, func() error {
			if u := g.Usage(inflight.Reads); u.Seats != 0 {
				t.Errorf("%+v while it waits", u)
			}
			return nil
		})
	})
	if u := g.Usage(inflight.Reads); err != nil || u.Seats != 1 || u.Bytes != 0 {
		t.Errorf("%v; %+v afterwards", err, u)
	}
	if err := inflight.Wait(ctx, 1<<20, func() error { t.Error("it ran"); return nil }); !errors.Is(err, inflight.ErrFull) {
		t.Errorf("got %v", err)
	}
}

// TestRandom has many requests of several users do all there is at random: no more seats
// and bytes are ever taken than there are, and nothing is left in the end.
func TestRandom(t *testing.T) {
	r := testrand.New(t)
	g := newGate(5, 4<<20)
	var all sync.WaitGroup
	for i := range 40 {
		steps := r.Perm(50)
		all.Go(func() {
			for _, step := range steps {
				s := g.Acquire(inflight.Class(step%3), string(rune('a'+i%7)), i%7 == 0)
				if s == nil {
					continue
				}
				ctx, cancel := context.WithCancel(context.Background())
				for n := range step % 4 {
					if step%5 == 0 {
						s.Hold(int64(step))
					}
					if !s.Suspend(int64(n)) {
						continue
					}
					s.Widen(step % 9)
					if u := g.Usage(inflight.Class(step % 3)); u.Bytes > 4<<20 || u.Seats > 5+8 {
						t.Errorf("%+v", u)
					}
					if step%7 == 0 {
						cancel()
					}
					if s.Resume(ctx) != nil {
						break
					}
				}
				cancel()
				s.Release()
			}
		})
	}
	all.Wait()
	for c := range inflight.Class(3) {
		if u := g.Usage(c); u != (inflight.Usage{}) {
			t.Errorf("%d: %+v is left", c, u)
		}
	}
}
