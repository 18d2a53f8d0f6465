package exposition

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"
)

// Buckets are the upper bounds of the buckets of histograms. They are immutable.
type Buckets struct {
	bounds []int64  // in units
	labels []string // `le="0.005"} `, with that of +Inf
	per    float64  // units in one of the metric's
}

// Seconds returns the buckets of durations with bounds in seconds, which grow. Observations are in nanoseconds.
func Seconds(bounds ...float64) *Buckets { return newBuckets(float64(time.Second), bounds) }

// Numbers returns the buckets of numbers, such as bytes, with bounds that grow.
func Numbers(bounds ...float64) *Buckets { return newBuckets(1, bounds) }

func newBuckets(per float64, bounds []float64) *Buckets {
	if !slices.IsSorted(bounds) || len(bounds) == 0 {
		panic(fmt.Sprintf("the bounds %v do not grow", bounds))
	}
	b := &Buckets{per: per}
	for _, bound := range bounds {
		b.bounds = append(b.bounds, int64(math.Round(bound*per)))
		b.labels = append(b.labels, Labels("le", strconv.FormatFloat(bound, 'g', -1, 64))+"} ")
	}
	b.labels = append(b.labels, Labels("le", "+Inf")+"} ")
	return b
}

// Histogram counts observations in buckets. All methods are safe for concurrent use, and allocate nothing.
type Histogram struct {
	buckets *Buckets
	counts  []atomic.Uint64 // of each bucket alone; the last one counts values above all bounds
	sum     atomic.Int64    // in units
}

// New returns a histogram.
func (b *Buckets) New() *Histogram {
	return &Histogram{buckets: b, counts: make([]atomic.Uint64, len(b.bounds)+1)}
}

// Observe counts an observation: nanoseconds if the buckets are of Seconds.
func (h *Histogram) Observe(v int64) {
	i := 0
	for bounds := h.buckets.bounds; i < len(bounds) && v > bounds[i]; i++ {
	}
	h.counts[i].Add(1)
	h.sum.Add(v)
}

// Sum returns the sum of all observations: seconds if the buckets are of Seconds.
func (h *Histogram) Sum() float64 { return float64(h.sum.Load()) / h.buckets.per }

// Empty reports whether there were no observations.
func (h *Histogram) Empty() bool {
	for i := range h.counts {
		if h.counts[i].Load() > 0 {
			return false
		}
	}
	return true
}

// Count returns how many observations there were.
func (h *Histogram) Count() (n uint64) {
	for i := range h.counts {
		n += h.counts[i].Load()
	}
	return n
}
