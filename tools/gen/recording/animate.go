package main

import (
	"fmt"
	"html"
	"strings"
	"time"
)

// The terminal: its size in characters, and that of a character in pixels.
const (
	columns, rows        = 92, 22
	charWidth, rowHeight = 7.8, 18.0
	margin               = 14
)

// The times of the animation. Pauses are those that a reader needs, not those of a slow machine.
const (
	typing   = 13 * time.Millisecond  // of a character
	longest  = 600 * time.Millisecond // that an output is waited for
	reading  = 200 * time.Millisecond // of a line of output, before the next command
	thinking = 300 * time.Millisecond // before a command
	atEnd    = 3 * time.Second        // before it begins again
)

// row is a line of the screen.
type row struct {
	text    string
	command bool
	at      time.Duration // when it appears, or begins to be typed
}

// schedule returns the lines of the screen with their times, and the length of the animation.
func schedule(all []shown) (screen []row, length time.Duration) {
	at := time.Duration(0)
	for _, s := range all {
		at += thinking
		screen = append(screen, row{s.command, true, at})
		at += time.Duration(len(s.command)) * typing
		began := at
		for _, l := range s.lines {
			text := []rune(l.text)
			for first := true; first || len(text) > 0; first = false {
				n := min(len(text), columns)
				screen = append(screen, row{string(text[:n]), false, began + min(l.after, longest)})
				text = text[n:]
			}
		}
		at += min(s.took, longest) + reading*time.Duration(len(s.lines))
	}
	return screen, at + atEnd
}

// animate draws the screen as an SVG that repeats without end. Without animations, for readers who do not want them and for
// programs that have none, it is the screen at the end.
func animate(all []shown) []byte {
	screen, length := schedule(all)
	percent := func(at time.Duration) float64 { return 100 * at.Seconds() / length.Seconds() }
	width, height := columns*charWidth+2*margin, rows*rowHeight+2*margin
	scrolled := max(0, len(screen)-rows)
	var css, text strings.Builder
	fmt.Fprintf(&css, "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d4d4d4;white-space:pre}.c{fill:#fff;font-weight:bold}.p{fill:#4ec9b0}.n{fill:#6a9955}"+
		"#s{transform:translateY(%.1fpx)}\n@media (prefers-reduced-motion:no-preference){.r,#s,.t{animation-duration:%.2fs;animation-iteration-count:infinite;animation-timing-function:step-end}\n",
		-float64(scrolled)*rowHeight, length.Seconds())
	var scroll strings.Builder
	for i, r := range screen {
		y := margin + float64(i)*rowHeight + 13
		fmt.Fprintf(&css, "#r%d{animation-name:r%[1]d}@keyframes r%[1]d{0%%{opacity:0}%.3f%%,100%%{opacity:1}}\n", i, percent(r.at))
		if r.command {
			n := len([]rune(r.text))
			end := r.at + time.Duration(n)*typing
			fmt.Fprintf(&css, "#t%d{animation-name:t%[1]d}@keyframes t%[1]d{0%%{transform:translateX(0)}%.3f%%{transform:translateX(0);animation-timing-function:steps(%d)}%.3f%%,100%%{transform:translateX(%.1fpx)}}\n",
				i, percent(r.at), n, percent(end), float64(n)*charWidth)
		}
		if i >= rows {
			fmt.Fprintf(&scroll, "%.3f%%{transform:translateY(%.1fpx)}", percent(r.at), -float64(i-rows+1)*rowHeight)
		}
		text.WriteString(r.draw(i, y))
	}
	fmt.Fprintf(&css, "#s{animation-name:s}@keyframes s{0%%{transform:translateY(0)}%s100%%{transform:translateY(%.1fpx)}}}\n", scroll.String(), -float64(scrolled)*rowHeight)
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f">
<title>A terminal in which Tidemark runs</title>
<style>
%s</style>
<rect width="100%%" height="100%%" rx="8" fill="#1e1e1e"/>
<svg x="0" y="%d" width="%.0f" height="%.0f" viewBox="0 %[6]d %.0f %.0f"><g id="s">
%s</g></svg>
</svg>
`, width, height, width, height, css.String(), margin, width, rows*rowHeight, text.String())
}

// draw returns the text of a row. A cover moves off a command while it is typed.
func (r row) draw(i int, y float64) string {
	if !r.command {
		return fmt.Sprintf(`<g class="r" id="r%d">%s</g>`+"\n", i, chars(r.text, "", margin, y))
	}
	class := "c"
	if strings.HasPrefix(r.text, "#") {
		class = "n"
	}
	x := margin + 2*charWidth
	return fmt.Sprintf(`<g class="r" id="r%d">%s%s<rect class="t" id="t%d" x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="#1e1e1e" transform="translate(%.1f)"/></g>`+"\n",
		i, chars("$", "p", margin, y), chars(r.text, class, x, y), i, x, y-13, columns*charWidth, rowHeight, columns*charWidth)
}

// chars is a text whose characters have the width of the terminal's, whatever the font.
func chars(text, class string, x, y float64) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return fmt.Sprintf(`<text class="%s" x="%.1f" y="%.1f" textLength="%.1f" lengthAdjust="spacingAndGlyphs" xml:space="preserve">%s</text>`,
		class, x, y, float64(len([]rune(text)))*charWidth, html.EscapeString(text))
}
