// Command picture draws the dashboard of deploy/monitoring as an SVG, from scrapes of a server. It evaluates the expressions
// of the panels with Prometheus' own engine.
//
//	GOWORK=off go run ./picture DIR >../../docs/dashboard.svg
//
// DIR has a file for each scrape, whose name is the time in milliseconds: 1795464000000.prom.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/tsdb"
)

// rateInterval is what $__rate_interval stands for: a few scrapes.
const rateInterval = 12 * time.Second

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: picture DIR")
	}
	if err := draw(os.Args[1], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func draw(dir string, to io.Writer) error {
	temporary, err := os.MkdirTemp("", "picture")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	db, err := tsdb.Open(temporary, nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		return err
	}
	defer db.Close()
	from, until, err := load(db, dir)
	if err != nil {
		return err
	}
	panels, err := readPanels()
	if err != nil {
		return err
	}
	engine := promql.NewEngine(promql.EngineOpts{Logger: promslog.NewNopLogger(), MaxSamples: 10_000_000, Timeout: time.Minute})
	var graphs []graph
	for _, p := range panels {
		g := graph{title: p.Title, unit: p.FieldConfig.Defaults.Unit}
		for _, t := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", rateInterval.String(), "$instance", "a").Replace(t.Expr)
			q, err := engine.NewRangeQuery(context.Background(), db, nil, expr, from.Add(rateInterval), until, 4*time.Second)
			if err != nil {
				return fmt.Errorf("%s: %w", p.Title, err)
			}
			m, err := q.Exec(context.Background()).Matrix()
			if err != nil {
				return fmt.Errorf("%s: %w", p.Title, err)
			}
			for _, s := range m {
				g.add(legend(t.LegendFormat, s.Metric), s.Floats)
			}
		}
		graphs = append(graphs, g)
	}
	_, err = io.WriteString(to, svg(graphs, from.Add(rateInterval), until))
	return err
}

// load reads the scrapes.
func load(db *tsdb.DB, dir string) (from, until time.Time, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.prom"))
	if err != nil || len(files) < 2 {
		return from, until, fmt.Errorf("%s has no scrapes: %w", dir, cmp.Or(err, os.ErrNotExist))
	}
	slices.Sort(files)
	for i, file := range files {
		at, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".prom"), 10, 64)
		if err != nil {
			return from, until, err
		}
		until = time.UnixMilli(at)
		if i == 0 {
			from = until
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return from, until, err
		}
		if err := scrape(db, text, at); err != nil {
			return from, until, fmt.Errorf("%s: %w", file, err)
		}
	}
	return from, until, nil
}

// scrape stores the samples of one scrape.
func scrape(db *tsdb.DB, text []byte, at int64) error {
	a := db.Appender(context.Background())
	p := textparse.NewPromParser(text, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return a.Commit()
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var l labels.Labels
		p.Labels(&l)
		b := labels.NewBuilder(l)
		b.Set("instance", "a")
		b.Set("job", "tidemark")
		if _, err := a.Append(0, b.Labels(), at, value); err != nil {
			return err
		}
	}
}

// panel is a graph of the dashboard.
type panel struct {
	Type, Title string
	Targets     []struct{ Expr, LegendFormat string }
	FieldConfig struct{ Defaults struct{ Unit string } }
}

func readPanels() ([]panel, error) {
	text, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		return nil, err
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(dashboard.Panels, func(p panel) bool { return p.Type == "row" }), nil
}

// legend replaces {{name}} by labels.
func legend(format string, of labels.Labels) string {
	of.Range(func(l labels.Label) { format = strings.ReplaceAll(format, "{{"+l.Name+"}}", l.Value) })
	for strings.Contains(format, "{{") { // labels that the series does not have
		begin := strings.Index(format, "{{")
		end := strings.Index(format[begin:], "}}")
		if end < 0 {
			break
		}
		format = format[:begin] + format[begin+end+2:]
	}
	return strings.TrimSpace(format)
}

// graph is a panel with its data.
type graph struct {
	title, unit string
	lines       []line
	most        float64
}

type line struct {
	legend string
	points []promql.FPoint
}

func (g *graph) add(legend string, points []promql.FPoint) {
	points = slices.DeleteFunc(points, func(p promql.FPoint) bool { return math.IsNaN(p.F) || math.IsInf(p.F, 0) })
	if len(points) == 0 {
		return
	}
	for _, p := range points {
		g.most = max(g.most, p.F)
	}
	g.lines = append(g.lines, line{legend, points})
}

const (
	columns, width, height = 4, 300, 170
	left, top, right, low  = 44, 26, 8, 34
	shown                  = 4 // lines in a legend
)

var colors = []string{"#3274d9", "#56a64b", "#e0752d", "#a352cc", "#e02f44", "#8f8f8f", "#0f9d9d", "#b8860b"}

// svg draws the graphs in a grid.
func svg(graphs []graph, from, until time.Time) string {
	var b strings.Builder
	rows := (len(graphs) + columns - 1) / columns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="9">`+"\n<rect width=\"100%%\" height=\"100%%\" fill=\"#f4f5f5\"/>\n", columns*width, rows*height)
	for i := range graphs {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*width, i/columns*height)
		graphs[i].draw(&b, from, until)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func (g *graph) draw(b *strings.Builder, from, until time.Time) {
	fmt.Fprintf(b, `<rect x="3" y="3" width="%d" height="%d" rx="3" fill="#fff" stroke="#ddd"/><text x="10" y="17" font-size="11" font-weight="bold">%s</text>`+"\n", width-6, height-6, escape.Replace(g.title))
	x0, x1, y0, y1 := float64(left), float64(width-right), float64(height-low), float64(top)
	if len(g.lines) == 0 {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#888">no data: nothing of this happened</text>`+"\n", width/2, height/2)
		return
	}
	peak := func(l line) (most float64) {
		for _, p := range l.points {
			most = max(most, p.F)
		}
		return most
	}
	slices.SortStableFunc(g.lines, func(a, b line) int { return cmp.Compare(peak(b), peak(a)) })
	most := g.most * 1.05
	if most == 0 {
		most = 1
	}
	for _, part := range []float64{0, 0.5, 1} {
		y := y0 + (y1-y0)*part
		fmt.Fprintf(b, `<path d="M%.0f %.1fH%.0f" stroke="#e4e4e4"/><text x="%.0f" y="%.1f" text-anchor="end" fill="#666">%s</text>`+"\n", x0, y, x1, x0-3, y+3, format(most*part, g.unit))
	}
	span := float64(until.Sub(from).Milliseconds())
	for i, l := range g.lines {
		var d strings.Builder
		for j, p := range l.points {
			command := "L"
			if j == 0 {
				command = "M"
			}
			fmt.Fprintf(&d, "%s%.1f %.1f", command, x0+(x1-x0)*float64(p.T-from.UnixMilli())/span, y0+(y1-y0)*p.F/most)
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s"/>`+"\n", d.String(), colors[i%len(colors)])
	}
	for i, l := range g.lines[:min(len(g.lines), shown)] {
		text := l.legend
		if r := []rune(text); len(r) > 24 {
			text = string(r[:23]) + "…"
		}
		x, y := left+i%2*(width-left)/2, height-low+14+i/2*11
		fmt.Fprintf(b, `<path d="M%d %dh9" stroke="%s" stroke-width="2"/><text x="%d" y="%d" fill="#444">%s</text>`+"\n", x, y-3, colors[i%len(colors)], x+12, y, escape.Replace(text))
	}
}

// format returns a value with its unit.
func format(v float64, unit string) string {
	suffix := map[string]string{"s": "s", "bytes": "B", "Bps": "B/s", "reqps": "/s", "ops": "/s"}[unit]
	switch {
	case v == 0:
		return "0"
	case unit == "percentunit":
		return strconv.FormatFloat(v*100, 'g', 3, 64) + "%"
	case unit == "s" && v < 1e-3:
		return strconv.FormatFloat(v*1e6, 'g', 3, 64) + "µs"
	case unit == "s" && v < 1:
		return strconv.FormatFloat(v*1e3, 'g', 3, 64) + "ms"
	case unit == "s" && v >= 2*86400:
		return strconv.FormatFloat(v/86400, 'f', 0, 64) + "d"
	case v >= 1e9:
		return strconv.FormatFloat(v/1e9, 'g', 3, 64) + "G" + suffix
	case v >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M" + suffix
	case v >= 1e3:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k" + suffix
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + suffix
}
