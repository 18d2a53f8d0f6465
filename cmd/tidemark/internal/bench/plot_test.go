package bench_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/bench"
)

// serverReport has a row for each value: seconds of CPU of one operation.
func serverReport(name string, watchers int, rows map[string]float64) bench.ServerReport {
	s := bench.ServerReport{Name: name}
	for name, cpu := range rows {
		s.Results = append(s.Results, bench.Result{Name: name, Rounds: []bench.Measurements{
			{Ops: 1, ServerCPU: &cpu, Memory: &bench.Memory{RSS: int64(cpu*1e6) << 20}, Extra: map[string]float64{"watchers": float64(watchers)}},
		}})
	}
	return s
}

func report(server string, objects int, rows map[string]float64) *bench.Report {
	return &bench.Report{Format: bench.Format, Options: bench.Options{Objects: objects}, Servers: []bench.ServerReport{serverReport(server, objects, rows)}}
}

// wellFormed checks that a picture is XML, and that its texts lie within it.
func wellFormed(t *testing.T, picture string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
	}
	size := regexp.MustCompile(`viewBox="0 0 (\d+) (\d+)"`).FindStringSubmatch(picture)
	width, _ := strconv.ParseFloat(size[1], 64)
	offset := 0.0
	for line := range strings.Lines(picture) {
		if m := regexp.MustCompile(`translate\((\d+) `).FindStringSubmatch(line); m != nil {
			offset, _ = strconv.ParseFloat(m[1], 64)
		}
		for _, m := range regexp.MustCompile(`<text x="([\d.-]+)"[^>]*>(.*?)</text>`).FindAllStringSubmatch(line, -1) {
			x, _ := strconv.ParseFloat(m[1], 64)
			text := html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(m[2], ""))
			length := 6.5 * float64(len([]rune(text)))
			from, to := x, x+length
			if strings.Contains(m[0], `text-anchor="end"`) {
				from, to = x-length, x
			} else if strings.Contains(m[0], `text-anchor="middle"`) {
				from, to = x-length/2, x+length/2
			}
			if from+offset < -1 || to+offset > width+1 {
				t.Errorf("%q is cut off: it goes from %.0f to %.0f of %.0f", text, from+offset, to+offset, width)
			}
		}
	}
}

// TestPlot: a scenario is a panel, a server has one colour in all panels, and the picture is well-formed.
func TestPlot(t *testing.T) {
	reports := []*bench.Report{
		report("<one>", 10_000, map[string]float64{"get": 2e-6, "list": 100, "other": 1}),
		report("<one>", 1000, map[string]float64{"get": 1e-6, "list": 0.1}),
		report("peer", 1000, map[string]float64{"get": 1e-5, "list": 1}),
	}
	p, err := bench.NewPlot(bench.PlotOptions{Title: "a & b", X: "objects", Y: "cpu", Scenarios: []string{"list", "get"}, Servers: []string{"peer=The <peer>"}}, reports)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Panels) != 2 || p.Panels[0].Name != "list" || !slices.Equal(p.Servers, []string{"The <peer>", "<one>"}) {
		t.Fatalf("%+v", p)
	}
	get := p.Panels[1].Lines
	if len(get) != 2 || get[0].Server != "The <peer>" || len(get[1].Points) != 2 || get[1].Points[1] != (bench.Point{X: 10_000, Y: 2}) {
		t.Errorf("%+v", get)
	}
	var b strings.Builder
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	wellFormed(t, b.String())
	for _, want := range []string{"a &amp; b", "The &lt;peer&gt;", ">CPU/op<", ">10k<", ">100 s<", ">1 µs<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the picture has no %q", want)
		}
	}
	if paths := strings.Count(b.String(), `stroke-width="2"`); paths != 4 {
		t.Errorf("%d lines, want 4", paths)
	}
	for colour, want := range map[string]int{"#1b6ca8": 2, "#e08e0b": 2} {
		if got := strings.Count(b.String(), fmt.Sprintf(`stroke="%s" stroke-width="2"`, colour)); got != want {
			t.Errorf("%d lines are %s, want %d", got, colour, want)
		}
	}

	watched := []*bench.Report{report("one", 100, map[string]float64{"watch-100": 1e-6}), report("one", 1000, map[string]float64{"watch-1000": 1e-6})}
	if p, err = bench.NewPlot(bench.PlotOptions{X: "watchers", Y: "cpu"}, watched); err != nil || len(p.Panels) != 1 || len(p.Panels[0].Lines[0].Points) != 2 {
		t.Errorf("over watchers: %+v, %v", p, err)
	}
	if err := p.WriteSVG(&b); err != nil {
		t.Error(err)
	}
	for _, wrong := range []bench.PlotOptions{{X: "weather", Y: "cpu"}, {X: "objects", Y: "joy"}, {X: "objects", Y: "p50"}, {X: "objects", Y: "cpu", Servers: []string{"one"}}} { // the third: no such metric
		if _, err := bench.NewPlot(wrong, reports); err == nil {
			t.Errorf("%v was drawn", wrong)
		}
	}
}

// TestBars: a list of operations becomes bars and a table; errors name the line.
func TestBars(t *testing.T) {
	dir := t.TempDir()
	both := &bench.Report{Format: bench.Format, Servers: []bench.ServerReport{
		serverReport("ours", 0, map[string]float64{"get": 47e-6, "list": 0.0034, "alone": 1}),
		serverReport("theirs", 0, map[string]float64{"get": 760e-6, "list": 6.07}),
	}}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var report strings.Builder
	if err := both.WriteJSON(&report); err != nil {
		t.Fatal(err)
	}
	write("both.json", report.String())
	const head = "# a comment\nCPU time\tA & Co\tB\n"
	bars, err := bench.ReadBars(write("rows.tsv", head+"both.json\tget\tGET of <one> pod\nboth.json\tlist\tLIST\nboth.json\tget\tmemory\trss\n"))
	if err != nil {
		t.Fatal(err)
	}
	var table, picture strings.Builder
	if err := errors.Join(bars.WriteMarkdown(&table), bars.WriteSVG(&picture)); err != nil {
		t.Fatal(err)
	}
	if want := "| operation | A & Co | B | ratio |\n|---|---|---|---|\n| GET of <one> pod | 47 µs | 760 µs | 16 |\n| LIST | 3.4 ms | 6,070 ms | 1,785 |\n| memory | 47 MiB | 760 MiB | 16 |\n"; table.String() != want {
		t.Errorf("%s\nwant\n%s", &table, want)
	}
	wellFormed(t, picture.String())
	for _, want := range []string{"CPU time", "A &amp; Co", "GET of &lt;one&gt; pod", ">16×<", "3.4 ms, not 6,070 ms", ">1000×<"} {
		if !strings.Contains(picture.String(), want) {
			t.Errorf("the picture has no %q:\n%s", want, &picture)
		}
	}
	for text, want := range map[string]string{
		"":                                "no operations",
		head:                              "no operations",
		head + "both.json\tget\n":         ":3: 2 fields",
		head + "none.json\tget\tx\n":      ":3: ",
		head + "both.json\tput\tx\n":      `no row "put"`,
		head + "both.json\tget\tx\tjoy\n": `no metric "joy": want anon, cpu, p50, p99, rss`,
		head + "both.json\tget\tx\tp50\n": `no p50 ms`,
		head + "both.json\talone\tx\n":    `no row "alone"`,
		head + "\nboth.json\tput\tx\n":    ":4: ",
		"CPU time\tA\tB\nx.json\ta\tb\n":  "x.json",
	} {
		if _, err := bench.ReadBars(write("wrong.tsv", text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
