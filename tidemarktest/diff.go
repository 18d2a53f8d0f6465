package tidemarktest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	// maxFieldDiffs is how many fields a message shows of one change.
	maxFieldDiffs = 6
	// maxValueBytes is how much it shows of a value.
	maxValueBytes = 80
	// maxDiffLines is how many lines a message shows of one difference.
	maxDiffLines = 120
)

// fieldDiffs returns the fields in which two versions of an object differ, a line each, without those
// that differ in each change.
func fieldDiffs(c *Change) []string {
	if c.Before == nil || c.After == nil {
		return nil
	}
	before, err := decodeObject(c.Before)
	if err != nil {
		return nil
	}
	after, err := decodeObject(c.After)
	if err != nil {
		return nil
	}
	for _, o := range []map[string]any{before, after} {
		if m, ok := o["metadata"].(map[string]any); ok {
			delete(m, "resourceVersion")
			delete(m, "managedFields")
			delete(m, "generation")
		}
	}
	var lines []string
	diffValues("", before, after, &lines)
	if len(lines) > maxFieldDiffs {
		lines = append(lines[:maxFieldDiffs], fmt.Sprintf("and %d more fields", len(lines)-maxFieldDiffs))
	}
	return lines
}

// diffValues appends the differences of two JSON values at a path.
func diffValues(path string, a, b any, lines *[]string) {
	x, isMap := a.(map[string]any)
	y, both := b.(map[string]any)
	if !isMap || !both {
		if s, t := shortValue(a), shortValue(b); yamlText(a) != yamlText(b) {
			*lines = append(*lines, fmt.Sprintf("%s: %s -> %s", strings.TrimPrefix(path, "."), s, t))
		}
		return
	}
	names := maps.Clone(x)
	maps.Copy(names, y)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		v, inA := x[name]
		w, inB := y[name]
		switch {
		case !inA:
			*lines = append(*lines, fmt.Sprintf("%s: added %s", strings.TrimPrefix(path+"."+name, "."), shortValue(w)))
		case !inB:
			*lines = append(*lines, fmt.Sprintf("%s: removed %s", strings.TrimPrefix(path+"."+name, "."), shortValue(v)))
		default:
			diffValues(path+"."+name, v, w, lines)
		}
	}
}

func shortValue(v any) string {
	text := strings.Join(strings.Fields(yamlText(v)), " ")
	if len(text) > maxValueBytes {
		text = strings.ToValidUTF8(text[:maxValueBytes], "") + "..."
	}
	return text
}

// diffEnds returns the lines in which two ends differ: those of want after "-", those of got after
// "+"; empty if they are the same. Both are ordered by ID.
func diffEnds(want, got []endObject) string {
	var lines []string
	for len(want) > 0 || len(got) > 0 {
		switch {
		case len(got) == 0 || len(want) > 0 && want[0].id < got[0].id:
			lines = append(lines, "- "+want[0].id)
			lines = append(lines, diffLines(strings.Split(strings.TrimSuffix(want[0].text, "\n"), "\n"), nil)...)
			want = want[1:]
		case len(want) == 0 || got[0].id < want[0].id:
			lines = append(lines, "+ "+got[0].id)
			lines = append(lines, diffLines(nil, strings.Split(strings.TrimSuffix(got[0].text, "\n"), "\n"))...)
			got = got[1:]
		default:
			if want[0].text != got[0].text {
				lines = append(lines, "  "+want[0].id)
				lines = append(lines, diffLines(strings.Split(strings.TrimSuffix(want[0].text, "\n"), "\n"), strings.Split(strings.TrimSuffix(got[0].text, "\n"), "\n"))...)
			}
			want, got = want[1:], got[1:]
		}
	}
	if len(lines) > maxDiffLines {
		lines = append(lines[:maxDiffLines], fmt.Sprintf("... and %d more lines", len(lines)-maxDiffLines))
	}
	return strings.Join(lines, "\n")
}

// maxTableCells bounds the work of diffLines. Beyond it, all lines between the first and the last
// difference count as different.
const maxTableCells = 1 << 20

// diffLines returns the lines that are only in one of two texts, without the others.
func diffLines(a, b []string) []string {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	// common[i][j] is the length of the longest common subsequence of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	small := len(a)*len(b) <= maxTableCells
	for i := len(a); i >= 0 && small; i-- {
		common[i] = make([]int, len(b)+1)
		for j := len(b) - 1; j >= 0 && i < len(a); j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && small && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && (!small || common[i+1][j] >= common[i][j+1]):
			out = append(out, "-     "+a[i])
			i++
		default:
			out = append(out, "+     "+b[j])
			j++
		}
	}
	return out
}
