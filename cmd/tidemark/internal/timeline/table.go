package timeline

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table prints rows with aligned columns. It can be flushed between rows: columns only grow.
type table struct {
	out io.Writer
	// width is that of the terminal. A row that is longer goes on below its second column; no cell is cut. Zero: each row is
	// one line, as programs read it.
	width  int
	rows   [][]string
	widths []int
}

func (t *table) add(row []string) { t.rows = append(t.rows, row) }

const (
	gap       = 3 // between two columns
	narrowGap = 2 // between those of a terminal
	// narrowest is the width of a terminal below which rows are not folded.
	narrowest = 40
)

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
		if t.width >= narrowest {
			t.fold(&b, row)
		} else {
			t.line(&b, row)
		}
		b.WriteByte('\n')
	}
	t.rows = nil
	_, err := io.WriteString(t.out, b.String())
	return err
}

// line writes a row as one line.
func (t *table) line(b *strings.Builder, row []string) {
	for i, cell := range row {
		b.WriteString(cell)
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", t.widths[i]-width(cell)+gap))
		}
	}
}

// fold writes a row as lines that fit the terminal. A long cell does not widen its column, but moves those right of it.
func (t *table) fold(b *strings.Builder, row []string) {
	indent := t.widths[0] + narrowGap
	at, column := 0, 0 // at counts the characters of the line, and column is where the next cell begins
	isFolded := false
	for i, cell := range row {
		switch {
		case at == 0:
			column = 0
		case isFolded:
			column = at + narrowGap
		default:
			column = max(column, at+narrowGap)
		}
		if column+width(cell) > t.width && at > indent {
			b.WriteByte('\n')
			at, column, isFolded = 0, indent, true
		}
		b.WriteString(strings.Repeat(" ", column-at))
		at = wrap(b, cell, column, indent, t.width)
		column = t.start(i + 1)
	}
}

// start returns where a column begins in a row without long cells.
func (t *table) start(column int) (at int) {
	for _, w := range t.widths[:column] {
		at += min(w, t.width/4) + narrowGap
	}
	return at
}

// wrap writes a text of words that begins at a column of a line. Words that do not fit go on the next line, after an indent. It returns
// the column where the text ends.
func wrap(b *strings.Builder, text string, at, indent, end int) int {
	for i, word := range strings.Split(text, " ") {
		switch n := width(word); {
		case i == 0:
		case at+1+n > end && at > indent:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += width(word)
	}
	return at
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
