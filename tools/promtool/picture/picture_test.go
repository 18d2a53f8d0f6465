package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wellFormed checks that a picture is XML, that each panel has a time axis and a line, and that no text leaves its panel.
func wellFormed(t *testing.T, picture string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %s", err, picture)
		}
	}
	text := regexp.MustCompile(`<text x="([\d.-]+)"([^>]*)>([^<]*)<`)
	panels := strings.Split(picture, "<g transform=")[1:]
	if len(panels) == 0 {
		t.Error("there are no panels")
	}
	for i, p := range panels {
		if !strings.Contains(p, ">0:10<") || !strings.Contains(p, `fill="none" stroke="#`) {
			t.Errorf("panel %d has no time axis, or no line", i)
		}
		for _, m := range text.FindAllStringSubmatch(p, -1) {
			x, _ := strconv.ParseFloat(m[1], 64)
			length := 5.2 * float64(len([]rune(m[3])))
			switch {
			case strings.Contains(m[2], `"end"`):
				x -= length
			case strings.Contains(m[2], `"middle"`):
				x -= length / 2
			}
			if x < 0 || x+length > panelWidth {
				t.Errorf("panel %d: %q goes from %.0f to %.0f of %d", i, m[3], x, x+length, panelWidth)
			}
		}
	}
}

// TestDraw: series get colours, names that fit and a time axis; panels without values are left out.
func TestDraw(t *testing.T) {
	line := func(name string, high float64) series {
		s := series{name: name}
		for i := range 40 {
			s.points = append(s.points, point{float64(i), high * float64(i%7)})
		}
		return s
	}
	many := panel{title: "Many <x>", unit: "Bps"}
	for i := range 9 {
		many.series = append(many.series, line(fmt.Sprintf("a-rather-long-name-of-resource-%d", i), float64(i)*1e6))
	}
	picture := string(draw("a & b", []panel{
		many,
		{title: "Empty"},
		{title: "Zero", series: []series{line("zero", 0)}},
		{title: "No number", series: []series{{"nan", []point{{1, math.NaN()}}}}},
		{title: "Time", unit: "s", series: []series{line("x", 0.0001)}},
	}))
	wellFormed(t, picture)
	for _, want := range []string{"a &amp; b", "Many &lt;x&gt;", ">0:30<", "MiB/s<", "µs<"} {
		if !strings.Contains(picture, want) {
			t.Errorf("it has no %q", want)
		}
	}
	for _, unwanted := range []string{"Empty", "Zero", "No number", "NaN"} {
		if strings.Contains(picture, unwanted) {
			t.Errorf("it has %q", unwanted)
		}
	}
}

// TestEvaluate: scrapes become the series of a panel.
func TestEvaluate(t *testing.T) {
	db, err := newDatabase(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer db.close()
	begin := time.Unix(1_800_000_000, 0)
	for i := range 20 {
		if err := db.add(fmt.Appendf(nil, "# TYPE n counter\nn{code=\"200\"} %d\nn{code=\"500\"} 0\n", 10*i), begin.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	panels, err := parsePanels([]byte(`{"panels":[{"type":"row","title":"x"},{"type":"timeseries","title":"Requests","fieldConfig":{"defaults":{"unit":"reqps"}},
		"targets":[{"expr":"sum by (code) (rate(n{instance=\"$instance\"}[$__rate_interval]))","legendFormat":"{{code}} x"}]}]}`))
	if err != nil || len(panels) != 1 {
		t.Fatalf("%v %v", panels, err)
	}
	if err := db.evaluate(t.Context(), &panels[0]); err != nil {
		t.Fatal(err)
	}
	p := panels[0].largest()
	if len(panels[0].series) != 2 || len(p.series) != 1 || p.series[0].name != "200 x" || math.Abs(p.series[0].points[10].value-10) > 0.01 {
		t.Errorf("%+v", p)
	}
}

// TestPicture: the picture of the documents shows panels of the dashboard.
func TestPicture(t *testing.T) {
	picture, err := os.ReadFile("../" + file)
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(picture))
	text, err := os.ReadFile("../" + root + "/deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	panels, err := parsePanels(text)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, p := range panels {
		known[p.title] = true
	}
	for _, m := range regexp.MustCompile(`font-size="11" font-weight="bold">([^<]*)<`).FindAllStringSubmatch(string(picture), -1) {
		if !known[m[1]] {
			t.Errorf("the dashboard has no panel %q: run cd tools/promtool && GOWORK=off go run ./picture", m[1])
		}
	}
}
