package fairness_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// client is a flow of requests: each of its goroutines sends one after the other.
type client struct {
	flow    uint64
	many    int // goroutines
	width   int
	service time.Duration
	pause   time.Duration // between two requests
	used    float64       // seat-seconds
	waited  time.Duration // at most
}

// run runs the clients for a time.
func run(t *testing.T, g *fairness.Gate, d time.Duration, clients ...*client) {
	end := time.Now().Add(d)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, c := range clients {
		for range c.many {
			all.Go(func() {
				for time.Now().Before(end) {
					began := time.Now()
					s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: c.flow, Width: c.width})
					if err != nil {
						t.Error(err)
						return
					}
					waited := time.Since(began)
					time.Sleep(c.service)
					s.Release()
					mu.Lock()
					c.used += float64(c.width) * c.service.Seconds()
					c.waited = max(c.waited, waited)
					mu.Unlock()
					time.Sleep(c.pause)
				}
			})
		}
	}
	all.Wait()
}

// jain is the fairness index of Jain: 1 if all are equal, 1/n if one has everything.
func jain(clients []*client) float64 {
	var sum, squares float64
	for _, c := range clients {
		sum += c.used
		squares += c.used * c.used
	}
	return sum * sum / (float64(len(clients)) * squares)
}

// TestFlowsAreEqual: flows that want more than their part get equal seat-seconds, whatever the
// number, width and duration of their requests. A flow that wants less gets it, and waits for
// little.
func TestFlowsAreEqual(t *testing.T) {
	r, rounds := testrand.New(t), 4
	if tier.IsFull(t) {
		rounds = 40
	}
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			g := one(10, fairness.Level{Queues: 8, HandSize: 1, QueueLength: 1000})
			var greedy []*client
			for flow := range uint64(2 + r.IntN(6)) {
				width := 1 + r.IntN(3)
				// Twice as many as it takes to use all seats.
				greedy = append(greedy, &client{flow: flow, many: 20 + r.IntN(50), width: width, service: time.Duration(10+r.IntN(90)) * time.Millisecond})
			}
			modest := &client{flow: 7, many: 1, width: 1, service: 10 * time.Millisecond, pause: 90 * time.Millisecond}
			const seconds = 60
			run(t, g, seconds*time.Second, append(greedy, modest)...)
			if j := jain(greedy); j < 0.95 {
				t.Errorf("the index of Jain is %.3f", j)
				for _, c := range greedy {
					t.Logf("%+v", *c)
				}
			}
			if modest.waited > 400*time.Millisecond || modest.used < 0.01*seconds*2 {
				t.Errorf("a flow that uses a tenth of a seat: %+v", *modest)
			}
			if s := state(t, g, "l"); s.Requests != 0 || s.Seats != 0 || s.ActiveQueues != 0 {
				t.Errorf("%+v is left", s)
			}
		})
	}
}

// TestElephants: among many flows of shuffle sharding, a few that flood the level hardly harm the
// others.
func TestElephants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(20, fairness.Level{Queues: 128, HandSize: 6, QueueLength: 50})
		r := rand.New(rand.NewPCG(1, 2))
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		refused := 0
		var mu sync.Mutex
		for range 4 {
			flow := r.Uint64()
			for range 350 { // more than its queues hold
				all.Go(func() {
					for ctx.Err() == nil {
						s, err := g.Acquire(ctx, fairness.Request{Level: "l", Flow: flow})
						if err == nil {
							time.Sleep(50 * time.Millisecond)
							s.Release()
							continue
						}
						if errors.Is(err, fairness.ErrQueueFull) {
							mu.Lock()
							refused++
							mu.Unlock()
						}
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
		}
		time.Sleep(time.Second)
		var mice []*client
		for range 100 {
			mice = append(mice, &client{flow: r.Uint64(), many: 1, width: 1, service: time.Millisecond, pause: time.Second})
		}
		run(t, g, 10*time.Second, mice...)
		cancel()
		all.Wait()
		late := 0
		for _, c := range mice {
			if c.waited > 500*time.Millisecond {
				late++
			}
		}
		if late > 1 {
			t.Errorf("%d of 100 small flows waited for more than half a second", late)
		}
		if refused == 0 {
			t.Error("no request of the elephants was refused")
		}
	})
}

// TestRandom has many requests do everything that they can, at random. At each moment the gate
// holds as many seats, bytes and watches as the requests do, and nothing is left in the end.
func TestRandom(t *testing.T) {
	r := testrand.New(t)
	for range 10 {
		seed := r.Uint64()
		synctest.Test(t, func(t *testing.T) { randomly(t, seed) })
	}
}

func randomly(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 0))
	g := fairness.New(fairness.Config{Bytes: 4 << 20, Watches: 20, Large: r.IntN(3)})
	var names []string
	configure := func() {
		names = names[:0]
		levels := []fairness.Level{{Name: "exempt", Exempt: true}, {Name: fairness.CatchAll, Shares: 5}}
		for i := range r.IntN(4) {
			queues := r.IntN(5)
			levels = append(levels, fairness.Level{
				Name: fmt.Sprint(i), Shares: r.IntN(10), LendablePercent: r.IntN(101),
				Queues: queues, HandSize: 1 + r.IntN(max(1, queues)), QueueLength: 1 + r.IntN(5),
			})
		}
		for _, l := range levels {
			names = append(names, l.Name)
		}
		g.Configure(levels, r.IntN(30))
	}
	configure()
	m := &model{g: g}
	for range 40 {
		for range 20 {
			seed := r.Uint64()
			level := names[r.IntN(len(names))]
			m.all.Go(func() { m.request(rand.New(rand.NewPCG(seed, 1)), level) })
		}
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		switch r.IntN(5) {
		case 0:
			configure()
		case 1:
			g.Adjust()
		}
		synctest.Wait()
		m.check(t)
	}
	// With seats for everyone, all end.
	g.Configure([]fairness.Level{{Name: "exempt", Exempt: true}, {Name: fairness.CatchAll, Shares: 1}}, 10_000)
	m.all.Wait()
	time.Sleep(time.Minute) // nothing lingers
	m.check(t)
	s := g.Snapshot(true)
	if s.Bytes != 0 || s.Watches != 0 || len(s.Levels) != 2 {
		t.Errorf("%+v is left", s)
	}
	for _, l := range s.Levels {
		if l.Seats != 0 || l.Requests != 0 || l.Waiting != 0 || l.WaitingSeats != 0 || l.ActiveQueues != 0 || l.QueuesWithWaiting != 0 || l.ExecutingWrites != 0 {
			t.Errorf("%+v is left", l)
		}
	}
}

// model has the expected counts of the gate.
type model struct {
	g   *fairness.Gate
	all sync.WaitGroup

	mu                         sync.Mutex
	requests, executing, seats int // seats without those that linger
	held                       int64
}

func (m *model) add(requests, executing, seats int, held int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests += requests
	m.executing += executing
	m.seats += seats
	m.held += held
}

// request makes a random request.
func (m *model) request(r *rand.Rand, level string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(3000))*time.Millisecond)
	defer cancel()
	q := fairness.Request{
		Level: level, Flow: r.Uint64(), Width: 1 + r.IntN(4), MaxWait: time.Duration(r.IntN(2000)) * time.Millisecond,
		User: fmt.Sprint(r.IntN(5)), Privileged: r.IntN(5) == 0, Watch: r.IntN(4) == 0, Write: r.IntN(2) == 0, Large: r.IntN(2) == 0,
	}
	if r.IntN(3) == 0 {
		q.FinalWidth, q.Extra = r.IntN(q.Width+1), time.Duration(r.IntN(100))*time.Millisecond
	}
	s, err := m.g.Acquire(ctx, q)
	if err != nil {
		return
	}
	width, seated, left, held := q.Width, true, false, int64(0)
	m.add(1, 1, width, 0)
	pause := func() { time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond) }
	for range r.IntN(6) {
		pause()
		switch r.IntN(5) {
		case 0:
			if n := int64(r.IntN(100 << 10)); s.Hold(n) {
				held += n
				m.add(0, 0, 0, n)
			}
		case 1:
			if left = s.Leave(0); left && seated {
				m.add(0, -1, -width, 0)
				seated = false
			}
		default:
			if !s.Suspend(int64(r.IntN(10 << 10))) {
				continue
			}
			if seated {
				m.add(0, -1, -width, 0)
			}
			pause()
			if seated = s.Resume(ctx) == nil && !left; seated {
				m.add(0, 1, width, 0)
			}
		}
	}
	pause()
	if seated {
		m.add(0, -1, -width, 0)
	}
	m.add(-1, 0, 0, -held)
	s.Release()
}

// check compares the gate with the model, while all requests wait for time to pass or for seats.
func (m *model) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.g.Snapshot(true)
	requests, executing, seats := 0, 0, 0
	for _, l := range s.Levels {
		requests += l.Requests
		executing += l.Executing
		seats += l.Seats
		inQueues, queueSeats := 0, 0
		for _, q := range l.Queues {
			inQueues += q.Waiting
			queueSeats += q.Seats
			if q.WaitingWork < 0 || q.Executing < 0 {
				t.Errorf("%s: %+v", l.Name, q)
			}
		}
		if inQueues > l.Waiting || queueSeats > l.Seats || l.Waiting > l.Requests {
			t.Errorf("%s: %+v", l.Name, l)
		}
		if l.Waiting > 0 && l.Executing == 0 && l.Seats == 0 && l.Current > 0 {
			t.Errorf("%s: %d requests wait, and none executes: %+v", l.Name, l.Waiting, l)
		}
	}
	if executing != m.executing || seats < m.seats || requests < m.requests {
		t.Errorf("%d requests, %d executing with %d seats; want %d, %d, %d", requests, executing, seats, m.requests, m.executing, m.seats)
	}
	if s.Bytes < m.held || s.Bytes > 4<<20 || s.Watches > 20 {
		t.Errorf("%d bytes, want at least %d; %d watches", s.Bytes, m.held, s.Watches)
	}
}

// TestManyWaiting: ten thousand requests wait for one seat, and get it in turn.
func TestManyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(1, fairness.Level{Queues: 512, HandSize: 1, QueueLength: 50})
		first := mustAcquire(t, g, fairness.Request{})
		var all sync.WaitGroup
		const n = 10_000
		for i := range n {
			all.Go(func() {
				s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: uint64(i), User: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
					return
				}
				s.Release()
			})
		}
		synctest.Wait()
		if s := state(t, g, "l"); s.Waiting != n || g.Bytes() != n*16<<10 {
			t.Errorf("%d wait, with %d bytes", s.Waiting, g.Bytes())
		}
		first.Release()
		all.Wait()
		if s := state(t, g, "l"); s.Counts.Dispatched != n+1 || s.Requests != 0 {
			t.Errorf("%+v", s.Counts)
		}
	})
}

// TestFlowsThatBeginOftenStarveNone: flows that send one request after the other have an idle queue
// at each arrival. They get no more than a flow that always has requests in its queue.
func TestFlowsThatBeginOftenStarveNone(t *testing.T) {
	for _, service := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		t.Run(service.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := one(4, fairness.Level{Queues: 64, HandSize: 1, QueueLength: 1000})
				constant := &client{flow: 0, many: 20, width: 1, service: service}
				clients := []*client{constant}
				for flow := range uint64(20) {
					clients = append(clients, &client{flow: 1 + flow, many: 1, width: 1, service: service})
				}
				run(t, g, 2000*service, clients...)
				total := 0.0
				for _, c := range clients {
					total += c.used
				}
				if part := total / float64(len(clients)); constant.used < part/2 || constant.used > 2*part {
					t.Errorf("the flow with requests in its queue used %.2f of its part", constant.used/part)
				}
			})
		})
	}
}
