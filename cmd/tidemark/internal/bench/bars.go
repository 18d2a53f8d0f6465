package bench

import (
	"bufio"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Bars compares two servers for some operations.
type Bars struct {
	Title string
	// A and B are the names of the servers; B is the baseline.
	A, B string
	Rows []Bar
}

// Bar is an operation: its cost for the server and the baseline, and the ratio, the median of the
// rounds.
type Bar struct {
	Label       string
	A, B, Ratio float64
	// Memory: A and B are in MiB, and otherwise in µs.
	Memory bool
}

// barMetrics are the metrics that a line of a list can compare, and the factors that convert times
// to microseconds.
var barMetrics = map[string]struct {
	metric
	micros float64 // zero: memory in MiB
}{"cpu": {cpuPerOp, 1}, "p50": {p50, 1000}, "p99": {p99, 1000}, "rss": {rss, 0}, "anon": {anon, 0}}

// ReadBars reads a list of operations. The first line has the title and the names of the two servers. Each other line has the file
// of a report with both servers, relative to the list, the name of a row of it, a label, and, if it compares no CPU time, one of
// p50, p99, rss and anon. Tabs separate the fields. Lines that begin with # are comments.
func ReadBars(path string) (*Bars, error) {
	list, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	var b *Bars
	comparisons := map[string]*Comparison{}
	lines := bufio.NewScanner(list)
	for n := 1; lines.Scan(); n++ {
		if lines.Text() == "" || strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) != 3 && (len(fields) != 4 || b == nil) {
			return nil, fmt.Errorf("%s:%d: %d fields: want 3, or 4 with a metric, with tabs between them", path, n, len(fields))
		}
		if b == nil {
			b = &Bars{Title: fields[0], A: fields[1], B: fields[2]}
			continue
		}
		c := comparisons[fields[0]]
		if c == nil {
			if c, err = compareFile(filepath.Join(filepath.Dir(path), fields[0])); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n, err)
			}
			comparisons[fields[0]] = c
		}
		name := "cpu"
		if len(fields) == 4 {
			name = fields[3]
		}
		row, err := c.bar(fields[1], fields[2], name)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", path, n, fields[0], err)
		}
		b.Rows = append(b.Rows, row)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if b == nil || len(b.Rows) == 0 {
		return nil, fmt.Errorf("%s has no operations", path)
	}
	return b, nil
}

func compareFile(path string) (*Comparison, error) {
	r, err := ReadReport(path)
	if err != nil {
		return nil, err
	}
	return Compare(r, nil)
}

// bar returns a row of a comparison that has a metric of both servers.
func (c *Comparison) bar(name, label, by string) (Bar, error) {
	m, ok := barMetrics[by]
	if !ok {
		return Bar{}, fmt.Errorf("there is no metric %q: want %s", by, strings.Join(slices.Sorted(maps.Keys(barMetrics)), ", "))
	}
	i := slices.IndexFunc(c.Rows, func(r ComparedRow) bool { return r.Name == name })
	if i < 0 {
		return Bar{}, fmt.Errorf("there is no row %q of both servers", name)
	}
	row := c.Rows[i]
	a, okA := row.a.median(m.metric)
	b, okB := row.b.median(m.metric)
	ratio, okRatio := ratios(m.metric, row.a, row.b)
	if !okA || !okB || !okRatio || a <= 0 || b <= 0 {
		return Bar{}, fmt.Errorf("the row %q has no %s of both servers", name, m.name)
	}
	if m.micros == 0 {
		return Bar{Label: label, A: a, B: b, Ratio: ratio.Median, Memory: true}, nil
	}
	return Bar{Label: label, A: a * m.micros, B: b * m.micros, Ratio: ratio.Median}, nil
}

// WriteMarkdown writes the operations as a table.
func (b *Bars) WriteMarkdown(w io.Writer) error {
	var text strings.Builder
	fmt.Fprintf(&text, "| operation | %s | %s | ratio |\n|---|---|---|---|\n", b.A, b.B)
	for _, r := range b.Rows {
		x, y := r.values()
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", r.Label, x, y, r.ratio())
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// values formats both values in the same unit.
func (r Bar) values() (a, b string) {
	unit, by := "µs", 1.0
	switch {
	case r.Memory:
		unit = "MiB"
	case r.A >= 1e6:
		unit, by = "s", 1e6
	case r.A >= 1e3:
		unit, by = "ms", 1e3
	}
	return twoDigits(r.A/by) + " " + unit, twoDigits(r.B/by) + " " + unit
}

func (r Bar) ratio() string { return twoDigits(r.Ratio) }

// twoDigits formats a number as "9.4" below ten, and as a whole number above, with commas between thousands.
func twoDigits(x float64) string {
	if x < 9.95 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	text := strconv.FormatFloat(x, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// The picture, in pixels.
const (
	barsWidth           = 900
	barHeight, barPitch = 16, 24
	barsTop             = 52
	barsRight           = 250 // the values stand right of a bar
)

// WriteSVG draws the ratios as bars. The axis is logarithmic and begins at 1: equal costs.
func (b *Bars) WriteSVG(w io.Writer) error {
	left, most := 0.0, 10.0
	for _, r := range b.Rows {
		left, most = max(left, textWidth(r.Label)), max(most, r.Ratio)
	}
	left += 24
	bottom := barsTop + len(b.Rows)*barPitch
	x := axis{low: 0, high: math.Log10(most), from: left, to: barsWidth - barsRight}
	var text strings.Builder
	beginSVG(&text, barsWidth, bottom+28, b.Title)
	fmt.Fprintf(&text, `<text x="12" y="40" fill="#777">%s needs this many times the CPU time of %s. The axis is logarithmic.</text>`+"\n", html.EscapeString(b.B), html.EscapeString(b.A))
	for tick := 1.0; tick <= most; tick *= 10 {
		for _, of := range []float64{1, 2, 5} {
			if v := tick * of; v <= most {
				fmt.Fprintf(&text, `<path d="M%.1f %d V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle" fill="#777">%s</text>`+"\n",
					x.at(v), barsTop, bottom, x.at(v), bottom+16, short(v)+"×")
			}
		}
	}
	for i, r := range b.Rows {
		y := barsTop + i*barPitch + (barPitch-barHeight)/2
		end := max(x.at(max(r.Ratio, 1)), left+1)
		ours, theirs := r.values()
		fmt.Fprintf(&text, `<text x="%.1f" y="%d" text-anchor="end">%s</text><rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`+
			`<text x="%.1f" y="%d"><tspan font-weight="bold">%s×</tspan><tspan dx="8" fill="#777">%s, not %s</tspan></text>`+"\n",
			left-8, y+13, html.EscapeString(r.Label), left, y, end-left, barHeight, colourOf(0), end+6, y+13, r.ratio(), ours, theirs)
	}
	text.WriteString("</svg>\n")
	_, err := io.WriteString(w, text.String())
	return err
}
