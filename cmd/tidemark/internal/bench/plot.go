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

// Plot shows how a metric grows, with a panel for each scenario and a line for each server.
// Both axes of a panel are logarithmic: a constant cost is a level line, and a linear cost
// rises by one decade each decade.
type Plot struct {
	Title string
	// X is the number of objects or of watchers.
	X string
	// Y is the name of a metric, as in the tables.
	Y string
	// Servers are the names of the servers in the order of their colours.
	Servers []string
	// Panels are in the order of PlotOptions.Scenarios, or sorted by name.
	Panels []Panel
}

// Panel is a scenario.
type Panel struct {
	Name string
	// Lines are in the order of Plot.Servers, without the servers that lack the scenario.
	Lines []Line
}

// Line is a row of one server.
type Line struct {
	Server string
	Points []Point
}

// Point is the median of a row's rounds.
type Point struct{ X, Y float64 }

// PlotOptions selects the contents of a plot.
type PlotOptions struct {
	Title string
	// X is one of PlotInputs, Y one of PlotMetrics.
	X, Y string
	// Scenarios are the panels in order. Empty: all.
	Scenarios []string
	// Servers rename the servers of the reports, as NAME=LABEL, and put them in order. Servers without an entry follow, sorted by name.
	Servers []string
}

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

// PlotInputs and PlotMetrics are the valid axes of NewPlot.
func PlotInputs() []string  { return slices.Sorted(maps.Keys(plotInputs)) }
func PlotMetrics() []string { return slices.Sorted(maps.Keys(plotMetrics)) }

// NewPlot draws a metric over an input, for example "cpu" over "objects". Rows with the
// same name in several reports form a line. Over watchers, rows whose names differ only
// in a number do.
func NewPlot(o PlotOptions, reports []*Report) (*Plot, error) {
	input, metric, err := axes(o.X, o.Y)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{}
	p := &Plot{Title: o.Title, X: o.X, Y: metric.name}
	for _, s := range o.Servers {
		name, label, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("server %q: want NAME=LABEL", s)
		}
		labels[name] = label
		p.Servers = append(p.Servers, label)
	}
	for _, r := range reports {
		for _, s := range r.Servers {
			for _, row := range s.Results {
				name := row.Name
				if o.X == "watchers" {
					name = withoutNumber(name)
				}
				if len(o.Scenarios) > 0 && !slices.Contains(o.Scenarios, name) {
					continue
				}
				at, okX := input(r, row)
				value, okY := row.median(metric)
				if okX && okY && at > 0 && value > 0 {
					p.add(name, cmp.Or(labels[s.Name], s.Name), Point{at, value})
				}
			}
		}
	}
	if len(p.Panels) == 0 {
		return nil, errors.New("the reports have nothing to draw")
	}
	p.sort(o)
	return p, nil
}

// sort puts the panels, the servers and the points in order.
func (p *Plot) sort(o PlotOptions) {
	slices.SortFunc(p.Panels, func(a, b Panel) int {
		return cmp.Or(cmp.Compare(slices.Index(o.Scenarios, a.Name), slices.Index(o.Scenarios, b.Name)), strings.Compare(a.Name, b.Name))
	})
	slices.Sort(p.Servers[len(o.Servers):])
	for _, panel := range p.Panels {
		slices.SortFunc(panel.Lines, func(a, b Line) int {
			return cmp.Compare(slices.Index(p.Servers, a.Server), slices.Index(p.Servers, b.Server))
		})
		for _, l := range panel.Lines {
			slices.SortFunc(l.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
		}
	}
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

func (p *Plot) add(scenario, server string, at Point) {
	if !slices.Contains(p.Servers, server) {
		p.Servers = append(p.Servers, server)
	}
	i := slices.IndexFunc(p.Panels, func(x Panel) bool { return x.Name == scenario })
	if i < 0 {
		i = len(p.Panels)
		p.Panels = append(p.Panels, Panel{Name: scenario})
	}
	panel := &p.Panels[i]
	j := slices.IndexFunc(panel.Lines, func(l Line) bool { return l.Server == server })
	if j < 0 {
		j = len(panel.Lines)
		panel.Lines = append(panel.Lines, Line{Server: server})
	}
	panel.Lines[j].Points = append(panel.Lines[j].Points, at)
}

// The picture, in pixels.
const (
	plotColumns             = 3
	panelWidth, panelHeight = 300, 230
	panelLeft, panelRight   = 62, 58 // the last value of a line stands right of it
	panelTop, panelBottom   = 26, 46
	plotHead                = 52 // title and legend
)

// plotColours are those of servers. They differ for the colour-blind too.
var plotColours = []string{"#1b6ca8", "#e08e0b", "#2e933c", "#8e5ea2", "#d1495b", "#6d6875"}

func colourOf(server int) string { return plotColours[server%len(plotColours)] }

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
	columns := min(len(p.Panels), plotColumns)
	rows := (len(p.Panels) + columns - 1) / columns
	width := max(columns*panelWidth, 480)
	var b strings.Builder
	beginSVG(&b, width, plotHead+rows*panelHeight, p.Title)
	x := 12.0
	for i, name := range p.Servers {
		x = legend(&b, x, 40, colourOf(i), name)
	}
	for i, panel := range p.Panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*panelWidth, plotHead+i/columns*panelHeight)
		panel.write(&b, p)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// beginSVG writes the head of a picture: its size, a white ground and the title.
func beginSVG(b *strings.Builder, width, height int, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#333">`+"\n", width, height, width, height)
	fmt.Fprintf(b, `<title>%s</title><rect width="100%%" height="100%%" fill="#fff"/><text x="12" y="20" font-size="15" font-weight="bold">%[1]s</text>`+"\n", html.EscapeString(title))
}

// legend writes a colour with its name, and returns where the next one begins.
func legend(b *strings.Builder, x, y float64, colour, name string) float64 {
	fmt.Fprintf(b, `<rect x="%.0f" y="%.0f" width="12" height="12" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`+"\n", x, y-10, colour, x+18, y, html.EscapeString(name))
	return x + 18 + textWidth(name) + 20
}

// textWidth estimates the width of a text in pixels at 12 pixels a line. It is rather too large.
func textWidth(s string) float64 { return 7 * float64(len([]rune(s))) }

func (panel Panel) write(b *strings.Builder, p *Plot) {
	var xs, ys []float64
	for _, l := range panel.Lines {
		for _, pt := range l.Points {
			xs, ys = append(xs, pt.X), append(ys, pt.Y)
		}
	}
	x := newAxis(xs, panelLeft, panelWidth-panelRight)
	y := newAxis(ys, panelHeight-panelBottom, panelTop)
	fmt.Fprintf(b, `<text x="12" y="14" font-weight="bold">%s</text><text x="%d" y="14" text-anchor="end" fill="#777">%s</text>`+"\n",
		html.EscapeString(panel.Name), panelWidth-12, html.EscapeString(withoutUnit(p.Y)))
	for d := x.low; d <= x.high; d++ {
		at := x.at(math.Pow(10, d))
		fmt.Fprintf(b, `<path d="M%.1f %d V%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle" fill="#777">%s</text>`+"\n",
			at, panelTop, panelHeight-panelBottom, at, panelHeight-panelBottom+16, count(math.Pow(10, d)))
	}
	every := math.Ceil((y.high - y.low) / 5) // labels that have room
	for d := y.low; d <= y.high; d += every {
		at := y.at(math.Pow(10, d))
		fmt.Fprintf(b, `<path d="M%d %.1f H%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#777">%s</text>`+"\n",
			panelLeft, at, panelWidth-panelRight, panelLeft-6, at+4, withUnit(p.Y, math.Pow(10, d)))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#777">%s</text>`+"\n", (panelLeft+panelWidth-panelRight)/2, panelHeight-panelBottom+32, html.EscapeString(p.X))
	for i, at := range panel.labels(y) {
		l := panel.Lines[i]
		l.write(b, p.Y, x, y, at, colourOf(slices.Index(p.Servers, l.Server)))
	}
}

// labels finds a height for the last value of each line: next to its end, and not on top of
// another value.
func (panel Panel) labels(y axis) []float64 {
	const apart = 14
	order := make([]int, len(panel.Lines))
	at := make([]float64, len(panel.Lines))
	for i, l := range panel.Lines {
		order[i], at[i] = i, y.at(l.Points[len(l.Points)-1].Y)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	for k := 1; k < len(order); k++ {
		at[order[k]] = max(at[order[k]], at[order[k-1]]+apart)
	}
	for k, low := len(order)-1, float64(panelHeight-panelBottom); k >= 0; k-- {
		at[order[k]] = min(at[order[k]], low)
		low = at[order[k]] - apart
	}
	return at
}

func (l Line) write(b *strings.Builder, metric string, x, y axis, label float64, colour string) {
	var path strings.Builder
	for i, pt := range l.Points {
		fmt.Fprintf(&path, "%c%.1f %.1f ", "ML"[min(i, 1)], x.at(pt.X), y.at(pt.Y))
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"><title>%s: %s at %s</title></circle>`+"\n",
			x.at(pt.X), y.at(pt.Y), colour, html.EscapeString(l.Server), withUnit(metric, pt.Y), count(pt.X))
	}
	last := l.Points[len(l.Points)-1]
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/><text x="%.1f" y="%.1f" fill="%s">%s</text>`+"\n",
		strings.TrimSpace(path.String()), colour, x.at(last.X)+7, label+4, colour, withUnit(metric, last.Y))
}

// count formats a number of objects or watchers: "10k".
func count(n float64) string {
	switch {
	case n >= 1e6:
		return short(n/1e6) + "M"
	case n >= 1e3:
		return short(n/1e3) + "k"
	}
	return short(n)
}

// unitOf returns the unit in the name of a metric of the tables: "µs" of "CPU µs/op".
func unitOf(metric string) string {
	words := strings.Fields(metric)
	unit, _, _ := strings.Cut(words[len(words)-1], "/")
	return unit
}

// withoutUnit returns the name of a metric without its unit: "CPU/op".
func withoutUnit(metric string) string { return strings.Replace(metric, " "+unitOf(metric), "", 1) }

// unitSteps are the units that follow each other, by the factor between them.
var unitSteps = []struct {
	step  float64
	units []string
}{{1000, []string{"ns", "µs", "ms", "s"}}, {1024, []string{"MiB", "GiB"}}}

// withUnit formats a value of a metric of the tables in a unit that keeps it short: 1,500,000 of
// "CPU µs/op" is "1.5 s".
func withUnit(metric string, v float64) string {
	unit := unitOf(metric)
	for _, s := range unitSteps {
		i := slices.Index(s.units, unit)
		if i < 0 {
			continue
		}
		for ; i < len(s.units)-1 && v >= s.step; i++ {
			v /= s.step
		}
		unit = s.units[i]
	}
	return short(v) + " " + unit
}
