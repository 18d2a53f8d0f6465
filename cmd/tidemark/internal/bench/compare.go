package bench

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Comparison compares a server with a baseline.
type Comparison struct {
	// A and B are the names of the servers; B is the baseline.
	A, B string
	Rows []ComparedRow
	// Alone are the rows that only one of the two has.
	Alone []string
}

// ComparedRow is a row of both servers. A ratio of 2 means that A uses half the CPU or
// memory, has half the latency, or twice the rate. A ratio is nil if one of the two
// lacks the measurement.
type ComparedRow struct {
	Name       string
	CPUPerOp   *Spread
	CPUPerByte *Spread
	Rate       *Spread
	P50, P99   *Spread
	RSS, Anon  *Spread
	Peak       *Spread

	a, b Result
}

// Compare compares the first server of report a with the first server of report b, the
// baseline. If b is nil, it compares the two servers of a; the second is the baseline.
func Compare(a, b *Report) (*Comparison, error) {
	switch {
	case b != nil:
		return compareServers(a.Servers[0], b.Servers[0]), nil
	case len(a.Servers) == 2:
		return compareServers(a.Servers[0], a.Servers[1]), nil
	}
	return nil, errors.New("the report has only one server: pass a second report as the baseline")
}

func compareServers(a, b ServerReport) *Comparison {
	c := &Comparison{A: a.Name, B: b.Name}
	if c.A == c.B {
		c.A, c.B = c.A+" (a)", c.B+" (b)"
	}
	for _, x := range a.Results {
		i := slices.IndexFunc(b.Results, func(y Result) bool { return y.Name == x.Name })
		switch {
		case i >= 0 && len(x.Rounds) > 0 && len(b.Results[i].Rounds) > 0:
			c.Rows = append(c.Rows, compareRows(x, b.Results[i]))
		case len(x.Rounds) > 0:
			c.Alone = append(c.Alone, x.Name+" (a alone)")
		}
	}
	for _, y := range b.Results {
		if len(y.Rounds) > 0 && !slices.ContainsFunc(a.Results, func(x Result) bool { return x.Name == y.Name && len(x.Rounds) > 0 }) {
			c.Alone = append(c.Alone, y.Name+" (b alone)")
		}
	}
	return c
}

func compareRows(a, b Result) ComparedRow {
	of := func(f metric) *Spread {
		if s, ok := ratios(f, a, b); ok {
			return &s
		}
		return nil
	}
	return ComparedRow{
		Name: a.Name, CPUPerOp: of(cpuPerOp), CPUPerByte: of(cpuPerByte), Rate: of(rate),
		P50: of(p50), P99: of(p99), RSS: of(rss), Anon: of(anon), Peak: of(peak), a: a, b: b,
	}
}

// WriteTable writes the comparison as a text table.
func (c *Comparison) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "a is %s; b is %s: the baseline. A ratio of 2 means that a uses half the CPU or memory, has half the latency, or twice the rate.\n"+
		"In parentheses: the lowest and highest ratio of the rounds, taken in pairs.\n", c.A, c.B)
	rows := [][]string{{"scenario", "CPU µs/op a", "b", "CPU ratio", "CPU/B ratio", "rate a", "b", "rate ratio", "p50 ratio", "p99 ratio", "RSS MiB a", "b", "RSS ratio", "anon MiB a", "b", "anon ratio", "peak ratio", "heap MiB a", "b", "GOGC a", "b", "B/item a", "b"}}
	ratio := func(s *Spread) string {
		if s == nil {
			return ""
		}
		return s.String()
	}
	median := func(x Result, f metric) string {
		s, ok := spreadOf(x.values(f))
		if !ok {
			return ""
		}
		return short(s.Median)
	}
	for _, r := range c.Rows {
		rows = append(rows, []string{
			r.Name, median(r.a, cpuPerOp), median(r.b, cpuPerOp), ratio(r.CPUPerOp), ratio(r.CPUPerByte),
			median(r.a, rate), median(r.b, rate), ratio(r.Rate), ratio(r.P50), ratio(r.P99), median(r.a, rss), median(r.b, rss), ratio(r.RSS), median(r.a, anon), median(r.b, anon), ratio(r.Anon), ratio(r.Peak),
			median(r.a, heap), median(r.b, heap), median(r.a, gogc), median(r.b, gogc),
			median(r.a, bytesPerItem), median(r.b, bytesPerItem),
		})
	}
	if err := writeRows(w, rows); err != nil {
		return err
	}
	if len(c.Alone) > 0 {
		fmt.Fprintf(w, "Not compared: %s\n", strings.Join(c.Alone, ", "))
	}
	return nil
}
