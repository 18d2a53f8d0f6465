package bench_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/bench"
)

// report has one server with a row for each value: seconds of CPU of one operation.
func report(objects int, rows map[string]float64) *bench.Report {
	s := bench.ServerReport{Name: "<one>"}
	for name, cpu := range rows {
		s.Results = append(s.Results, bench.Result{Name: name, Rounds: []bench.Measurements{
			{Ops: 1, ServerCPU: &cpu, Extra: map[string]float64{"watchers": float64(objects)}},
		}})
	}
	return &bench.Report{Options: bench.Options{Objects: objects}, Servers: []bench.ServerReport{s}}
}

// TestPlot: lines are put together over reports, and the picture is well-formed.
func TestPlot(t *testing.T) {
	reports := []*bench.Report{
		report(10_000, map[string]float64{"get": 2e-6, "list": 1, "other": 1}),
		report(1000, map[string]float64{"get": 1e-6, "list": 0.1}),
	}
	p, err := bench.NewPlot("a & b", "objects", "cpu", []string{"get", "list"}, reports)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Lines) != 2 || p.Lines[0].Name != "<one> get" || len(p.Lines[0].Points) != 2 || p.Lines[0].Points[1] != (bench.Point{X: 10_000, Y: 2}) {
		t.Errorf("%+v", p.Lines)
	}
	var b strings.Builder
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, b.String())
		}
	}
	for _, want := range []string{"a &amp; b", "&lt;one&gt; list", "CPU µs/op", ">10k<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture has no %q", want)
		}
	}

	watched := []*bench.Report{report(100, map[string]float64{"watch-100": 1e-6}), report(1000, map[string]float64{"watch-1000": 1e-6})}
	if p, err = bench.NewPlot("", "watchers", "cpu", nil, watched); err != nil || len(p.Lines) != 1 || len(p.Lines[0].Points) != 2 {
		t.Errorf("over watchers: %+v, %v", p, err)
	}
	if err := p.WriteSVG(&b); err != nil {
		t.Error(err)
	}
	for _, wrong := range [][2]string{{"weather", "cpu"}, {"objects", "joy"}, {"objects", "p50"}} { // the last: no such metric
		if _, err := bench.NewPlot("", wrong[0], wrong[1], nil, reports); err == nil {
			t.Errorf("%v was drawn", wrong)
		}
	}
}
