// Package series has metrics whose labels have values that clients choose, such as the names of policies.
// Clients create and delete objects with new names forever, so each metric has a limit of series.
package series

import (
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// Most is how many series a metric has.
	Most = 1000
	// mostLabels is how many labels a metric may have.
	mostLabels = 5
)

// Vector is a metric with labels. It has the Most series that were used last, or fewer: when there would be
// more, the half that was not used for the longest time is dropped. A series that is used again after that
// begins at zero. All methods are safe for concurrent use.
type Vector[M any] struct {
	vector[M]
	labels int

	mu    sync.Mutex
	used  map[key]*use[M] // guarded by mu, as is clock
	clock uint64          // counts calls of With
}

// vector is a prometheus.CounterVec or the like.
type vector[M any] interface {
	prometheus.Collector
	WithLabelValues(values ...string) M
	DeleteLabelValues(values ...string) bool
}

// key is the values of the labels.
type key [mostLabels]string

type use[M any] struct {
	metric M
	last   uint64 // Vector.clock
}

// Counters returns a metric of counters.
func Counters(o prometheus.CounterOpts, labels []string) *Vector[prometheus.Counter] {
	return newVector[prometheus.Counter](prometheus.NewCounterVec(o, labels), labels)
}

// Histograms returns a metric of histograms.
func Histograms(o prometheus.HistogramOpts, labels []string) *Vector[prometheus.Observer] {
	return newVector[prometheus.Observer](prometheus.NewHistogramVec(o, labels), labels)
}

func newVector[M any](v vector[M], labels []string) *Vector[M] {
	if len(labels) > mostLabels {
		panic(fmt.Sprintf("a metric has at most %d labels, not %d", mostLabels, len(labels)))
	}
	return &Vector[M]{vector: v, labels: len(labels), used: map[key]*use[M]{}}
}

// With returns the series with the values of the labels, in their order. The caller uses it at once and does
// not keep it.
func (v *Vector[M]) With(values ...string) M {
	var k key
	copy(k[:], values)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clock++
	if u := v.used[k]; u != nil {
		u.last = v.clock
		return u.metric
	}
	if len(v.used) >= Most {
		v.forget()
	}
	m := v.WithLabelValues(slices.Clone(values)...) // a copy, so that a call for a known series allocates nothing
	v.used[k] = &use[M]{m, v.clock}
	return m
}

// forget drops the half of the series that was not used for the longest time. The caller holds mu.
func (v *Vector[M]) forget() {
	times := make([]uint64, 0, len(v.used))
	for _, u := range v.used {
		times = append(times, u.last)
	}
	slices.Sort(times)
	for k, u := range v.used {
		if u.last < times[len(times)/2] {
			v.DeleteLabelValues(k[:v.labels]...)
			delete(v.used, k)
		}
	}
}
