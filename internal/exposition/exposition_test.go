package exposition_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// TestFormat compares the text with the output of Prometheus' own library for the same
// observations.
func TestFormat(t *testing.T) {
	const help, label = "Time\nto \\wait.", "a\"b\\c\nd"
	bounds := []float64{0.005, 0.1, 1.25, 60}
	theirs := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "wait_seconds", Help: help, Buckets: bounds}, []string{"a", "verb"})
	ours := exposition.Seconds(bounds...).New()
	for _, d := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 5*time.Millisecond + 1, time.Second, time.Minute, time.Hour} {
		ours.Observe(int64(d))
		theirs.WithLabelValues(label, "GET").Observe(d.Seconds())
	}
	sizes := exposition.Numbers(1000, 1e6).New()
	sizes.Observe(1000)
	sizes.Observe(1001)
	theirSizes := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "size_bytes", Help: "Size.", Buckets: []float64{1000, 1e6}})
	theirSizes.Observe(1000)
	theirSizes.Observe(1001)
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."}, []string{"code", "verb"})
	counter.WithLabelValues("200", "GET").Add(1e9)

	var b strings.Builder
	w := exposition.NewWriter(&b)
	w.Family("requests_total", exposition.CounterKind, "Requests.")
	w.Uint(exposition.Labels("code", "200", "verb", "GET"), 1e9)
	w.Family("nothing", exposition.GaugeKind, "A metric without samples.")
	w.Family("size_bytes", exposition.HistogramKind, "Size.")
	w.Histogram("", sizes)
	w.Family("wait_seconds", exposition.HistogramKind, help)
	w.Histogram(exposition.Labels("a", label, "verb", "GET"), ours)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(counter, theirs, theirSizes)
	if err := testutil.GatherAndCompare(r, strings.NewReader(b.String())); err != nil {
		t.Error(err)
	}
	if ours.Empty() || !exposition.Numbers(1).New().Empty() {
		t.Error("Empty is wrong")
	}
	if ours.Count() != 7 || sizes.Sum() != 2001 {
		t.Errorf("count %d, sum %v", ours.Count(), sizes.Sum())
	}
}

type broken struct{ writes int }

var errBroken = errors.New("broken")

func (b *broken) Write([]byte) (int, error) {
	b.writes++
	return 0, errBroken
}

// TestBroken checks that a Writer ends at the first error.
func TestBroken(t *testing.T) {
	var b broken
	w := exposition.NewWriter(&b)
	w.Family("n", exposition.GaugeKind, "N.")
	for range 100_000 {
		w.Float(`a="b"`, 0.5)
	}
	if err := w.Close(); !errors.Is(err, errBroken) || b.writes != 1 {
		t.Errorf("%v after %d writes", err, b.writes)
	}
}

func BenchmarkObserve(b *testing.B) {
	h := exposition.Seconds(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60).New()
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(int64(30 * time.Microsecond))
	}
}
