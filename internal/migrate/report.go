package migrate

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Report is the result of a migration. The zero value is empty.
type Report struct {
	// Head is the newest revision, Floor the oldest one that the source can read back.
	Head, Floor uint64
	// Current reports that the newest versions were compared, and not the history.
	Current bool
	// Collections are the objects by their collection.
	Collections map[string]*Count
	// Others counts keys of etcd that are not copied, by their meaning.
	Others map[string]int
	// Problems names the first versions that differ or cannot be copied; ProblemCount is how many there are.
	Problems     []string
	ProblemCount int
	// Large is the number of versions that are larger than a request to etcd may be.
	Large int
}

// Count has the numbers of a collection.
type Count struct {
	// Objects are the current ones, Versions all that are copied, with the current ones. Deletions are
	// changes that are copied, too.
	Objects, Versions, Deletions int
	// Bytes is the size of all versions in the source.
	Bytes int64
	// Verified are the versions and deletions that were read back from the target.
	Verified int
}

// mostProblems bounds the problems that a report names.
const mostProblems = 10

func (r *Report) of(collection string) *Count {
	if r.Collections == nil {
		r.Collections = map[string]*Count{}
	}
	c := r.Collections[collection]
	if c == nil {
		c = new(Count)
		r.Collections[strings.Clone(collection)] = c
	}
	return c
}

func (r *Report) other(what string) {
	if r.Others == nil {
		r.Others = map[string]int{}
	}
	if _, known := r.Others[what]; !known && len(r.Others) >= mostOthers {
		what = "others"
	}
	r.Others[what]++
}

// mostOthers bounds the names of Others, which come from keys.
const mostOthers = 100

// problem adds a problem.
func (r *Report) problem(format string, args ...any) {
	r.ProblemCount++
	if len(r.Problems) < mostProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// Total adds up the collections.
func (r *Report) Total() (t Count) {
	for _, c := range r.Collections {
		t.Objects += c.Objects
		t.Versions += c.Versions
		t.Deletions += c.Deletions
		t.Bytes += c.Bytes
		t.Verified += c.Verified
	}
	return t
}

// Err returns an error if there are problems.
func (r *Report) Err() error {
	if r.ProblemCount == 0 {
		return nil
	}
	more := ""
	if n := r.ProblemCount - len(r.Problems); n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return &ProblemError{fmt.Sprintf("%d versions differ or cannot be copied: %s%s", r.ProblemCount, strings.Join(r.Problems, "; "), more)}
}

// ProblemError lists versions that differ or cannot be copied.
type ProblemError struct{ text string }

func (e *ProblemError) Error() string { return e.text }

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, c Count) {
		fmt.Fprintf(t, "%d\t%d\t%d\t%s\t%d\t  %s\n", c.Objects, c.Versions, c.Deletions, mebibytes(c.Bytes), c.Verified, name)
	}
	fmt.Fprintf(t, "OBJECTS\tVERSIONS\tDELETIONS\tMIB\tVERIFIED\t  COLLECTION\n")
	for _, name := range slices.Sorted(maps.Keys(r.Collections)) {
		row(name, *r.Collections[name])
	}
	row("all", r.Total())
	if err := t.Flush(); err != nil {
		return err
	}
	if r.Current {
		fmt.Fprintf(w, "\nThe newest resource version is %d. History was not compared.\n", r.Head)
	} else {
		fmt.Fprintf(w, "\nThe newest resource version is %d, and history begins at %d.\n", r.Head, r.Floor)
	}
	for _, what := range slices.Sorted(maps.Keys(r.Others)) {
		fmt.Fprintf(w, "Not copied: %d keys, %s\n", r.Others[what], what)
	}
	if r.Large > 0 {
		fmt.Fprintf(w, "%d versions are larger than the 1.5 MiB that a request to etcd may have by default: they can be read, and not written again.\n", r.Large)
	}
	_, err := fmt.Fprintln(w)
	return err
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f", float64(n)/(1<<20)) }
