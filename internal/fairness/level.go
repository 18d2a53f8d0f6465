package fairness

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// level is a priority level. See the package comment for the algorithm.
type level struct {
	g      *Gate
	name   string
	exempt bool

	bytes, watches, connections int64 // amounts of its requests in the budgets; guarded by their mu

	// Gate.mu guards these fields. Changes of c, lower, upper and nominal also take mu.
	c                     Level
	nominal, lower, upper int
	replaced              bool // another level has its name

	ex exempt // counts of an exempt level

	draining atomic.Bool

	mu       sync.Mutex
	limit    int  // of seats; of an exempt level: the seats that are set aside for it
	gone     bool // no request may enter any more
	requests int  // that have entered and not left, those without a seat included

	last   time.Duration // when the fields below were brought up to date
	r      float64       // the virtual clock R, in seat-seconds
	epoch  uint64        // counts how often R began at zero again
	active int           // queues with requests that wait or execute
	inUse  int           // seats, those that linger included

	executing, waiting             int // requests
	executingWrites, waitingWrites int
	waitingSeats                   int
	running                        list // of the seats in use

	queues     []*queue
	resumes    []*queue  // those of a level without queues, where requests wait in Resume
	order      queueHeap // queues whose next requests are small
	largeOrder queueHeap // those whose next requests are large
	large      int       // large requests that execute
	arrived    uint64    // requests that were assigned to a queue
	dispatches uint64    // requests that got seats

	lingering lingerHeap
	timer     *time.Timer // fires when the first seat ceases to linger, while requests wait

	counts Counts
	pause  pause
	stats  Demand // guarded by Gate.mu
	usage  usage
}

// queue holds the requests of some flows. The level's mu guards its fields.
type queue struct {
	index             int
	start             float64 // S, the virtual time at which its next request starts
	used              float64 // S, had the queue never been moved up to R; of the epoch
	epoch             uint64
	resuming, waiting list // those that resume go first
	waitingSeats      int
	waitingWork       float64 // seat-seconds
	executing, inUse  int
	lastDispatch      uint64 // level.dispatches at its last dispatch
	pos               int    // in one of the level's orders; -1: it is in none
	largeHead         bool   // it is in level.largeOrder
}

// guess is the assumed time that a request executes, until it has ended.
const guess = 0.003 // seconds

// resumeQueues is how many queues a level without queues has for requests that resume.
const resumeQueues = 16

func newLevel(g *Gate, c Level) *level {
	l := &level{g: g, name: c.Name, exempt: c.Exempt, last: g.now(), pause: newPause()}
	g.bytes.join()
	g.watches.join()
	l.configure(c)
	return l
}

// configure sets the configuration. Surplus queues drain: they are still in the order.
func (l *level) configure(c Level) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sync(l.g.now())
	l.c = c
	for i := len(l.queues); i < c.Queues; i++ {
		l.queues = append(l.queues, newQueue(i))
	}
	l.queues = l.queues[:c.Queues:c.Queues]
}

func newQueue(i int) *queue { return &queue{index: i, pos: -1} }

// remove reports whether the level has drained, and closes it then. Gate.mu is held.
func (l *level) remove() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.draining.Load() || l.requests > 0 || l.exempt && !l.ex.close() {
		return false
	}
	l.gone = true
	l.g.bytes.leave()
	l.g.watches.leave()
	return true
}

// setNominal sets the nominal limit, and those that follow from it; Gate.mu is held.
func (l *level) setNominal(seats, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	percent := func(p int) int { return int(math.Round(float64(seats) * float64(p) / 100)) }
	borrow := total
	if b := l.c.BorrowingLimitPercent; b != nil {
		borrow = percent(*b)
	}
	l.nominal, l.lower, l.upper = seats, seats-percent(l.c.LendablePercent), seats+borrow
}

// setLimit sets the current limit, and assigns seats that are free now.
func (l *level) setLimit(limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sync(l.g.now())
	l.limit = limit
	l.usage.limit(l, limit)
	l.dispatch()
}

// sync brings the clocks and the statistics up to now; mu is held. Each change of the level
// begins with it.
func (l *level) sync(now time.Duration) {
	for len(l.lingering) > 0 && l.lingering[0].until <= now {
		e := l.lingering.pop()
		l.advance(e.until)
		l.inUse -= e.seats
		e.queue.inUse -= e.seats
	}
	l.advance(now)
}

// advance moves the clocks; mu is held.
func (l *level) advance(now time.Duration) {
	d := now - l.last
	if d <= 0 {
		return
	}
	l.last = now
	if l.active > 0 {
		l.r += d.Seconds() * float64(min(l.inUse+l.waitingSeats, l.limit)) / float64(l.active)
	} else if l.r != 0 { // no queue refers to it
		l.r = 0
		l.epoch++
	}
	l.usage.advance(l, d)
}

// fits reports whether a request of so many seats may execute beside the others; mu is held.
// One that is wider than the level executes alone.
func (l *level) fits(seats int) bool {
	if seats > l.limit {
		return l.executing == 0
	}
	return l.inUse+seats <= l.limit
}

// enter admits a new request: it has its seats afterwards, or waits in a queue. mu is held.
func (l *level) enter(s *Seat) error {
	now := l.g.now()
	l.sync(now)
	s.arrived = now
	if s.final > l.limit && l.limit > 0 { // the same work on fewer seats
		s.extra = s.extra * time.Duration(s.final) / time.Duration(l.limit)
		s.final = l.limit
	}
	s.work = float64(s.width)*guess + float64(s.final)*s.extra.Seconds()
	switch {
	case l.c.Queues == 0:
		if l.waiting > 0 || !l.fits(s.seats()) {
			return ErrConcurrencyLimit
		}
		s.queue = l.resumeQueue(s.flow)
	default:
		s.queue = l.choose(s.flow)
		if l.mustWait(s) {
			return l.wait(s)
		}
		s.metrics.arrived(0)
	}
	l.activate(s.queue)
	l.begin(s)
	return nil
}

// wait puts a new request into its queue; mu is held.
func (l *level) wait(s *Seat) error {
	if s.queue.waiting.len >= l.c.QueueLength || !l.g.bytes.take(s.holder(), queuedBytes) {
		return ErrQueueFull
	}
	s.waits = queuedBytes
	l.enqueue(s, &s.queue.waiting)
	s.metrics.arrived(s.queue.waiting.len)
	l.dispatch()
	return nil
}

// activate prepares a queue for a request, and returns the virtual time of the arrival; mu is held.
// A queue without waiting requests has saved nothing up.
//
// An executing request is charged when it ends. So queues with long requests lag behind R, and a
// queue that began at R would wait until they have caught up. It begins right behind the one that
// is next, but not before the work that it has done itself: otherwise flows whose requests come one
// by one would all begin there, and a flow that always has requests in its queue would hardly get a
// seat.
func (l *level) activate(q *queue) float64 {
	switch {
	case q.pos >= 0:
	case q.executing == 0:
		q.start = l.r
		if q.epoch != l.epoch {
			q.epoch, q.used = l.epoch, 0
		}
		if first := l.first(); first != nil && !l.g.startAtR {
			q.start = min(l.r, max(q.used, first.finish()))
			q.used = q.start
		}
		l.active++
		return q.start
	default:
		q.start = max(q.start, l.r)
	}
	return l.r
}

// enqueue adds a request to a list of its queue; mu is held.
func (l *level) enqueue(s *Seat, to *list) {
	q := s.queue
	s.arrivedR = l.activate(q)
	s.ready = make(chan struct{})
	s.place = to
	to.push(s)
	q.waitingSeats += s.seats()
	q.waitingWork += s.work
	l.waiting++
	l.waitingWrites += s.write
	l.waitingSeats += s.seats()
	s.metrics.queued(1, s.seats())
	l.reorder(q)
	l.usage.changed(l)
}

// dequeue removes a request from its queue; mu is held.
func (l *level) dequeue(s *Seat) {
	q := s.queue
	s.place.remove(s)
	s.place = nil
	q.waitingSeats -= s.seats()
	q.waitingWork -= s.work
	if q.head() == nil {
		q.waitingWork = 0 // no rounding error stays
	}
	l.waiting--
	l.waitingWrites -= s.write
	l.waitingSeats -= s.seats()
	s.metrics.queued(-1, s.seats())
}

// leave removes a request that does not wait any more; mu is held.
func (l *level) leave(s *Seat) {
	l.dequeue(s)
	l.settle(s.queue)
	l.dispatch()
}

// settle updates the place of a queue in the order after a change; mu is held.
func (l *level) settle(q *queue) {
	l.reorder(q)
	if q.executing == 0 && q.pos < 0 {
		l.active--
	}
	l.usage.changed(l)
}

// begin gives a request its seats; mu is held.
func (l *level) begin(s *Seat) {
	q := s.queue
	s.seated, s.since = true, l.last
	if s.large {
		s.counted = true
		l.large++
	}
	l.running.push(s)
	l.executing++
	l.executingWrites += s.write
	q.executing++
	l.inUse += s.seats()
	q.inUse += s.seats()
	l.dispatches++
	q.start, q.used, q.lastDispatch = q.start+s.work, q.used+s.work, l.dispatches
	if !s.began {
		s.began, s.first = true, l.last
		l.counts.Dispatched++
		s.metrics.dispatched()
	}
	s.metrics.executing(1, s.seats())
	l.usage.changed(l)
}

// end takes the seats of a request; mu is held. If the request is over, its seats linger for
// the extra time.
func (l *level) end(s *Seat, over bool) {
	q := s.queue
	s.seated = false
	l.endLarge(s)
	l.running.remove(s)
	l.executing--
	l.executingWrites -= s.write
	q.executing--
	unspent := float64(s.width) * (guess - (l.last - s.since).Seconds())
	q.start, q.used = q.start-unspent, q.used-unspent
	s.metrics.executing(-1, s.seats())
	if over && s.extra > 0 {
		l.lingering.push(linger{l.last + s.extra, s.seats(), q})
	} else {
		l.inUse -= s.seats()
		q.inUse -= s.seats()
	}
	if !over {
		s.work = float64(s.width) * guess // of the rest; the final work has been counted
	}
	l.settle(q)
	l.dispatch()
}

// dispatch gives seats to waiting requests as long as there are some; mu is held.
func (l *level) dispatch() {
	for l.inUse < l.limit {
		q := l.next()
		if q == nil {
			break
		}
		s := q.head()
		if !l.fits(s.seats()) {
			l.counts.NotAccommodated++
			s.metrics.notAccommodated()
			break
		}
		l.dequeue(s)
		l.begin(s)
		l.settle(q)
		close(s.ready)
	}
	l.setTimer()
}

// setTimer makes sure that waiting requests get the seats that linger; mu is held.
func (l *level) setTimer() {
	if l.waiting == 0 || len(l.lingering) == 0 {
		return
	}
	d := l.lingering[0].until - l.last
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.expire)
		return
	}
	l.timer.Reset(d)
}

// expire assigns seats that do not linger any more.
func (l *level) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sync(l.g.now())
	l.dispatch()
}

// reorder applies the lower bound of a queue's start, and updates its place in the order; mu is
// held.
func (l *level) reorder(q *queue) {
	head := q.head()
	if head != nil {
		q.start = max(q.start, q.oldest())
	}
	if q.pos >= 0 {
		in := l.orderOf(q.largeHead)
		if head != nil && head.large == q.largeHead {
			in.fix(q)
			return
		}
		in.remove(q)
	}
	if head != nil {
		q.largeHead = head.large
		l.orderOf(head.large).push(q)
	}
}

// orderOf returns the order of the queues whose next requests are large, or of the others.
func (l *level) orderOf(large bool) *queueHeap {
	if large {
		return &l.largeOrder
	}
	return &l.order
}

// first returns the queue with the earliest expected finish, or nil if no request waits; mu is held.
func (l *level) first() *queue {
	switch {
	case len(l.largeOrder) == 0 && len(l.order) == 0:
		return nil
	case len(l.largeOrder) == 0:
		return l.order[0]
	case len(l.order) == 0 || l.largeOrder[0].before(l.order[0]):
		return l.largeOrder[0]
	}
	return l.order[0]
}

// next returns the queue whose next request is the next to execute, or nil; mu is held.
func (l *level) next() *queue {
	if !l.fullOfLarge() {
		return l.first()
	}
	if len(l.order) == 0 {
		return nil
	}
	return l.order[0]
}

// fullOfLarge reports whether as many large requests execute as may; mu is held.
func (l *level) fullOfLarge() bool { return l.g.large > 0 && l.large >= l.g.large && l.c.Queues > 0 }

// mustWait reports whether a request with a queue has to wait for others; mu is held.
func (l *level) mustWait(s *Seat) bool {
	if l.inUse >= l.limit || !l.fits(s.seats()) {
		return true
	}
	if l.fullOfLarge() {
		return s.large || len(l.order) > 0
	}
	return l.waiting > 0
}

// endLarge counts a large request as one that does not execute any more; mu is held.
func (l *level) endLarge(s *Seat) {
	if s.counted {
		s.counted = false
		l.large--
	}
}

// head is the request of the queue that is next, or nil.
func (q *queue) head() *Seat {
	if q.resuming.first != nil {
		return q.resuming.first
	}
	return q.waiting.first
}

// oldest is the virtual time of the arrival of the oldest request that waits.
func (q *queue) oldest() float64 {
	t := math.Inf(1)
	for _, s := range []*Seat{q.resuming.first, q.waiting.first} {
		if s != nil {
			t = min(t, s.arrivedR)
		}
	}
	return t
}

// finish is the virtual time at which the next request of the queue is expected to end.
func (q *queue) finish() float64 { return q.start + q.head().work }

// choose returns the queue of the flow's hand with the least work; mu is held. Those with
// equal work take turns.
func (l *level) choose(flow uint64) *queue {
	var cards [maxHand]int
	hand := deal(flow, l.c.Queues, min(l.c.HandSize, l.c.Queues), &cards)
	l.arrived++
	at := int(l.arrived % uint64(len(hand)))
	best := l.queues[hand[at]]
	if l.waiting == 0 {
		return best
	}
	for range hand[1:] {
		if at++; at == len(hand) {
			at = 0
		}
		if q := l.queues[hand[at]]; q.waitingWork < best.waitingWork {
			best = q
		}
	}
	return best
}

// resumeQueue returns the queue of a flow in a level that has no queues for new requests; mu is
// held.
func (l *level) resumeQueue(flow uint64) *queue {
	if l.resumes == nil {
		for i := range resumeQueues {
			l.resumes = append(l.resumes, newQueue(i))
		}
	}
	return l.resumes[flow%resumeQueues]
}

// reject counts a request that did not enter.
func (l *level) reject(s *Seat, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(s, err)
}

// count counts a request that is refused; mu is held.
func (l *level) count(s *Seat, err error) {
	r := reasonOf(err)
	s.metrics.reject(r)
	if r != Cancelled {
		l.pause.refuse(l.g.now())
	}
	switch r {
	case TimeOut:
		l.counts.TimedOut++
	case Cancelled:
		l.counts.Cancelled++
	default:
		l.counts.Rejected++
	}
}
