package fairness

import (
	"context"
	"errors"
	"sync"
	"time"
)

// waitBytes is the estimated size of a request that waits in the middle of its work, without
// its body and without a large response: goroutine stack, headers, stream, and a small response.
const waitBytes = 32 << 10

// queuedBytes is the estimated size of a request in a queue, whose body has not been read.
const queuedBytes = 16 << 10

// Request describes a request to a gate.
type Request struct {
	// Level is the name of its priority level. If there is none, CatchAll is used.
	Level string
	// Flow is the hash of its flow schema and distinguisher.
	Flow uint64
	// Width is how many seats the request takes while it executes. Zero means one.
	Width int
	// FinalWidth is how many seats it takes during the time Extra, which begins when
	// it ends. It has max(Width, FinalWidth) seats from the beginning.
	FinalWidth int
	Extra      time.Duration
	// MaxWait bounds the time in a queue. Zero means that only the context does.
	MaxWait time.Duration

	// User is the name of the user to whom bytes and watches are charged.
	User string
	// Privileged users may hold all of the bytes and watches that are free.
	Privileged bool
	// Large: the request returns much. Config.Large bounds how many of these execute at once.
	Large bool
	// Write counts the request as one that writes.
	Write bool
	// Watch takes one of Config.Watches until Release.
	Watch bool

	// Metrics count the request. Nil means that it is not counted by flow schema.
	Metrics *FlowMetrics
	// Detail is passed on to Gate.Visit. It must not change until Release.
	Detail any
}

// Seat stands for the seats of one request. Only the request's goroutine uses it, except for Suspend
// and Resume: goroutines that work for one request may wait at the same time.
type Seat struct {
	l       *level
	metrics *FlowMetrics
	detail  any
	flow    uint64
	extra   time.Duration

	outside stopwatch // runs while Wait waits

	name       string // of the user
	user       *user  // nil until the request holds something; always nil if it is privileged
	privileged bool
	watch      bool
	connection bool // Connect was called
	write      int  // 1: it writes

	waitMu    sync.Mutex // held by Suspend and Resume; it guards suspended and waits
	suspended int        // calls of Suspend without Resume
	waits     int64      // bytes that count until Resume
	holds     int64      // bytes that count until Release
	over      bool       // Leave or Release was called

	// The level's mu guards the fields below; at an exempt level, that of the shard.
	width, final   int
	large          bool // Config.Large bounds it
	counted        bool // it is one of level.large
	seated         bool
	began          bool          // it has had seats
	arrived, first time.Duration // when it arrived, and began to execute
	since          time.Duration // when it got its seats
	arrivedR       float64       // R when it began to wait
	work           float64       // seat-seconds that its queue pays when it gets its seats
	queue          *queue        // nil at an exempt level
	place          *list         // of the queue, while it waits
	ready          chan struct{} // closed when it gets its seats
	shard          uint32        // at an exempt level
	prev, next     *Seat
}

// Acquire takes seats for a request. If there are none, it waits in a queue until there are,
// until the context is done, or until Request.MaxWait has passed. The error is one of those of
// this package, or context.Canceled.
func (g *Gate) Acquire(ctx context.Context, r Request) (*Seat, error) {
	s := &Seat{
		metrics: r.Metrics, detail: r.Detail, flow: r.Flow, width: max(1, r.Width), final: r.FinalWidth, extra: r.Extra,
		name: r.User, privileged: r.Privileged, watch: r.Watch,
	}
	if r.Write {
		s.write = 1
	}
	s.large = r.Large && g.large > 0
	s.metrics.widths(s.seats())
	for {
		l := g.level(r.Level)
		if l == nil {
			return nil, ErrConcurrencyLimit
		}
		s.l = l
		entered, err := s.enter(ctx, r.MaxWait)
		if err != nil {
			s.forget()
			return nil, err
		}
		if entered {
			return s, nil
		}
		s.forget() // the level was removed: look the name up again
	}
}

// enter enters the level. It reports false if the level has gone.
func (s *Seat) enter(ctx context.Context, maxWait time.Duration) (bool, error) {
	l := s.l
	if s.watch && !l.g.watches.take(s.watches(), 1) {
		s.watch = false
		l.reject(s, ErrWatches)
		return false, ErrWatches
	}
	if l.exempt {
		return l.ex.enter(l, s), nil
	}
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return false, nil
	}
	l.requests++
	if err := l.enter(s); err != nil {
		l.count(s, err)
		l.exit()
		return false, err
	}
	if s.seated {
		s.metrics.waited(true, 0)
		l.mu.Unlock()
		return true, nil
	}
	l.mu.Unlock()
	return true, s.await(ctx, maxWait)
}

// await waits in the queue.
func (s *Seat) await(ctx context.Context, maxWait time.Duration) error {
	l := s.l
	err := s.getReady(ctx, maxWait)
	waited := l.g.now() - s.arrived
	s.metrics.waited(err == nil, waited)
	s.settle()
	if err != nil {
		l.mu.Lock()
		l.count(s, err)
		l.exit()
	}
	return err
}

// getReady waits until the request has its seats.
func (s *Seat) getReady(ctx context.Context, maxWait time.Duration) error {
	var timeout <-chan time.Time
	if maxWait > 0 {
		t := time.NewTimer(maxWait)
		defer t.Stop()
		timeout = t.C
	}
	err := ErrTimeout
	select {
	case <-s.ready:
		return nil
	case <-timeout:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			err = context.Canceled
		}
	}
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.place == nil { // it got its seats at the same time
		return nil
	}
	l.sync(l.g.now())
	l.leave(s)
	return err
}

// exit counts a request that leaves the level. The caller holds mu, and exit unlocks it.
func (l *level) exit() {
	l.requests--
	drained := l.draining.Load() && l.requests == 0
	l.mu.Unlock()
	if drained {
		l.g.reap()
	}
}

// holder returns the user and the level to which the bytes of the request are charged.
func (s *Seat) holder() holder {
	h := holder{level: &s.l.bytes, privileged: s.privileged}
	if !s.privileged {
		h.user = &s.account().bytes
	}
	return h
}

// watches returns the user and the level to which the watch is charged.
func (s *Seat) watches() holder {
	h := holder{level: &s.l.watches, privileged: s.privileged}
	if !s.privileged {
		h.user = &s.account().watches
	}
	return h
}

// connections returns the user and the level to which the connection is charged.
func (s *Seat) connections() holder {
	h := holder{level: &s.l.connections, privileged: s.privileged}
	if !s.privileged {
		h.user = &s.account().connections
	}
	return h
}

// Connect takes one of Config.Connections until Release. It returns false if none is left for the user. A request with a
// connection counts no bytes when it leaves.
func (s *Seat) Connect() bool {
	if !s.connection {
		s.connection = s.l.g.connections.take(s.connections(), 1)
	}
	return s.connection
}

func (s *Seat) account() *user {
	if s.user == nil {
		s.user = s.l.g.users.get(s.name)
	}
	return s.user
}

// forget returns the amounts that the request holds.
func (s *Seat) forget() {
	g := s.l.g
	if bytes := s.holds + s.waits; bytes != 0 {
		g.bytes.give(s.holder(), bytes)
		s.holds, s.waits = 0, 0
	}
	if s.watch {
		g.watches.give(s.watches(), 1)
	}
	if s.connection {
		g.connections.give(s.connections(), 1)
	}
	if s.user != nil {
		g.users.put(s.user)
		s.user = nil
	}
}

// Hold counts bytes that the request holds until Release. It reports whether they fit into the
// budget; if not, nothing is counted.
func (s *Seat) Hold(bytes int64) bool {
	if !s.l.g.bytes.take(s.holder(), bytes) {
		return false
	}
	s.holds += bytes
	return true
}

// Suspend gives the seats back until Resume, and counts the bytes that the request holds until
// then. If they do not fit into the budget, it returns false and the request keeps its seats, but does
// not count against Config.Large any more.
// Calls nest: the outermost Resume takes the seats again. So if several goroutines work for the
// request, it has no seats while one of them waits.
func (s *Seat) Suspend(bytes int64) bool {
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	if !s.count(bytes) {
		s.uncount()
		return false
	}
	if s.suspended++; s.suspended == 1 && !s.over {
		s.giveBack(false)
	}
	return true
}

// uncount lets another large request execute. The request waits, but keeps its seats.
func (s *Seat) uncount() {
	l := s.l
	if l.exempt {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.counted {
		l.sync(l.g.now())
		l.endLarge(s)
		l.dispatch()
	}
}

// count counts the bytes of a request that waits.
func (s *Seat) count(bytes int64) bool {
	if s.suspended == 0 {
		bytes += waitBytes
	}
	if !s.l.g.bytes.take(s.holder(), bytes) {
		return false
	}
	s.waits += bytes
	return true
}

// giveBack gives the seats back.
func (s *Seat) giveBack(over bool) {
	l, now := s.l, s.l.g.now()
	if over {
		s.metrics.executed(s.watch, now-s.first)
	}
	if l.exempt {
		l.ex.giveBack(l, s, now)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sync(now)
	if s.seated {
		l.end(s, over)
	}
}

// Leave returns the seats permanently: the request does not execute any more, and waits for its
// client only. The time Request.Extra begins. The bytes count until Release. If they do not fit
// into the budget, Leave returns false and the request keeps its seats.
//
// A watch calls Leave when it has been initialized. From then on, it is one of Config.Watches, and
// counts no bytes unless it calls Suspend or Hold.
func (s *Seat) Leave(bytes int64) bool {
	if s.over {
		return true
	}
	if !s.watch && !s.connection && !s.count(bytes) {
		s.uncount()
		return false
	}
	s.over = true
	s.giveBack(true)
	return true
}

// Resume takes the seats again that Suspend gave back. If there are none, it waits in the
// request's queue, ahead of new requests, until the context is done. It returns the context's
// error then, and the request may finish without seats. The bytes of Suspend count until Resume
// returns.
func (s *Seat) Resume(ctx context.Context) error { return s.resume(ctx, 0) }

// resume is Resume, after which so many bytes do not count any more, even if other goroutines of the
// request still wait.
func (s *Seat) resume(ctx context.Context, bytes int64) error {
	s.waitMu.Lock()
	defer s.waitMu.Unlock()
	if s.suspended--; s.suspended > 0 {
		s.waits -= bytes
		s.l.g.bytes.give(s.holder(), bytes)
		return nil
	}
	defer s.settle()
	l := s.l
	if s.over {
		return nil
	}
	if l.exempt {
		l.ex.resume(l, s, l.g.now())
		return nil
	}
	l.mu.Lock()
	l.sync(l.g.now())
	s.work = float64(s.width) * guess
	if !l.mustWait(s) {
		l.activate(s.queue)
		l.begin(s)
		l.mu.Unlock()
		return nil
	}
	l.enqueue(s, &s.queue.resuming)
	l.dispatch()
	l.mu.Unlock()
	if s.getReady(ctx, 0) != nil {
		return ctx.Err()
	}
	return nil
}

// Yield gives the seats to requests that wait and whose queue has used less, and takes them again
// as Resume does. A request with much work calls it now and then, so that small requests of others
// need not wait until it ends. The error is that of the context.
func (s *Seat) Yield(ctx context.Context) error {
	l := s.l
	if l.exempt {
		return nil
	}
	s.waitMu.Lock() // if another goroutine of the request waits for its seats, this one waits too
	idle := s.over || s.suspended > 0
	s.waitMu.Unlock()
	if idle {
		return nil
	}
	l.mu.Lock()
	yields := s.seated && l.behind(s)
	l.mu.Unlock()
	if !yields || !s.Suspend(0) {
		return nil
	}
	return s.Resume(ctx)
}

// Yield calls Seat.Yield for the request of the context, if it has a seat. The error is that of the
// context.
func Yield(ctx context.Context) error {
	if s, _ := ctx.Value(contextKey{}).(*Seat); s != nil {
		if err := s.Yield(ctx); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// behind reports whether the next request that waits belongs to a queue that has used less than
// that of a request with seats; mu is held.
func (l *level) behind(s *Seat) bool {
	first := l.first()
	if first == nil || first == s.queue {
		return false
	}
	used := s.queue.start + float64(s.width)*((l.g.now()-s.since).Seconds()-guess)
	return first.start < used
}

// settle ends the count of the bytes of a request that waits.
func (s *Seat) settle() {
	if s.waits != 0 {
		s.l.g.bytes.give(s.holder(), s.waits)
		s.waits = 0
	}
}

// Widen sets how many seats the next Resume takes, at most all of the level. A request that takes
// several is large, so Config.Large bounds how many of them execute at once. Widen has no effect on
// a request that is not suspended.
func (s *Seat) Widen(width int) {
	l := s.l
	if l.exempt {
		l.ex.widen(s, max(1, width))
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.suspended > 0 && !s.seated {
		s.width = max(1, min(width, l.limit))
		s.large = s.large || width > 1 && l.g.large > 0
	}
}

// seats is how many seats the request takes.
func (s *Seat) seats() int { return max(s.width, s.final) }

// Release ends the request, which must not use the seat afterwards.
func (s *Seat) Release() {
	l, now := s.l, s.l.g.now()
	if !s.over {
		s.metrics.executed(s.watch, now-s.first)
		s.over = true
	}
	if l.exempt {
		l.ex.leave(l, s, now)
	} else {
		l.mu.Lock()
		l.sync(now)
		if s.seated {
			l.end(s, true)
		}
		l.exit()
	}
	s.forget()
}

// contextKey is the key of a request's seat in its context.
type contextKey struct{}

// WithSeat returns a context that carries the seat of its request.
func WithSeat(ctx context.Context, s *Seat) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// Outside returns how long the request has waited in Wait. Waits at the same time count once.
func (s *Seat) Outside() time.Duration { return s.outside.total() }

// stopwatch measures for how long at least one of several goroutines waits. Its zero value is ready.
type stopwatch struct {
	mu      sync.Mutex
	waiting int
	since   time.Time // when the first of them began
	passed  time.Duration
}

func (w *stopwatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting++; w.waiting == 1 {
		w.since = time.Now()
	}
}

func (w *stopwatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting--; w.waiting == 0 {
		w.passed += time.Since(w.since)
	}
}

func (w *stopwatch) total() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.passed
}

// ErrFull is the error of a request that would have to wait when the budget for waiting
// requests is spent.
var ErrFull = errors.New("too many requests are waiting for their clients, please try again later")

// Hold calls Seat.Hold for the request of the context, if it has a seat. The error is ErrFull. Only the request's
// goroutine may call it.
func Hold(ctx context.Context, bytes int64) error {
	if s, _ := ctx.Value(contextKey{}).(*Seat); s != nil && !s.Hold(bytes) {
		return ErrFull
	}
	return nil
}

// SeatBytes is the size of a body, or of equivalent work, for which a request takes one seat. It takes one more for each
// further SeatBytes, because a write takes up to 20 times the memory of its body.
const SeatBytes = 128 << 10

// Widen takes as many seats for the request of the context as for a request with a body of so many bytes, unless the
// request has as many. It may wait for the seats, and for other large requests; see Seat.Widen. The error is ErrFull, or
// that of the context. If the context has no seat, or that of an exempt level, Widen does nothing.
func Widen(ctx context.Context, bytes int) error {
	s, _ := ctx.Value(contextKey{}).(*Seat)
	if s == nil || bytes <= SeatBytes || !s.narrower(1+bytes/SeatBytes) {
		return nil
	}
	if !s.Suspend(0) {
		return ErrFull
	}
	s.Widen(1 + bytes/SeatBytes)
	return s.Resume(ctx)
}

// narrower reports whether a request of a level with queues has fewer seats than it would take with a width, or is not
// large yet.
func (s *Seat) narrower(width int) bool {
	if s.l.exempt {
		return false
	}
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.width < min(width, s.l.limit) || !s.large && s.l.g.large > 0
}

// User returns the name of the user of the context's request; "" if the context has no seat.
func User(ctx context.Context) string {
	if s, _ := ctx.Value(contextKey{}).(*Seat); s != nil {
		return s.name
	}
	return ""
}

// Wait calls f, which waits for something outside of this server, without the seats of the
// context's request. bytes estimates the memory that the request holds meanwhile. If the context
// has no seat (work of the server itself), Wait just calls f.
//
// Several goroutines of a request may call Wait at once, if nothing else uses its seat meanwhile.
// The request has no seats while any of them waits.
func Wait(ctx context.Context, bytes int64, f func() error) error {
	s, _ := ctx.Value(contextKey{}).(*Seat)
	if s == nil {
		return f()
	}
	if !s.Suspend(bytes) {
		return ErrFull
	}
	s.outside.begin()
	err := f()
	s.outside.end()
	if again := s.resume(ctx, bytes); err == nil {
		err = again
	}
	return err
}
