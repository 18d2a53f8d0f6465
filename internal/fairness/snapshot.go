package fairness

import (
	"slices"
	"time"
)

// Counts are numbers of requests since a level exists.
type Counts struct {
	Dispatched, Rejected, TimedOut, Cancelled uint64
	// NotAccommodated is how often the next request had to wait although some seats were
	// free, because it takes more.
	NotAccommodated uint64
}

// Snapshot is a copy of the state of a gate.
type Snapshot struct {
	// Levels are in the order of their names. Those that drain are among them.
	Levels []LevelState
	// FairFraction is the fraction of its target that a level without bounds gets.
	FairFraction float64
	// Bytes and Watches are in use of those in Config.
	Bytes, Watches int64
}

// LevelState is a copy of the state of a level.
type LevelState struct {
	Name, UID string
	Exempt    bool
	Quiescing bool // it drains
	// Requests is how many have entered and not left, those without seats included.
	Requests                        int
	Executing, Waiting              int // requests
	ExecutingWrites, WaitingWrites  int
	Seats, WaitingSeats             int
	Nominal, Lower, Upper, Current  int // limits in seats
	R                               float64
	Demand                          Demand
	Counts                          Counts
	SeatUtilization                 TimeHistogram // seats in use, of the current limit
	ExecutingRatio, WaitingRatio    TimeHistogram // requests, of the current limit and of the places in queues
	DemandRatio                     TimeHistogram // seats in use and wanted, of the current limit
	Queues                          []QueueState  // nil without Gate.Snapshot(true)
	QueuesWithWaiting, ActiveQueues int
}

// QueueState is a copy of the state of a queue.
type QueueState struct {
	Waiting, Executing int // requests
	Seats              int // in use
	Start              float64
	WaitingSeats       int
	WaitingWork        float64 // seat-seconds
}

// Snapshot returns the state of the levels, and of their queues if they are wanted.
func (g *Gate) Snapshot(queues bool) Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := Snapshot{FairFraction: g.fairFraction, Bytes: g.bytes.used.Load(), Watches: g.watches.used.Load()}
	for _, l := range g.all {
		s.Levels = append(s.Levels, l.snapshot(queues))
	}
	return s
}

// Bytes returns how much memory requests hold.
func (g *Gate) Bytes() int64 { return g.bytes.used.Load() }

// Executing returns how many requests have seats: writes, or others.
func (g *Gate) Executing(writes bool) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.all {
		var kinds [2]int
		if l.exempt {
			_, _, kinds = l.ex.totals()
		} else {
			l.mu.Lock()
			kinds = [2]int{l.executing - l.executingWrites, l.executingWrites}
			l.mu.Unlock()
		}
		if writes {
			n += kinds[1]
		} else {
			n += kinds[0]
		}
	}
	return n
}

// snapshot copies the level; Gate.mu is held.
func (l *level) snapshot(queues bool) LevelState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exempt {
		l.observe(l.g.now())
	} else {
		l.sync(l.g.now())
	}
	u := &l.usage
	s := LevelState{
		Name: l.name, UID: l.c.UID, Exempt: l.exempt, Quiescing: l.draining.Load(),
		Requests: l.requests, Executing: l.executing, Waiting: l.waiting,
		ExecutingWrites: l.executingWrites, WaitingWrites: l.waitingWrites, Seats: l.inUse, WaitingSeats: l.waitingSeats,
		Nominal: l.nominal, Lower: l.lower, Upper: l.upper, Current: l.limit,
		R: l.r, Demand: l.stats, Counts: l.counts, QueuesWithWaiting: len(l.order) + len(l.largeOrder), ActiveQueues: l.active,
		SeatUtilization: u.seats.copy(), ExecutingRatio: u.executing.copy(), WaitingRatio: u.waiting.copy(), DemandRatio: u.demand.copy(),
	}
	if l.exempt {
		var kinds [2]int
		s.Requests, s.Counts.Dispatched, kinds = l.ex.totals()
		s.Executing, s.ExecutingWrites = kinds[0]+kinds[1], kinds[1]
	}
	if queues {
		for _, q := range l.queues {
			s.Queues = append(s.Queues, QueueState{
				Waiting: q.waiting.len + q.resuming.len, Executing: q.executing, Seats: q.inUse,
				Start: q.start, WaitingSeats: q.waitingSeats, WaitingWork: q.waitingWork,
			})
		}
	}
	return s
}

// totals adds up the shards.
func (x *exempt) totals() (requests int, dispatched uint64, kinds [2]int) {
	for i := range x.shards {
		h := &x.shards[i]
		h.mu.Lock()
		requests += h.requests
		dispatched += h.dispatched
		for k, n := range h.kinds {
			kinds[k] += n
		}
		h.mu.Unlock()
	}
	return requests, dispatched, kinds
}

// RequestState is a copy of the state of a request that waits or has seats.
type RequestState struct {
	Level, Schema string
	// Queue is the index of its queue. It is -1 at a level without queues.
	Queue int
	// Place is the place in the queue, from 0. It is -1 if the request has seats.
	Place              int
	Arrived            time.Time
	Began              time.Time // zero if it has had no seats yet
	Width, FinalWidth  int
	Extra              time.Duration
	User               string
	Detail             any // Request.Detail
	Resuming, Watching bool
}

// Visit calls f for each request that waits or has seats. f must be quick, and must not call the
// gate: other requests of the level wait meanwhile.
func (g *Gate) Visit(f func(RequestState)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.all {
		if l.exempt {
			l.ex.visit(l, f)
			continue
		}
		l.visit(f)
	}
}

func (l *level) visit(f func(RequestState)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range slices.Concat(l.order, l.largeOrder) {
		place := 0
		for _, in := range []*list{&q.resuming, &q.waiting} {
			for s := in.first; s != nil; s = s.next {
				r := l.request(s)
				r.Place, r.Resuming = place, in == &q.resuming
				f(r)
				place++
			}
		}
	}
	for s := l.running.first; s != nil; s = s.next {
		f(l.request(s))
	}
}

func (x *exempt) visit(l *level, f func(RequestState)) {
	for i := range x.shards {
		h := &x.shards[i]
		h.mu.Lock()
		for s := h.running.first; s != nil; s = s.next {
			if s.seated {
				f(l.request(s))
			}
		}
		h.mu.Unlock()
	}
}

// request copies the state of a request.
func (l *level) request(s *Seat) RequestState {
	r := RequestState{
		Level: l.name, Queue: -1, Place: -1, Arrived: l.g.began.Add(s.arrived),
		Width: s.width, FinalWidth: s.final, Extra: s.extra, User: s.name, Detail: s.detail, Watching: s.watch,
	}
	if s.metrics != nil {
		r.Schema = s.metrics.schema
	}
	if s.queue != nil && l.c.Queues > 0 {
		r.Queue = s.queue.index
	}
	if s.began || l.exempt {
		r.Began = l.g.began.Add(s.first)
	}
	return r
}
