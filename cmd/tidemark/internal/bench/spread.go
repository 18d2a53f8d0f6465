package bench

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Spread is the median and the range of a metric over rounds.
type Spread struct {
	Median, Min, Max float64
}

// spreadOf returns the spread of values; ok is false if there are none.
func spreadOf(values []float64) (s Spread, ok bool) {
	if len(values) == 0 {
		return Spread{}, false
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	s = Spread{Median: sorted[middle], Min: sorted[0], Max: sorted[len(sorted)-1]}
	if len(sorted)%2 == 0 {
		s.Median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return s, true
}

// String formats the spread as "12.3 (11.9..14)", without the range if it is invisible.
func (s Spread) String() string {
	median, low, high := short(s.Median), short(s.Min), short(s.Max)
	if low == high {
		return median
	}
	return fmt.Sprintf("%s (%s..%s)", median, low, high)
}

// short formats a number with three significant digits, or all digits of its integer part.
func short(x float64) string {
	digits := 2
	if x != 0 {
		digits = min(max(2-int(math.Floor(math.Log10(math.Abs(x)))), 0), 6)
	}
	text := strconv.FormatFloat(x, 'f', digits, 64)
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		text = strconv.FormatFloat(n, 'f', -1, 64) // no zeros at the end
	}
	return text
}

// A metric is a column of a table: its name, and a function that reads it from a round.
type metric struct {
	name string
	get  func(Measurements) (float64, bool)
	// more is true if higher is better.
	more bool
	// extra is the name in Measurements.Extra, if it is from there.
	extra string
}

// extraMetric returns the column of a measurement in Measurements.Extra.
func extraMetric(column, name string) metric {
	return metric{name: column, extra: name, get: func(f Measurements) (float64, bool) { v, ok := f.Extra[name]; return v, ok }}
}

// The columns of the tables.
var (
	cpuPerOp     = metric{name: "CPU µs/op", get: Measurements.cpuPerOp}
	rate         = metric{name: "rate /s", get: Measurements.rate, more: true}
	p50          = metric{name: "p50 ms", get: Measurements.p50}
	p99          = metric{name: "p99 ms", get: Measurements.p99}
	bytesPerItem = metric{name: "B/item", get: Measurements.bytesPerItem}
	cpuPerByte   = metric{name: "CPU ns/B", get: Measurements.cpuPerByte}
	rss          = metric{name: "RSS MiB", get: Measurements.rss}
	anon         = metric{name: "anon MiB", get: Measurements.anon}
	peak         = metric{name: "peak MiB", get: Measurements.peak}
	heap         = metric{name: "heap MiB", get: Measurements.liveHeap}
	gogc         = metric{name: "GOGC", get: Measurements.gogc}
	marking      = metric{name: "mark CPU %", get: Measurements.markShare}
	ownPerOp     = metric{name: "own µs/op", get: Measurements.ownPerOp}
)

// extraColumns are the columns of measurements that a scenario exists for. A table has those of its
// scenarios.
var extraColumns = []metric{
	extraMetric("gap ms", longestGap), extraMetric("failed", failedRequests), extraMetric("HTTP errors", httpErrors), extraMetric("relists", relistedWatches),
	extraMetric("etcd req/s", etcdRequests), extraMetric("etcd unary/s", etcdUnary), extraMetric("etcd watches", etcdWatches),
}

// values returns the column's value in each round that has one.
func (x Result) values(f metric) []float64 {
	var values []float64
	for _, round := range x.Rounds {
		if v, ok := f.get(round); ok {
			values = append(values, v)
		}
	}
	return values
}

func (x Result) median(f metric) (float64, bool) {
	s, ok := spreadOf(x.values(f))
	return s.Median, ok
}

// cell formats a column, or returns "" if no round has a value.
func (x Result) cell(f metric) string {
	s, ok := spreadOf(x.values(f))
	if !ok {
		return ""
	}
	return s.String()
}

// ratios compares a column of a with b, the baseline; above 1, a is better. Rounds are
// compared in pairs if both have the same number of rounds. Otherwise the range is the
// widest that the rounds allow.
func ratios(f metric, a, b Result) (Spread, bool) {
	of, to := a.values(f), b.values(f)
	x, okX := spreadOf(of)
	y, okY := spreadOf(to)
	if !okX || !okY || x.Min <= 0 || y.Min <= 0 {
		return Spread{}, false
	}
	better := func(a, b float64) float64 {
		if f.more {
			return a / b
		}
		return b / a
	}
	if len(of) != len(to) {
		s := Spread{better(x.Median, y.Median), better(x.Max, y.Min), better(x.Min, y.Max)}
		s.Min, s.Max = min(s.Min, s.Max), max(s.Min, s.Max)
		return s, true
	}
	pairs := make([]float64, len(of))
	for i := range of {
		pairs[i] = better(of[i], to[i])
	}
	s, _ := spreadOf(pairs)
	s.Median = better(x.Median, y.Median) // of the medians in the table
	s.Min, s.Max = min(s.Min, s.Median), max(s.Max, s.Median)
	return s, true
}
