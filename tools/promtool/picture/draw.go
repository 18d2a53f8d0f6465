package main

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The picture, in pixels.
const (
	columns                 = 3
	panelWidth, panelHeight = 300, 190
	left, right             = 56, 14
	top, bottom             = 28, 56 // the time axis and two lines of names are below
	charWidth               = 5.6    // of a text of 10 pixels, rather too much
	head                    = 34
)

// namesOf is how many series of a panel are drawn: the largest.
const namesOf = 6

var colours = []string{"#1b6ca8", "#e08e0b", "#2e933c", "#8e5ea2", "#d1495b", "#6d6875"}

// draw draws the panels that have something to show.
func draw(title string, panels []panel) []byte {
	var shown []panel
	end := 1.0
	for _, p := range panels {
		if p = p.largest(); len(p.series) == 0 {
			continue
		}
		shown = append(shown, p)
		for _, s := range p.series {
			end = max(end, s.points[len(s.points)-1].time)
		}
	}
	width, height := columns*panelWidth, head+(len(shown)+columns-1)/columns*panelHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="10" fill="#444">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<title>%s</title><rect width="100%%" height="100%%" fill="#f4f5f5"/><text x="8" y="22" font-size="15" font-weight="bold">%[1]s</text>`+"\n", html.EscapeString(title))
	for i, p := range shown {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*panelWidth, head+i/columns*panelHeight)
		p.draw(&b, end)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// largest returns the panel with its largest series, and without those that are never above zero.
func (p panel) largest() panel {
	most := func(s series) float64 {
		m := math.Inf(-1)
		for _, pt := range s.points {
			if !math.IsNaN(pt.value) && !math.IsInf(pt.value, 0) {
				m = max(m, pt.value)
			}
		}
		return m
	}
	all := slices.DeleteFunc(slices.Clone(p.series), func(s series) bool { return !(most(s) > 0) })
	slices.SortStableFunc(all, func(a, b series) int { return cmp.Compare(most(b), most(a)) })
	p.series = all[:min(len(all), namesOf)]
	return p
}

func (p panel) draw(b *strings.Builder, end float64) {
	high := 0.0
	for _, s := range p.series {
		for _, pt := range s.points {
			if !math.IsInf(pt.value, 0) && !math.IsNaN(pt.value) {
				high = max(high, pt.value)
			}
		}
	}
	step := stepOf(high/3, p.unit)
	high = math.Ceil(high/step) * step
	x := func(t float64) float64 { return left + t/end*(panelWidth-left-right) }
	y := func(v float64) float64 { return panelHeight - bottom - v/high*(panelHeight-top-bottom) }
	fmt.Fprintf(b, `<rect x="3" y="3" width="%d" height="%d" rx="3" fill="#fff" stroke="#ddd"/><text x="10" y="18" font-size="11" font-weight="bold">%s</text>`+"\n",
		panelWidth-6, panelHeight-6, html.EscapeString(p.title))
	for v := 0.0; v <= high*1.001; v += step {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#e4e4e4"/><text x="%d" y="%.1f" text-anchor="end" fill="#777">%s</text>`+"\n",
			left, y(v), panelWidth-right, left-4, y(v)+3, inUnit(v, p.unit))
	}
	every := 10.0
	for end/every > 6 {
		every *= 2
	}
	for t := 0.0; t <= end; t += every {
		fmt.Fprintf(b, `<path d="M%.1f %dv3" stroke="#999"/><text x="%.1f" y="%d" text-anchor="middle" fill="#777">%d:%02d</text>`+"\n",
			x(t), panelHeight-bottom, x(t), panelHeight-bottom+13, int(t)/60, int(t)%60)
	}
	for i, s := range p.series {
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.3"/>`+"\n", s.path(x, y), colours[i])
	}
	p.names(b)
}

// path is the line of a series, with gaps where it has no value.
func (s series) path(x, y func(float64) float64) string {
	var b strings.Builder
	previous := math.Inf(-1)
	for _, pt := range s.points {
		if math.IsNaN(pt.value) || math.IsInf(pt.value, 0) {
			continue
		}
		command := "L"
		if pt.time-previous > 1.5 {
			command = "M"
		}
		previous = pt.time
		fmt.Fprintf(&b, "%s%.1f %.1f", command, x(pt.time), y(pt.value))
	}
	return b.String()
}

// names writes the names of the series in two lines below the time axis. What has no room is shortened.
func (p panel) names(b *strings.Builder) {
	perLine := (len(p.series) + 1) / 2
	if len(p.series) <= 2 {
		perLine = len(p.series)
	}
	each := (panelWidth - 20) / perLine
	for i, s := range p.series {
		at, line := 10+i%perLine*each, i/perLine
		name := []rune(s.name)
		if room := int((float64(each) - 16) / charWidth); len(name) > room {
			name = append(name[:room-1], '…')
		}
		y := panelHeight - bottom + 30 + line*14
		fmt.Fprintf(b, `<rect x="%d" y="%d" width="8" height="8" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", at, y-8, colours[i], at+11, y, html.EscapeString(string(name)))
	}
}

// stepOf rounds the distance of two ticks up to 1, 2 or 5 times a power of ten: of bytes and their multiples, of seconds, minutes or
// days, of the unit otherwise.
func stepOf(v float64, unit string) float64 {
	base := 1.0
	switch {
	case isBytes(unit):
		for v/base >= 1024 {
			base *= 1024
		}
	case unit == "s" && v >= 86400:
		base = 86400
	case unit == "s" && v >= 60:
		base = 60
	}
	power := math.Pow(10, math.Floor(math.Log10(v/base)))
	for _, of := range []float64{1, 2, 5, 10} {
		if of*power >= v/base {
			return of * power * base
		}
	}
	return 10 * power * base
}

func isBytes(unit string) bool { return unit == "bytes" || unit == "Bps" }

// inUnit formats a value as Grafana does.
func inUnit(v float64, unit string) string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	scaled := func(v, step float64, units ...string) string {
		i := 0
		for ; i < len(units)-1 && v >= step; i++ {
			v /= step
		}
		return strings.TrimSpace(number(math.Round(v*100)/100) + " " + units[i])
	}
	switch {
	case v == 0:
		return "0"
	case unit == "percentunit":
		return number(100*v) + " %"
	case unit == "s" && v < 120:
		return scaled(v*1e6, 1000, "µs", "ms", "s")
	case unit == "s" && v < 2*86400:
		return number(v/60) + " min"
	case unit == "s":
		return number(math.Round(v/86400)) + " d"
	case unit == "bytes":
		return scaled(v, 1024, "B", "KiB", "MiB", "GiB")
	case unit == "Bps":
		return scaled(v, 1024, "B/s", "KiB/s", "MiB/s", "GiB/s")
	case unit == "reqps" || unit == "ops":
		return strings.ReplaceAll(scaled(v, 1000, "", "k", "M")+"/s", " ", "")
	}
	if v < 1 {
		return number(v)
	}
	return strings.ReplaceAll(scaled(v, 1000, "", "k", "M"), " ", "")
}
