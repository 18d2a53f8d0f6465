// Package inflight limits the requests that execute, and the memory of those that wait. It
// shares both fairly among the users of the API.
//
// A request holds a seat while it executes. It gives the seat back while it waits: for the
// rest of its body, for a client that does not read, for a webhook, for a revision that does
// not exist yet. So neither slow clients nor slow webhooks block other requests. The memory
// of waiting requests counts against one budget.
//
//	Acquire ── works ── Suspend ── waits ── Resume ── works ── Release
//	   │                   │                   │
//	   └ no seat: refused  └ no memory left:   └ queues for a seat; users take turns
//	                         refused
//
// A user gets a seat, or bytes, if it has fewer of them than are free. So one user gets half
// of all, two get a third each, and some are always free for the next user. An eighth is
// reserved for privileged users, who may take everything that is free.
//
// The budget is not one of those of internal/http2 and internal/serving, which count bytes of
// connections: here the share of each user decides, so all counts stand under one lock.
package inflight

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// Class is a kind of request with seats of its own.
type Class int

// The classes.
const (
	Reads Class = iota
	Writes
	Watches
	classes
)

// waitOverhead is the estimated size in bytes of a waiting request without its body and
// without a large answer: goroutine stack, headers, stream, and a small answer.
const waitOverhead = 32 << 10

// keptUsers is how many users are kept after their last request, so that sequential requests
// do not allocate a user each.
const keptUsers = 64

// Limits are the limits of all requests together.
type Limits struct {
	// Seats is how many requests of each class may execute at once. A large request
	// takes several.
	Seats [classes]int
	// Bytes bounds the memory of requests that wait for their clients.
	Bytes int64
}

// Gate hands out seats. All methods are safe for concurrent use.
type Gate struct {
	limits Limits

	mu     sync.Mutex
	used   [classes]int       // seats
	bytes  int64              // held by requests
	users  map[string]*user   // those with requests in flight, and some others
	queues [classes]list.List // of *user: those with requests that wait for a seat, the next one first
}

// user counts what a user holds. The gate's mu guards its fields.
type user struct {
	name       string
	privileged bool
	requests   int
	used       [classes]int
	bytes      int64
	waiting    [classes]list.List // of *Seat, the oldest first
	turn       [classes]*list.Element
}

// NewGate returns a gate with the limits.
func NewGate(l Limits) *Gate { return &Gate{limits: l, users: map[string]*user{}} }

// Seat is the seat of one request. Only the request's goroutine uses it.
type Seat struct {
	g     *Gate
	class Class
	user  *user

	width     int           // how many seats it takes
	seated    bool          // the request has its seats
	suspended int           // calls of Suspend without Resume
	waits     int64         // bytes that count until Resume
	holds     int64         // bytes that count until Release
	place     *list.Element // in the queue of its user
	ready     chan struct{} // closed when it gets its seats
}

// Acquire takes a seat for a request of a user. It returns nil if the class has no free
// seat or the user has its share of them. A privileged user may take all seats.
func (g *Gate) Acquire(c Class, name string, privileged bool) *Seat {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := g.users[name]
	if u == nil {
		u = &user{name: name}
	}
	u.privileged = privileged // as of now: groups may change
	if !g.free(c, u) {
		return nil
	}
	g.users[name] = u
	u.requests++
	s := &Seat{g: g, class: c, user: u, width: 1}
	s.sit()
	return s
}

// free reports whether the user may take a seat now; mu is held.
func (g *Gate) free(c Class, u *user) bool {
	limit := g.limits.Seats[c]
	left := limit - g.used[c]
	return left > 0 && (u.privileged || u.used[c] < left && left > limit/8)
}

// room reports whether the user may hold more bytes; mu is held.
func (g *Gate) room(u *user, bytes int64) bool {
	limit := g.limits.Bytes
	left := limit - g.bytes - bytes
	return left >= 0 && (u.privileged || u.bytes+bytes <= left && left >= limit/8)
}

// charge changes how many bytes the user holds; mu is held.
func (g *Gate) charge(u *user, bytes int64) {
	g.bytes += bytes
	u.bytes += bytes
}

// sit takes the seats; mu is held. A request that takes several may exceed the limit, so that
// small requests do not block it forever.
func (s *Seat) sit() {
	s.seated = true
	s.g.used[s.class] += s.width
	s.user.used[s.class] += s.width
}

// rise gives the seats back, and assigns them to waiting requests; mu is held.
func (s *Seat) rise() {
	if !s.seated {
		return
	}
	s.seated = false
	s.g.used[s.class] -= s.width
	s.user.used[s.class] -= s.width
	s.g.seat(s.class)
}

// seat assigns free seats to waiting requests, round-robin over their users; mu is held.
func (g *Gate) seat(c Class) {
	queue := &g.queues[c]
	for turns := queue.Len(); turns > 0 && g.used[c] < g.limits.Seats[c]; turns-- {
		first := queue.Front()
		u := first.Value.(*user)
		if !g.free(c, u) { // it has its share
			queue.MoveToBack(first)
			continue
		}
		s := u.waiting[c].Front().Value.(*Seat)
		s.leaveQueue()
		s.sit()
		close(s.ready)
		if u.turn[c] != nil {
			queue.MoveToBack(first)
			turns++ // it may have a share left
		}
	}
}

// leaveQueue removes a request from the queue of its user; mu is held.
func (s *Seat) leaveQueue() {
	u, c := s.user, s.class
	u.waiting[c].Remove(s.place)
	s.place = nil
	if u.waiting[c].Len() == 0 {
		s.g.queues[c].Remove(u.turn[c])
		u.turn[c] = nil
	}
}

// Hold counts bytes that the request holds until Release. It reports whether they fit
// into the budget; if not, nothing is counted.
func (s *Seat) Hold(bytes int64) bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if !s.g.room(s.user, bytes) {
		return false
	}
	s.g.charge(s.user, bytes)
	s.holds += bytes
	return true
}

// Suspend gives the seat back until Resume, and counts the bytes that the request holds until
// then. If they do not fit into the budget, it returns false and the request keeps its seat.
// Calls nest: the outermost Resume takes the seat again.
func (s *Seat) Suspend(bytes int64) bool {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if s.suspended == 0 {
		bytes += waitOverhead
	}
	if bytes > 0 && !s.g.room(s.user, bytes) {
		return false
	}
	s.suspended++
	s.g.charge(s.user, bytes)
	s.waits += bytes
	if s.class != Watches { // a watch mostly waits: its seat is what bounds how many do
		s.rise()
	}
	return true
}

// Resume takes the seat again that Suspend gave back. It waits for a free seat until the
// context is done, and then returns the context's error; the request may finish without
// a seat. The bytes of Suspend count until Resume returns.
func (s *Seat) Resume(ctx context.Context) error {
	g, c := s.g, s.class
	g.mu.Lock()
	if s.suspended--; s.suspended > 0 {
		g.mu.Unlock()
		return nil
	}
	defer s.settle()
	if s.seated {
		g.mu.Unlock()
		return nil
	}
	if g.free(c, s.user) {
		s.sit()
		g.mu.Unlock()
		return nil
	}
	s.ready = make(chan struct{})
	s.place = s.user.waiting[c].PushBack(s)
	if s.user.turn[c] == nil {
		s.user.turn[c] = g.queues[c].PushBack(s.user)
	}
	g.mu.Unlock()
	select {
	case <-s.ready:
		return nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		if s.place == nil { // it got its seat at the same time
			return nil
		}
		s.leaveQueue()
		return ctx.Err()
	}
}

// settle ends the count of the bytes of Suspend.
func (s *Seat) settle() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.g.charge(s.user, -s.waits)
	s.waits = 0
}

// Widen sets how many seats the next Resume takes, at most all of the class: large
// requests take several, so that few of them execute at once. It has no effect on a
// request that is not suspended.
func (s *Seat) Widen(width int) {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if !s.seated {
		s.width = max(1, min(width, s.g.limits.Seats[s.class]))
	}
}

// Release ends the request. It is called once.
func (s *Seat) Release() {
	g, u := s.g, s.user
	g.mu.Lock()
	defer g.mu.Unlock()
	s.rise()
	g.charge(u, -s.holds-s.waits)
	s.holds, s.waits = 0, 0
	if u.requests--; u.requests == 0 && len(g.users) > keptUsers {
		delete(g.users, u.name)
	}
}

// Usage is the current use of a gate.
type Usage struct {
	// Seats is how many seats of a class are taken, Waiting how many requests wait for
	// one.
	Seats, Waiting int
	// Bytes is the memory that waiting requests of all classes hold.
	Bytes int64
}

// Usage returns the current use of a class.
func (g *Gate) Usage(c Class) Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := Usage{Seats: g.used[c], Bytes: g.bytes}
	for e := g.queues[c].Front(); e != nil; e = e.Next() {
		u.Waiting += e.Value.(*user).waiting[c].Len()
	}
	return u
}

// contextKey is the key of a request's seat in its context.
type contextKey struct{}

// WithSeat returns a context that carries the seat of its request.
func WithSeat(ctx context.Context, s *Seat) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// ErrFull is the error of a request that would have to wait when the budget for waiting
// requests is spent.
var ErrFull = errors.New("too many requests are waiting for their clients, please try again later")

// Wait calls f, which waits for something outside of this server, without the seat of the
// context's request. bytes estimates the memory that the request holds meanwhile. If the
// context has no seat (work of the server itself), Wait just calls f.
func Wait(ctx context.Context, bytes int64, f func() error) error {
	s, _ := ctx.Value(contextKey{}).(*Seat)
	if s == nil {
		return f()
	}
	if !s.Suspend(bytes) {
		return ErrFull
	}
	err := f()
	if again := s.Resume(ctx); err == nil {
		err = again
	}
	return err
}
