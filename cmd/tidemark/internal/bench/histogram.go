package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// subBits fixes the precision: a bucket is at most 1/128 of its value wide.
	subBits    = 7
	subBuckets = 1 << subBits
	buckets    = (64 - subBits) * subBuckets
)

// histogram counts durations in 58 KB, whatever their number, and gives quantiles
// that are right to 0.8 %. Its zero value is empty. It is safe for concurrent use.
type histogram struct {
	counts [buckets]atomic.Int64
	max    atomic.Int64
}

// bucketOf maps nanoseconds to a bucket: exactly below 2^subBits, and from there by
// the leading bits.
func bucketOf(nanos uint64) int {
	shift := max(bits.Len64(nanos)-subBits-1, 0)
	return shift*subBuckets + int(nanos>>shift)
}

// floorOf is the least value of a bucket.
func floorOf(bucket int) uint64 {
	if bucket < 2*subBuckets {
		return uint64(bucket)
	}
	shift := bucket/subBuckets - 1
	return uint64(bucket-shift*subBuckets) << shift
}

// record counts one duration; one below zero counts as zero.
func (h *histogram) record(d time.Duration) {
	nanos := max(int64(d), 0)
	h.counts[bucketOf(uint64(nanos))].Add(1)
	for {
		old := h.max.Load()
		if nanos <= old || h.max.CompareAndSwap(old, nanos) {
			return
		}
	}
}

// Latency is a distribution of durations, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// latency returns the quantiles, nil when nothing was recorded.
func (h *histogram) latency() *Latency {
	var total int64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	if total == 0 {
		return nil
	}
	return &Latency{
		P50: h.quantile(0.50, total), P90: h.quantile(0.90, total), P99: h.quantile(0.99, total),
		Max: float64(h.max.Load()) / 1e6,
	}
}

// quantile is the middle of the bucket that holds the value of that rank, in
// milliseconds, and never above the maximum.
func (h *histogram) quantile(q float64, total int64) float64 {
	rank := int64(q * float64(total-1))
	for i := range h.counts {
		if rank -= h.counts[i].Load(); rank < 0 {
			low, high := floorOf(i), floorOf(i+1)-1
			return min(float64(low+(high-low)/2), float64(h.max.Load())) / 1e6
		}
	}
	return float64(h.max.Load()) / 1e6
}
