// Package inflight shares the server's seats, and the memory that waits for clients,
// among the users of the API.
//
// A request takes a seat once it is known who sends it, and keeps the seat while the
// server works for it. It gives the seat back while it waits: for the rest of its body,
// for a client that does not read, for a webhook, for a revision that is not there yet.
// So neither a slow client nor a slow webhook keeps other requests out. What a waiting
// request holds in memory counts against one budget of bytes.
//
//	Acquire ── works ── Suspend ── waits ── Resume ── works ── Release
//	   │                   │                   │
//	   └ no seat: refused  └ no memory left:   └ queues for a seat; users take turns
//	                         refused
//
// No user, except the privileged ones, gets more than half of the seats of a class or
// half of the bytes.
package inflight

import (
	"container/list"
	"context"
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

// waitOverhead is about how many bytes a request holds while it waits, beside its body
// and a large answer: the stacks of its goroutine, its headers, its stream, and a small
// answer.
const waitOverhead = 32 << 10

// keptUsers is how many users are kept though they have no request under way, so that
// those who send one request after the other are not counted from scratch each time.
const keptUsers = 64

// Limits bound what all requests may hold.
type Limits struct {
	// Seats is how many requests of each class may execute at once. A large request
	// takes several.
	Seats [classes]int
	// Bytes is how much memory the requests may hold that wait for their clients.
	Bytes int64
}

// Gate hands out seats. All methods are safe for concurrent use.
type Gate struct {
	limits Limits

	mu     sync.Mutex
	used   [classes]int       // seats
	bytes  int64              // held by requests
	users  map[string]*user   // those with requests under way, and some others
	queues [classes]list.List // of *user, those with requests that wait for a seat; the next turn first
}

// user is one who has requests under way. The gate's mu guards the fields.
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

// Seat is that of one request. The request's goroutine uses it.
type Seat struct {
	g     *Gate
	class Class
	user  *user

	width     int           // how many seats it takes
	seated    bool          // it has them
	suspended int           // calls of Suspend that Resume did not answer
	waits     int64         // bytes that it holds while it is suspended
	holds     int64         // bytes that it holds until Release
	place     *list.Element // in the queue of its user
	ready     chan struct{} // closed when it gets its seats
}

// Acquire takes a seat for a request of a user, or returns nil when the class has no
// seat left, or the user has his share. A privileged user may have all of them.
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
	return g.used[c] < limit && (u.privileged || u.used[c] < max(1, limit/2))
}

// room reports whether the user may hold more bytes; mu is held.
func (g *Gate) room(u *user, bytes int64) bool {
	return g.bytes+bytes <= g.limits.Bytes && (u.privileged || u.bytes+bytes <= g.limits.Bytes/2)
}

// charge changes how many bytes the user holds; mu is held.
func (g *Gate) charge(u *user, bytes int64) {
	g.bytes += bytes
	u.bytes += bytes
}

// sit takes the seats; mu is held. A request that takes several may pass the limit by
// them, so that small requests do not keep it out.
func (s *Seat) sit() {
	s.seated = true
	s.g.used[s.class] += s.width
	s.user.used[s.class] += s.width
}

// rise gives the seats back, and lets those sit down who wait for them; mu is held.
func (s *Seat) rise() {
	if !s.seated {
		return
	}
	s.seated = false
	s.g.used[s.class] -= s.width
	s.user.used[s.class] -= s.width
	s.g.seat(s.class)
}

// seat gives free seats to those who wait, a user after the other; mu is held.
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

// leaveQueue takes a seat off the queue of its user; mu is held.
func (s *Seat) leaveQueue() {
	u, c := s.user, s.class
	u.waiting[c].Remove(s.place)
	s.place = nil
	if u.waiting[c].Len() == 0 {
		s.g.queues[c].Remove(u.turn[c])
		u.turn[c] = nil
	}
}

// Hold counts bytes that the request holds until Release, and reports whether there is
// room for them.
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

// Suspend gives the seat back, while the request waits and holds so many bytes. False:
// there is no room for them; the request keeps its seat, and has to be refused. A
// request that waits already may do so for something else meanwhile.
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

// Resume ends what Suspend began. It waits for a seat until the context is done, and
// returns the context's error then: the request goes on without a seat, to its end. The
// bytes count until the request has its seat.
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

// settle gives back what the request held while it waited.
func (s *Seat) settle() {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	s.g.charge(s.user, -s.waits)
	s.waits = 0
}

// Widen has the request take so many seats instead of one, from the next Resume on: the
// large requests are few at a time. It is called while the request waits.
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

// Usage is what is taken of a gate.
type Usage struct {
	// Seats taken, and requests that wait for one.
	Seats, Waiting int
	// Bytes held by the requests of all classes.
	Bytes int64
}

// Usage returns what is taken of a class.
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

// FullError is the error of a request that would have to wait, when there is no memory
// left for requests that wait.
type FullError struct{}

func (FullError) Error() string { return "too many requests are waiting, please try again later" }

// Wait calls f, which waits for something else than this server's own work, and has the
// request of the context give its seat back meanwhile. The request holds about so many
// bytes while it waits. A context without a seat is that of the server's own work.
func Wait(ctx context.Context, bytes int64, f func() error) error {
	s, _ := ctx.Value(contextKey{}).(*Seat)
	if s == nil {
		return f()
	}
	if !s.Suspend(bytes) {
		return FullError{}
	}
	err := f()
	if again := s.Resume(ctx); err == nil {
		err = again
	}
	return err
}
