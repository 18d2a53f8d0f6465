package fairness

import (
	"math"
	"time"
)

// Demand describes the seats that the requests of a level had or waited for, between two
// adjustments of the limits.
type Demand struct {
	HighWatermark int
	// Average and Deviation weigh by time. The deviation is the standard deviation.
	Average, Deviation float64
	// Smoothed is the average and the deviation together. It rises at once, and falls by
	// half in five minutes.
	Smoothed float64
	// Target is the number of seats that the level would get if there were enough for all.
	Target float64
}

// smoothing is how much of Demand.Smoothed stays from one adjustment to the next.
const smoothing = 0.977

// TimeHistogram shows for how long a ratio was in which bucket.
type TimeHistogram struct {
	// Bounds are the upper bounds of the buckets, inclusive. There is one more bucket above
	// the last one.
	Bounds []float64
	// Nanos is the time in each bucket.
	Nanos []uint64
	// Sum is the integral of the ratio over the nanoseconds.
	Sum float64

	at    int // the bucket of the ratio
	ratio float64
}

// The bounds are those of kube-apiserver's metrics.
var (
	seatBounds    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1}
	requestBounds = []float64{0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 1}
	demandBounds  = []float64{0.2, 0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.7, 2, 2.8, 4, 6}
)

func (h *TimeHistogram) advance(d time.Duration) {
	h.Nanos[h.at] += uint64(d)
	h.Sum += h.ratio * float64(d)
}

func (h *TimeHistogram) set(ratio float64) {
	h.ratio = ratio
	for h.at > 0 && ratio <= h.Bounds[h.at-1] {
		h.at--
	}
	for h.at < len(h.Bounds) && ratio > h.Bounds[h.at] {
		h.at++
	}
}

func (h *TimeHistogram) copy() TimeHistogram {
	c := *h
	c.Nanos = append([]uint64(nil), h.Nanos...)
	return c
}

// usage are statistics of a level over time. Its mu guards them.
type usage struct {
	// Integrals over seconds since the last adjustment: of 1, of the demand, of its square.
	seconds, sum, squares float64
	most                  int

	seats, executing, waiting, demand TimeHistogram
	perSeat, perPlace                 float64 // 1 / seats, 1 / places in queues
}

// limit updates the ratios for a new limit of the level.
func (u *usage) limit(l *level, limit int) {
	if u.seats.Bounds == nil {
		for h, b := range map[*TimeHistogram][]float64{&u.seats: seatBounds, &u.executing: requestBounds, &u.waiting: requestBounds, &u.demand: demandBounds} {
			h.Bounds, h.Nanos = b, make([]uint64, len(b)+1)
		}
	}
	if limit == 0 {
		limit = max(1, int(math.Round(float64(l.g.total)/10)))
	}
	u.perSeat = 1 / float64(limit)
	u.perPlace = 1 / float64(max(1, l.c.Queues)*max(1, l.c.QueueLength))
	u.changed(l)
}

// wanted is the demand: seats in use, and those that requests wait for.
func (l *level) wanted() int { return l.inUse + l.waitingSeats }

// changed updates the ratios after requests came or left.
func (u *usage) changed(l *level) {
	w := l.wanted()
	u.most = max(u.most, w)
	if u.seats.Bounds == nil {
		return
	}
	u.seats.set(float64(l.inUse) * u.perSeat)
	u.executing.set(float64(l.executing) * u.perSeat)
	u.waiting.set(float64(l.waiting) * u.perPlace)
	u.demand.set(float64(w) * u.perSeat)
}

// advance adds a time during which nothing changed.
func (u *usage) advance(l *level, d time.Duration) {
	w, s := float64(l.wanted()), d.Seconds()
	u.seconds += s
	u.sum += w * s
	u.squares += w * w * s
	if u.seats.Bounds == nil {
		return
	}
	u.seats.advance(d)
	u.executing.advance(d)
	u.waiting.advance(d)
	u.demand.advance(d)
}

// measure updates the demand of the level, and begins a new period. It returns the high
// watermark of the last one. Gate.mu is held.
func (l *level) measure() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	u, d := &l.usage, &l.stats
	if l.exempt {
		l.observe(l.g.now())
		u.most = int(l.ex.most.Swap(l.ex.seats.Load()))
	} else {
		l.sync(l.g.now())
	}
	d.HighWatermark = u.most
	if u.seconds > 0 {
		d.Average = u.sum / u.seconds
		d.Deviation = math.Sqrt(max(0, u.squares/u.seconds-d.Average*d.Average))
		envelope := d.Average + d.Deviation
		d.Smoothed = max(envelope, smoothing*d.Smoothed+(1-smoothing)*envelope)
	}
	u.seconds, u.sum, u.squares, u.most = 0, 0, 0, l.wanted()
	return d.HighWatermark
}
