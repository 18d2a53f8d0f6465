package series_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/series"
)

// TestManyNames: names that are used once are dropped, and the one that is used all the time counts on.
func TestManyNames(t *testing.T) {
	counters := series.Counters(prometheus.CounterOpts{Name: "c"}, []string{"name", "result"})
	histograms := series.Histograms(prometheus.HistogramOpts{Name: "h"}, []string{"name"})
	const names = 10 * series.Most
	for i := range names {
		counters.With("steady", "yes").Inc()
		counters.With(fmt.Sprint("new-", i), "no").Inc()
		histograms.With(fmt.Sprint("new-", i)).Observe(1)
		if i%997 != 0 && i != names-1 {
			continue
		}
		for what, v := range map[string]prometheus.Collector{"counters": counters, "histograms": histograms} {
			if n := testutil.CollectAndCount(v); n > series.Most || i > series.Most && n < series.Most/2 {
				t.Fatalf("%d %s after %d names", n, what, i)
			}
		}
	}
	if got := testutil.ToFloat64(counters.With("steady", "yes")); got != names {
		t.Errorf("the series that was used all the time counted %v, want %d", got, names)
	}
	if got := testutil.ToFloat64(counters.With("new-0", "no")); got != 0 {
		t.Errorf("a series that was dropped counted %v", got)
	}
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	v := series.Counters(prometheus.CounterOpts{Name: "c"}, []string{"name"})
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range series.Most {
				v.With(fmt.Sprint(g, i)).Inc()
				v.With("all").Inc()
			}
		})
	}
	all.Go(func() { testutil.CollectAndCount(v) })
	all.Wait()
	if n := testutil.CollectAndCount(v); n > series.Most {
		t.Errorf("%d series", n)
	}
}

// TestAllocations checks that the use of a known series, which each policy of a request has, allocates nothing.
func TestAllocations(t *testing.T) {
	v := series.Counters(prometheus.CounterOpts{Name: "c"}, []string{"name", "result"})
	if n := testing.AllocsPerRun(100, func() { v.With("steady", "yes").Inc() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
