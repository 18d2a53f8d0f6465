package timeline

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table prints rows with aligned columns. It can be flushed between rows: columns only grow.
type table struct {
	out    io.Writer
	rows   [][]string
	widths []int
}

func (t *table) add(row []string) { t.rows = append(t.rows, row) }

// gap is between two columns.
const gap = 3

func (t *table) flush() error {
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], width(cell))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", t.widths[i]-width(cell)+gap))
			}
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.out, b.String())
	return err
}

// width is the number of characters that a terminal shows.
func width(cell string) (n int) {
	for {
		before, after, ok := strings.Cut(cell, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !ok {
			return n
		}
		_, cell, _ = strings.Cut(after, "m")
	}
}

// Colours of a terminal.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
	bold   = "1"
)

// paint colours a text if the output shows colours.
func (e *Env) paint(color, text string) string {
	if !e.Color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[m"
}
