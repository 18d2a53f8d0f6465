package fairness

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// exempt counts the requests of an exempt level. They never wait for a lock that is held for
// longer than it takes to count: each locks one of several shards.
type exempt struct {
	seats atomic.Int64 // in use
	most  atomic.Int64 // seats in use at once, since the last call of measure

	shards [8]exemptShard
}

type exemptShard struct {
	mu         sync.Mutex
	closed     bool
	requests   int
	running    list   // requests that have not ended, those without seats included
	kinds      [2]int // requests with seats: reads, writes
	dispatched uint64
	_          [64]byte // shards share no cache line
}

// enter counts a request. It reports false if the level has gone.
func (x *exempt) enter(l *level, s *Seat) bool {
	s.shard = rand.Uint32N(uint32(len(x.shards)))
	now := l.g.now()
	s.arrived, s.first = now, now
	h := &x.shards[s.shard]
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return false
	}
	h.requests++
	h.dispatched++
	h.running.push(s)
	h.kinds[s.write]++
	s.seated = true
	h.mu.Unlock()
	s.metrics.dispatched()
	x.seat(l, s, now)
	return true
}

// seat notes that the request has taken its seats.
func (x *exempt) seat(l *level, s *Seat, now time.Duration) {
	s.metrics.executing(1, s.seats())
	x.change(l, int64(s.seats()), now)
}

// resume takes the seats again.
func (x *exempt) resume(l *level, s *Seat, now time.Duration) {
	h := &x.shards[s.shard]
	h.mu.Lock()
	h.kinds[s.write]++
	s.seated = true
	h.mu.Unlock()
	x.seat(l, s, now)
}

// giveBack gives the seats back.
func (x *exempt) giveBack(l *level, s *Seat, now time.Duration) {
	if !s.seated {
		return
	}
	h := &x.shards[s.shard]
	h.mu.Lock()
	h.kinds[s.write]--
	s.seated = false
	h.mu.Unlock()
	x.unseat(l, s, now)
}

// unseat notes that the request has given its seats back.
func (x *exempt) unseat(l *level, s *Seat, now time.Duration) {
	s.metrics.executing(-1, s.seats())
	x.change(l, -int64(s.seats()), now)
}

// widen sets how many seats a suspended request takes when it resumes.
func (x *exempt) widen(s *Seat, width int) {
	h := &x.shards[s.shard]
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.suspended > 0 && !s.seated {
		s.width = width
	}
}

// leave ends a request.
func (x *exempt) leave(l *level, s *Seat, now time.Duration) {
	h := &x.shards[s.shard]
	h.mu.Lock()
	h.running.remove(s)
	h.requests--
	seated := s.seated
	if seated {
		h.kinds[s.write]--
		s.seated = false
	}
	drained := h.requests == 0
	h.mu.Unlock()
	if seated {
		x.unseat(l, s, now)
	}
	if drained && l.draining.Load() {
		l.g.reap()
	}
}

// change changes the number of seats in use. The statistics skip it if another request updates
// them at the same time: the next one will count it.
func (x *exempt) change(l *level, seats int64, now time.Duration) {
	used := x.seats.Add(seats)
	for most := x.most.Load(); used > most; most = x.most.Load() {
		if x.most.CompareAndSwap(most, used) {
			break
		}
	}
	if l.mu.TryLock() {
		l.observe(now)
		l.mu.Unlock()
	}
}

// observe updates the statistics of an exempt level; mu is held.
func (l *level) observe(now time.Duration) {
	l.advance(now)
	l.inUse = int(l.ex.seats.Load())
	l.executing = l.inUse // most requests take one
	l.usage.changed(l)
}

// close closes the level if it has no requests, and reports whether it did.
func (x *exempt) close() bool {
	for i := range x.shards {
		x.shards[i].mu.Lock()
		defer x.shards[i].mu.Unlock()
	}
	for i := range x.shards {
		if x.shards[i].requests > 0 {
			return false
		}
	}
	for i := range x.shards {
		x.shards[i].closed = true
	}
	return true
}
