// Command e2e reads the lists and the reports of a run of Kubernetes' end-to-end tests against a cluster of Tidemark. The
// script run builds and starts everything, and calls it.
//
//	go run ./test/e2e focus [LIST...]           prints the regular expression that --ginkgo.focus takes
//	go run ./test/e2e check DRYRUN.json         compares the lists with the conformance tests of the program
//	go run ./test/e2e table RUN.json [RUN.json] prints a table of the results
//
// The lists are conformance.txt and more.txt, the tests that pass without a container, and others.tsv, the conformance tests
// that do not: a regular expression of names and the reason.
package main

import (
	"bufio"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed conformance.txt more.txt others.tsv
var files embed.FS

// conformance marks the names of conformance tests.
const conformance = "[Conformance]"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want focus, check or table")
	}
	command, args := args[0], args[1:]
	switch {
	case command == "focus":
		return focus(args, out)
	case command == "check" && len(args) == 1:
		return check(args[0], out)
	case command == "table" && len(args) > 0:
		return table(args, out)
	}
	return fmt.Errorf("%s: want focus [LIST ...], check DRYRUN.json, or table RUN.json [RUN.json ...]", command)
}

// lines returns the lines of a list that are neither empty nor a comment.
func lines(r io.Reader) ([]string, error) {
	var result []string
	s := bufio.NewScanner(r)
	for s.Scan() {
		if line := strings.TrimRight(s.Text(), " \r"); line != "" && !strings.HasPrefix(line, "#") {
			result = append(result, line)
		}
	}
	return result, s.Err()
}

// list returns the lines of an embedded list.
func list(name string) ([]string, error) {
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return lines(f)
}

// focus prints the regular expression of the tests in the named files, by default those of the two lists.
func focus(paths []string, out io.Writer) error {
	var names []string
	for _, name := range []string{"conformance.txt", "more.txt"} {
		if len(paths) > 0 {
			break
		}
		part, err := list(name)
		if err != nil {
			return err
		}
		names = append(names, part...)
	}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		part, err := lines(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		names = append(names, part...)
	}
	_, err := fmt.Fprintln(out, expression(names))
	return err
}

// expression returns a regular expression that the text of a test matches if it ends with one of the names. Ginkgo puts the
// name of the suite before it.
func expression(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(?:" + strings.Join(quoted, "|") + ")$"
}

// spec is a test in a report of Ginkgo.
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	LeafType   string   `json:"LeafNodeType"`
	State      string
	RunTime    time.Duration
	Failure    struct{ Message string }
}

func (s spec) name() string { return strings.Join(append(slices.Clone(s.Containers), s.Leaf), " ") }

// read returns the tests of a report, without those that its run left out. With all, it returns these too.
func read(path string, all bool) ([]spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(text, &suites); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var result []spec
	for _, suite := range suites {
		for _, s := range suite.SpecReports {
			// A test that was not chosen is skipped without a message.
			if s.LeafType == "It" && (all || s.State != "skipped" || s.Failure.Message != "") {
				result = append(result, s)
			}
		}
	}
	if len(result) == 0 {
		return nil, fmt.Errorf("%s has no test", path)
	}
	return result, nil
}

// reason is a line of others.tsv.
type reason struct {
	names *regexp.Regexp
	text  string
}

func reasons() ([]reason, error) {
	rows, err := list("others.tsv")
	if err != nil {
		return nil, err
	}
	result := make([]reason, 0, len(rows))
	for _, row := range rows {
		pattern, text, found := strings.Cut(row, "\t")
		if !found || text == "" {
			return nil, fmt.Errorf("others.tsv: %q has no reason behind a tab", row)
		}
		names, err := regexp.Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("others.tsv: %w", err)
		}
		result = append(result, reason{names, text})
	}
	return result, nil
}

// check compares the lists with the tests of a dry run: each listed test exists, each conformance test is in conformance.txt or
// has one reason, and each reason has a test. It prints how many tests each reason has.
func check(path string, out io.Writer) error {
	specs, err := read(path, true)
	if err != nil {
		return err
	}
	listed, err := list("conformance.txt")
	if err != nil {
		return err
	}
	more, err := list("more.txt")
	if err != nil {
		return err
	}
	why, err := reasons()
	if err != nil {
		return err
	}
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.name()
	}
	var faults []error
	for _, name := range slices.Concat(listed, more) {
		if !slices.Contains(names, name) {
			faults = append(faults, fmt.Errorf("no such test: %s", name))
		}
	}
	counts, all := make([]int, len(why)), 0
	for _, name := range names {
		if !strings.Contains(name, conformance) {
			continue
		}
		all++
		matches := 0
		for i, r := range why {
			if r.names.MatchString(name) {
				counts[i]++
				matches++
			}
		}
		switch in := slices.Contains(listed, name); {
		case in && matches > 0:
			faults = append(faults, fmt.Errorf("in conformance.txt and others.tsv: %s", name))
		case !in && matches != 1:
			faults = append(faults, fmt.Errorf("%d reasons, not in conformance.txt: %s", matches, name))
		}
	}
	fmt.Fprintf(out, "%d of %d conformance tests are in conformance.txt, and %d others are in more.txt\n", len(listed), all, len(more))
	for i, r := range why {
		if counts[i] == 0 {
			faults = append(faults, fmt.Errorf("others.tsv: no test is called %s", r.names))
		}
		fmt.Fprintf(out, "%4d  %s\n", counts[i], r.text)
	}
	return errors.Join(faults...)
}

// row is a test and its results.
type row struct {
	name   string
	states []string
	time   time.Duration
	why    string
}

// table prints the results of runs. The error counts the tests that did not pass in each.
func table(paths []string, out io.Writer) error {
	rows := map[string]*row{}
	for i, path := range paths {
		specs, err := read(path, false)
		if err != nil {
			return err
		}
		for _, s := range specs {
			r := rows[s.name()]
			if r == nil {
				r = &row{name: s.name(), states: slices.Repeat([]string{"not run"}, len(paths))}
				rows[s.name()] = r
			}
			r.states[i] = s.State
			r.time = max(r.time, s.RunTime)
			if s.State != "passed" {
				r.why = s.Failure.Message
			}
		}
	}
	return write(rows, len(paths), out)
}

// write prints the rows, those that did not pass first.
func write(rows map[string]*row, runs int, out io.Writer) error {
	sorted := make([]*row, 0, len(rows))
	for _, r := range rows {
		sorted = append(sorted, r)
	}
	slices.SortFunc(sorted, func(a, b *row) int { return cmp.Or(-strings.Compare(a.why, b.why), strings.Compare(a.name, b.name)) })
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	passed, failed := 0, 0
	for _, r := range sorted {
		if slices.ContainsFunc(r.states, func(state string) bool { return state != "passed" }) {
			failed++
		} else {
			passed++
		}
		fmt.Fprintf(w, "%s\t%.1f s\t%s\t%s\n", strings.Join(r.states, "\t"), r.time.Seconds(), r.name, brief(r.why))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d tests did not pass in each of %d runs", failed, passed+failed, runs)
	}
	return nil
}

// brief returns the first 200 bytes of a message, on one line.
func brief(message string) string {
	text := strings.Join(strings.Fields(message), " ")
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
