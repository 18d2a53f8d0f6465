package bench

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// Plot shows how a metric grows. Both axes are logarithmic: a constant cost is a level
// line, and a linear cost rises by one decade each decade.
type Plot struct {
	Title string
	// X is the number of objects or of watchers.
	X string
	// Y is the name of a metric, as in the tables.
	Y string
	// Lines are sorted by name.
	Lines []Line
}

// Line is one row of one server.
type Line struct {
	Name   string
	Points []Point
}

// Point is the median of a row's rounds.
type Point struct{ X, Y float64 }

// The metrics and inputs that a plot can show, by their names in the flags.
var (
	plotMetrics = map[string]metric{"cpu": cpuPerOp, "cpu-byte": cpuPerByte, "p50": p50, "p99": p99, "rss": rss, "anon": anon, "heap": heap, "mark": marking}
	plotInputs  = map[string]func(r *Report, x Result) (float64, bool){
		"objects":  func(r *Report, _ Result) (float64, bool) { return float64(r.Options.Objects), true },
		"watchers": func(_ *Report, x Result) (float64, bool) { return x.median(metric{get: watchersOf}) },
	}
)

func watchersOf(f Measurements) (float64, bool) {
	n, ok := f.Extra["watchers"]
	return n, ok
}

// PlotInputs and PlotMetrics are what NewPlot takes.
func PlotInputs() []string  { return slices.Sorted(maps.Keys(plotInputs)) }
func PlotMetrics() []string { return slices.Sorted(maps.Keys(plotMetrics)) }

// NewPlot draws a metric over an input, for example "cpu" over "objects". Rows with the
// same name in several reports form a line. Over watchers, rows whose names differ only
// in a number do. Scenarios selects the rows; empty means all.
func NewPlot(title, x, y string, scenarios []string, reports []*Report) (*Plot, error) {
	input, metric, err := axes(x, y)
	if err != nil {
		return nil, err
	}
	p := &Plot{Title: title, X: x, Y: metric.name}
	for _, r := range reports {
		for _, s := range r.Servers {
			for _, row := range s.Results {
				name := row.Name
				if x == "watchers" {
					name = withoutNumber(name)
				}
				if len(scenarios) > 0 && !slices.Contains(scenarios, name) {
					continue
				}
				at, okX := input(r, row)
				value, okY := row.median(metric)
				if okX && okY && at > 0 && value > 0 {
					p.add(s.Name+" "+name, Point{at, value})
				}
			}
		}
	}
	if len(p.Lines) == 0 {
		return nil, errors.New("the reports have nothing to draw")
	}
	slices.SortFunc(p.Lines, func(a, b Line) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range p.Lines {
		slices.SortFunc(l.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
	}
	return p, nil
}

func axes(x, y string) (func(*Report, Result) (float64, bool), metric, error) {
	input, ok := plotInputs[x]
	if !ok {
		return nil, metric{}, fmt.Errorf("%q is not an input: want one of %s", x, strings.Join(PlotInputs(), ", "))
	}
	f, ok := plotMetrics[y]
	if !ok {
		return nil, metric{}, fmt.Errorf("%q is not a metric: want one of %s", y, strings.Join(PlotMetrics(), ", "))
	}
	return input, f, nil
}

// withoutNumber is "watch" of "watch-1000".
func withoutNumber(name string) string {
	return strings.TrimRight(strings.TrimRight(name, "0123456789"), "-")
}

func (p *Plot) add(name string, at Point) {
	i := slices.IndexFunc(p.Lines, func(l Line) bool { return l.Name == name })
	if i < 0 {
		i = len(p.Lines)
		p.Lines = append(p.Lines, Line{Name: name})
	}
	p.Lines[i].Points = append(p.Lines[i].Points, at)
}

// The picture, in pixels.
const (
	plotWidth, plotHeight = 900, 460
	plotLeft, plotRight   = 80, 250 // the names of the lines stand right of them
	plotTop, plotBottom   = 50, 50
)

var plotColours = []string{"#1b6ca8", "#d1495b", "#2e933c", "#8e5ea2", "#e08e0b", "#00798c", "#6d6875", "#a4161a", "#3a5a40", "#774936"}

// axis maps decades to pixels.
type axis struct {
	low, high float64 // decades
	from, to  float64 // pixels
}

func newAxis(values []float64, from, to float64) axis {
	a := axis{low: math.Floor(math.Log10(slices.Min(values))), high: math.Ceil(math.Log10(slices.Max(values))), from: from, to: to}
	if a.high == a.low {
		a.high++
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// WriteSVG writes the picture.
func (p *Plot) WriteSVG(w io.Writer) error {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			xs, ys = append(xs, pt.X), append(ys, pt.Y)
		}
	}
	x := newAxis(xs, plotLeft, plotWidth-plotRight)
	y := newAxis(ys, plotHeight-plotBottom, plotTop)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="%d" y="24" font-size="15">%s</text>`+"\n", plotLeft, html.EscapeString(p.Title))
	for d := x.low; d <= x.high; d++ {
		at := x.at(math.Pow(10, d))
		fmt.Fprintf(&b, `<path d="M%.1f %d V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, plotTop, plotHeight-plotBottom, at, plotHeight-plotBottom+18, decade(d))
	}
	for d := y.low; d <= y.high; d++ {
		at := y.at(math.Pow(10, d))
		fmt.Fprintf(&b, `<path d="M%d %.1f H%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, at, plotWidth-plotRight, plotLeft-6, at+4, decade(d))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text><text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">%s</text>`+"\n",
		(plotLeft+plotWidth-plotRight)/2, plotHeight-12, html.EscapeString(p.X), plotHeight/2, plotHeight/2, html.EscapeString(p.Y))
	for i, at := range p.labels(y) {
		p.Lines[i].write(&b, x, y, at, plotColours[i%len(plotColours)])
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// labels finds a height for the name of each line: next to its end, and not on top of
// another name.
func (p *Plot) labels(y axis) []float64 {
	const apart = 15
	order := make([]int, len(p.Lines))
	at := make([]float64, len(p.Lines))
	for i, l := range p.Lines {
		order[i], at[i] = i, y.at(l.Points[len(l.Points)-1].Y)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	for k := 1; k < len(order); k++ {
		at[order[k]] = max(at[order[k]], at[order[k-1]]+apart)
	}
	for k, low := len(order)-1, float64(plotHeight-plotBottom); k >= 0; k-- {
		at[order[k]] = min(at[order[k]], low)
		low = at[order[k]] - apart
	}
	return at
}

func (l Line) write(b *strings.Builder, x, y axis, label float64, colour string) {
	var path strings.Builder
	for i, pt := range l.Points {
		fmt.Fprintf(&path, "%c%.1f %.1f ", "ML"[min(i, 1)], x.at(pt.X), y.at(pt.Y))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s at %s</title></circle>`+"\n",
			x.at(pt.X), y.at(pt.Y), colour, html.EscapeString(l.Name), short(pt.Y), short(pt.X))
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%d" y="%.1f" fill="%s">%s</text>`+"\n",
		strings.TrimSpace(path.String()), colour, plotWidth-plotRight+10, label+4, colour, html.EscapeString(l.Name))
}

// decade writes a power of ten.
func decade(d float64) string {
	switch {
	case d >= 0 && d < 3:
		return fmt.Sprintf("%.0f", math.Pow(10, d))
	case d >= 3 && d < 6:
		return fmt.Sprintf("%.0fk", math.Pow(10, d-3))
	case d >= 6 && d < 9:
		return fmt.Sprintf("%.0fM", math.Pow(10, d-6))
	case d < 0 && d > -4:
		return fmt.Sprintf("%.*f", int(-d), math.Pow(10, d))
	}
	return fmt.Sprintf("1e%.0f", d)
}
