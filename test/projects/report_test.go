package projects

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// findings are the results of comparing one project.
type findings struct {
	project                               string
	definitions, kinds, objects, requests int
	documented                            map[string]int // by row
	differences                           map[string]*finding
	at                                    string // where the mutant that is sent now has its fault
}

// finding is a kind of difference: of one verb, one fault and one place.
type finding struct {
	verb, fault, path string
	times             int
	projects          map[string]bool
	example           string
}

// add records the first difference between two responses.
func (f *findings) add(fault string, r request, row string, all []difference) {
	if row != "" {
		f.documented[row]++
		return
	}
	first := all[0]
	path := first.path
	if path == ".code" {
		path = first.peer[:min(3, len(first.peer))] + " and " + first.own[:min(3, len(first.own))]
	}
	key := strings.Join([]string{r.verb, fault, path}, " | ")
	one := f.differences[key]
	if one == nil {
		body := jsonText(r.body)
		if text, ok := r.body.([]byte); ok {
			body = string(text)
		}
		one = &finding{verb: r.verb, fault: fault, path: path, projects: map[string]bool{}, example: fmt.Sprintf("%s %s (fault at %s) %.3000s\n    %s", r.method, r.path, f.at, body, first)}
		f.differences[key] = one
	}
	one.times++
	one.projects[f.project] = true
}

// report is the table of projects, and the differences, by kind.
func report(all []*findings) string {
	var text strings.Builder
	text.WriteString("| project | definitions | kinds with samples | objects | requests | documented differences | other differences |\n|---|---:|---:|---:|---:|---:|---:|\n")
	merged, documented := map[string]*finding{}, map[string]int{}
	for _, f := range all {
		rows, others := 0, 0
		for row, n := range f.documented {
			rows, documented[row] = rows+n, documented[row]+n
		}
		for key, one := range f.differences {
			others += one.times
			if had := merged[key]; had != nil {
				had.times += one.times
				maps.Copy(had.projects, one.projects)
			} else {
				copied := *one
				copied.projects = maps.Clone(one.projects)
				merged[key] = &copied
			}
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %d | %d | %d | %d |\n", f.project, f.definitions, f.kinds, f.objects, f.requests, rows, others)
	}
	text.WriteString("\n| row of docs/compatibility.md | differences |\n|---|---:|\n")
	for _, row := range slices.Sorted(maps.Keys(documented)) {
		fmt.Fprintf(&text, "| %s | %d |\n", row, documented[row])
	}
	if len(merged) == 0 {
		text.WriteString("\nNo other differences.\n")
		return text.String()
	}
	text.WriteString("\n| verb | fault | where | times | projects |\n|---|---|---|---:|---:|\n")
	sorted := slices.SortedFunc(maps.Values(merged), func(a, b *finding) int {
		return cmp.Or(cmp.Compare(b.times, a.times), strings.Compare(a.verb+a.fault+a.path, b.verb+b.fault+b.path))
	})
	for _, one := range sorted {
		fmt.Fprintf(&text, "| %s | %s | `%s` | %d | %d |\n", one.verb, one.fault, one.path, one.times, len(one.projects))
	}
	return text.String()
}

// examples has one request of each kind of difference.
func (f *findings) examples() string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(f.differences)) {
		fmt.Fprintf(&text, "%s (%d)\n  %s\n", key, f.differences[key].times, f.differences[key].example)
	}
	return text.String()
}
