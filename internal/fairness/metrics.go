package fairness

import (
	"sync/atomic"
	"time"
)

// FlowMetrics count the requests of one flow schema at one level. Its methods are safe for concurrent
// use, and a nil FlowMetrics counts nothing. Make one with NewFlowMetrics.
type FlowMetrics struct {
	level, schema string

	queuedRequests, queuedSeats       atomic.Int64
	executingRequests, executingSeats atomic.Int64
	started                           atomic.Uint64
	rejected                          [reasons]atomic.Uint64
	unaccommodated                    atomic.Uint64

	waitedToExecute, waitedInVain histogram
	executedRequests, initialized histogram
	estimated, lengths, watchers  histogram
}

// Reason is why a request was rejected.
type Reason int

// The reasons.
const (
	QueueFull Reason = iota
	ConcurrencyLimit
	TimeOut
	Cancelled
	TooManyWatches
	reasons
)

// String returns the reason as metrics name it.
func (r Reason) String() string {
	return [...]string{"queue-full", "concurrency-limit", "time-out", "cancelled", "too-many-watches"}[r]
}

// reasonOf returns the reason of an error of Acquire.
func reasonOf(err error) Reason {
	switch err {
	case ErrQueueFull:
		return QueueFull
	case ErrConcurrencyLimit:
		return ConcurrencyLimit
	case ErrTimeout:
		return TimeOut
	case ErrWatches:
		return TooManyWatches
	}
	return Cancelled
}

// The bounds of histograms are those of kube-apiserver's metrics.
var (
	secondBounds = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	widthBounds  = []float64{1, 2, 4, 8, 16, 32, 64, 100}
	lengthBounds = []float64{0, 10, 25, 50, 100, 250, 500, 1000}
	watchBounds  = []float64{0, 1, 10, 100, 1000, 10000}
)

// NewFlowMetrics returns the metrics of a flow schema at a level.
func NewFlowMetrics(level, schema string) *FlowMetrics {
	t := &FlowMetrics{level: level, schema: schema}
	for _, h := range []*histogram{&t.waitedToExecute, &t.waitedInVain, &t.executedRequests, &t.initialized} {
		h.bounds = secondBounds
	}
	t.estimated.bounds, t.lengths.bounds, t.watchers.bounds = widthBounds, lengthBounds, watchBounds
	return t
}

// Level returns the name of the level.
func (t *FlowMetrics) Level() string { return t.level }

// Schema returns the name of the flow schema.
func (t *FlowMetrics) Schema() string { return t.schema }

// arrived counts the length of its queue when a request has joined it.
func (t *FlowMetrics) arrived(queue int) {
	if t != nil {
		t.lengths.observe(float64(queue), uint64(queue))
	}
}

// Watchers counts a write that n watches may see.
func (t *FlowMetrics) Watchers(n int) {
	if t != nil {
		t.watchers.observe(float64(n), uint64(n))
	}
}

// notAccommodated counts a request that stays in its queue, since it needs more seats than are free.
func (t *FlowMetrics) notAccommodated() {
	if t != nil {
		t.unaccommodated.Add(1)
	}
}

func (t *FlowMetrics) queued(requests, seats int) {
	if t != nil {
		t.queuedRequests.Add(int64(requests))
		t.queuedSeats.Add(int64(requests * seats))
	}
}

func (t *FlowMetrics) executing(requests, seats int) {
	if t != nil {
		t.executingRequests.Add(int64(requests))
		t.executingSeats.Add(int64(requests * seats))
	}
}

func (t *FlowMetrics) dispatched() {
	if t != nil {
		t.started.Add(1)
	}
}

func (t *FlowMetrics) reject(r Reason) {
	if t != nil {
		t.rejected[r].Add(1)
	}
}

func (t *FlowMetrics) waited(executed bool, d time.Duration) {
	switch {
	case t == nil:
	case executed:
		t.waitedToExecute.observe(d.Seconds(), uint64(d))
	default:
		t.waitedInVain.observe(d.Seconds(), uint64(d))
	}
}

func (t *FlowMetrics) executed(watch bool, d time.Duration) {
	switch {
	case t == nil:
	case watch:
		t.initialized.observe(d.Seconds(), uint64(d))
	default:
		t.executedRequests.observe(d.Seconds(), uint64(d))
	}
}

func (t *FlowMetrics) widths(seats int) {
	if t != nil {
		t.estimated.observe(float64(seats), uint64(seats))
	}
}

// histogram counts values by their size. The sum has a unit of its own.
type histogram struct {
	bounds []float64
	counts [14]atomic.Uint64 // of one bucket each; the last one in use has no bound
	sum    atomic.Uint64
}

func (h *histogram) observe(value float64, sum uint64) {
	i := 0
	for i < len(h.bounds) && value > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	if sum != 0 {
		h.sum.Add(sum)
	}
}

// Histogram is a copy of a histogram, with cumulative buckets.
type Histogram struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64 // by upper bound: how many values are not greater
}

// copy returns a copy, whose sum is divided by unit.
func (h *histogram) copy(unit float64) Histogram {
	c := Histogram{Buckets: make(map[float64]uint64, len(h.bounds))}
	for i, b := range h.bounds {
		c.Count += h.counts[i].Load()
		c.Buckets[b] = c.Count
	}
	c.Count += h.counts[len(h.bounds)].Load()
	c.Sum = float64(h.sum.Load()) / unit
	return c
}

// FlowSnapshot is a copy of FlowMetrics.
type FlowSnapshot struct {
	Level, Schema                     string
	QueuedRequests, QueuedSeats       int64
	ExecutingRequests, ExecutingSeats int64
	Dispatched                        uint64
	// NotAccommodated counts the times that free seats were too few for the request that is next.
	NotAccommodated uint64
	// Rejected has a count for each Reason.
	Rejected [reasons]uint64
	// WaitedToExecute and WaitedInVain are times in a queue, in seconds.
	WaitedToExecute, WaitedInVain Histogram
	// Executed are execution times of requests other than watches, Initialized those of
	// watches, in seconds.
	Executed, Initialized Histogram
	// Seats are the estimated widths of requests.
	Seats Histogram
	// QueueLengths are the lengths of queues that requests have joined.
	QueueLengths Histogram
	// Watchers are the watches that may see a write.
	Watchers Histogram
}

// State returns a copy.
func (t *FlowMetrics) State() FlowSnapshot {
	const seconds = float64(time.Second)
	s := FlowSnapshot{
		Level: t.level, Schema: t.schema,
		QueuedRequests: t.queuedRequests.Load(), QueuedSeats: t.queuedSeats.Load(),
		ExecutingRequests: t.executingRequests.Load(), ExecutingSeats: t.executingSeats.Load(),
		Dispatched: t.started.Load(), NotAccommodated: t.unaccommodated.Load(),
		WaitedToExecute: t.waitedToExecute.copy(seconds), WaitedInVain: t.waitedInVain.copy(seconds),
		Executed: t.executedRequests.copy(seconds), Initialized: t.initialized.copy(seconds),
		Seats: t.estimated.copy(1), QueueLengths: t.lengths.copy(1), Watchers: t.watchers.copy(1),
	}
	for i := range s.Rejected {
		s.Rejected[i] = t.rejected[i].Load()
	}
	return s
}
