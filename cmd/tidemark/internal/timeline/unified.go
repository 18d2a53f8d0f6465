package timeline

import (
	"fmt"
	"io"
	"strings"
)

const (
	// contextLines is how many equal lines are around a difference.
	contextLines = 3
	// maxEdits bounds the search for the shortest difference. Longer ones are printed as one replacement.
	maxEdits = 1000
)

// edit is a line: equal in both texts (' '), only in the first ('-'), or only in the second ('+').
type edit struct {
	kind byte
	line string
}

// unified writes the difference of two texts as diff -u does.
func (e *Env) unified(out io.Writer, nameA, a, nameB, b string) error {
	var w strings.Builder
	fmt.Fprintln(&w, e.paint(bold, "--- "+nameA))
	fmt.Fprintln(&w, e.paint(bold, "+++ "+nameB))
	edits := difference(splitLines(a), splitLines(b))
	lineA, lineB := 1, 1
	for i := 0; i < len(edits); {
		if edits[i].kind == ' ' {
			i, lineA, lineB = i+1, lineA+1, lineB+1
			continue
		}
		start := max(0, i-contextLines)
		end, equal := i, 0
		for end < len(edits) && equal <= 2*contextLines {
			if edits[end].kind == ' ' {
				equal++
			} else {
				equal = 0
			}
			end++
		}
		end -= max(0, equal-contextLines)
		e.hunk(&w, edits[start:end], lineA-(i-start), lineB-(i-start))
		for _, d := range edits[i:end] {
			if d.kind != '+' {
				lineA++
			}
			if d.kind != '-' {
				lineB++
			}
		}
		i = end
	}
	_, err := io.WriteString(out, w.String())
	return err
}

func (e *Env) hunk(w *strings.Builder, edits []edit, lineA, lineB int) {
	var inA, inB int
	for _, d := range edits {
		if d.kind != '+' {
			inA++
		}
		if d.kind != '-' {
			inB++
		}
	}
	span := func(line, n int) string {
		switch n {
		case 0:
			return fmt.Sprintf("%d,0", line-1)
		case 1:
			return fmt.Sprint(line)
		}
		return fmt.Sprintf("%d,%d", line, n)
	}
	fmt.Fprintln(w, e.paint(cyan, fmt.Sprintf("@@ -%s +%s @@", span(lineA, inA), span(lineB, inB))))
	for _, d := range edits {
		text := string(d.kind) + d.line
		switch d.kind {
		case '-':
			text = e.paint(red, text)
		case '+':
			text = e.paint(green, text)
		}
		fmt.Fprintln(w, text)
	}
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// difference returns the shortest edits from a to b, by the algorithm of Myers.
func difference(a, b []string) (edits []edit) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		edits = append(edits, edit{' ', a[0]})
		a, b = a[1:], b[1:]
	}
	var tail []edit
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, edit{' ', a[len(a)-1]})
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	edits = append(edits, middle(a, b)...)
	for i := len(tail) - 1; i >= 0; i-- {
		edits = append(edits, tail[i])
	}
	return edits
}

// middle compares texts that begin and end differently.
func middle(a, b []string) (edits []edit) {
	most := min(len(a)+len(b), maxEdits)
	furthest := make([]int, 2*most+2)
	var traces [][]int
	at := func(v []int, k int) int { return v[k+most] }
	for d := 0; d <= most && len(a) > 0 && len(b) > 0; d++ {
		for k := -d; k <= d; k += 2 {
			x := 0
			switch {
			case d == 0:
			case k == -d || k != d && at(furthest, k-1) < at(furthest, k+1):
				x = at(furthest, k+1)
			default:
				x = at(furthest, k-1) + 1
			}
			y := x - k
			for x < len(a) && y < len(b) && a[x] == b[y] {
				x, y = x+1, y+1
			}
			furthest[k+most] = x
			if x >= len(a) && y >= len(b) {
				return backward(a, b, traces)
			}
		}
		traces = append(traces, append([]int(nil), furthest[most-d:most+d+1]...))
	}
	for _, line := range a {
		edits = append(edits, edit{'-', line})
	}
	for _, line := range b {
		edits = append(edits, edit{'+', line})
	}
	return edits
}

// backward follows the traces from the end. traces[d] has the furthest x of the diagonals -d to d.
func backward(a, b []string, traces [][]int) (edits []edit) {
	x, y := len(a), len(b)
	for d := len(traces); d > 0; d-- {
		v := traces[d-1]
		at := func(k int) int {
			if i := k + d - 1; i >= 0 && i < len(v) {
				return v[i]
			}
			return -1
		}
		k := x - y
		from := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			from = k + 1
		}
		fromX := at(from)
		fromY := fromX - from
		for x > fromX && y > fromY && x > 0 && y > 0 && a[x-1] == b[y-1] {
			x, y = x-1, y-1
			edits = append(edits, edit{' ', a[x]})
		}
		if from == k+1 {
			y--
			edits = append(edits, edit{'+', b[y]})
		} else {
			x--
			edits = append(edits, edit{'-', a[x]})
		}
	}
	for x > 0 && y > 0 {
		x, y = x-1, y-1
		edits = append(edits, edit{' ', a[x]})
	}
	for i, j := 0, len(edits)-1; i < j; i, j = i+1, j-1 {
		edits[i], edits[j] = edits[j], edits[i]
	}
	return edits
}
