package conformance

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "pass"
	Failed Outcome = "fail"
	// Absent: the server has not got the feature.
	Absent Outcome = "absent"
	// Skipped: something that the check needs is not there, as a right.
	Skipped Outcome = "skipped"
)

// Format is the version of the JSON that WriteJSON writes.
const Format = "tidemark-conformance/1"

// Report is the result of a run.
type Report struct {
	Format string    `json:"format"`
	Date   time.Time `json:"date"`
	Server string    `json:"server"`
	// Version is the version that the server reports.
	Version string `json:"version"`
	// Resource is the type whose objects the checks were made with.
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Seed      uint64 `json:"seed"`
	// Seconds that the run took.
	Seconds float64  `json:"seconds"`
	Results []Result `json:"results"`
	// Unable describes a requested operation that could not be done, such as restarting the server.
	Unable string `json:"unable,omitempty"`
	// Left names objects that could not be removed.
	Left []string `json:"left,omitempty"`
	// Interrupted is set if not all checks were run.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Result is the result of a check.
type Result struct {
	Check
	Outcome Outcome `json:"outcome"`
	// Message has the actual and the wanted result, or why the check did not run.
	Message string `json:"message,omitempty"`
	// NoRight is true if the check was skipped because the user lacks a permission.
	NoRight bool `json:"noRight,omitempty"`
	// Exchanges are the last requests of a check that did not pass.
	Exchanges []Exchange `json:"exchanges,omitempty"`
	Seconds   float64    `json:"seconds"`
}

// Exchange is a request and its response, as texts.
type Exchange struct {
	// Request is a command line for curl, with the reader's token in $TOKEN.
	Request  string `json:"request"`
	Response string `json:"response"`
}

// Bad reports whether the result makes a server fail: a promise that binds and that
// is not kept, or that is of a feature which is not there.
func (r Result) Bad() bool {
	return r.Level == Must && (r.Outcome == Failed || r.Outcome == Absent)
}

// Bad are the results that make the server fail.
func (r *Report) Bad() []Result {
	var bad []Result
	for _, x := range r.Results {
		if x.Bad() {
			bad = append(bad, x)
		}
	}
	return bad
}

// Forbidden are the checks that were not run for the lack of a right.
func (r *Report) Forbidden() []Result {
	var some []Result
	for _, x := range r.Results {
		if x.NoRight {
			some = append(some, x)
		}
	}
	return some
}

// Ran reports whether any check could be run. Of a server that was not looked at
// there is no result.
func (r *Report) Ran() bool {
	return slices.ContainsFunc(r.Results, func(x Result) bool { return x.Outcome != Skipped })
}

// count returns how many results of a level ended in a way.
func (r *Report) count(l Level, o Outcome) int {
	n := 0
	for _, x := range r.Results {
		if x.Level == l && x.Outcome == o {
			n++
		}
	}
	return n
}

// WriteJSON writes the report, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// WriteTable writes the report for people: a row for each check, then the failures with their
// requests and responses, then the sums.
func (r *Report) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s %s, %s in the namespace %s, seed %d\n\n", r.Server, r.Version, r.Resource, r.Namespace, r.Seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "check\tlevel\toutcome\tsource")
	for _, x := range r.Results {
		outcome := string(x.Outcome)
		if x.Bad() {
			outcome = strings.ToUpper(outcome)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", x.ID, x.Level, outcome, x.Source)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, x := range r.Results {
		if x.Outcome != Passed {
			x.write(w)
		}
	}
	fmt.Fprintf(w, "\n%d checks in %.1f s:\n", len(r.Results), r.Seconds)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tpass\tfail\tabsent\tskipped\t")
	for _, l := range []Level{Must, Should, May} {
		fmt.Fprintf(t, "%s\t", l)
		for _, o := range []Outcome{Passed, Failed, Absent, Skipped} {
			fmt.Fprintf(t, "%d\t", r.count(l, o))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	r.writeLimits(w)
	if len(r.Left) > 0 {
		fmt.Fprintf(w, "\nleft behind: %s\n", strings.Join(r.Left, "; "))
	}
	if r.Interrupted {
		fmt.Fprintln(w, "\nThe run was interrupted.")
	}
	if r.Unable != "" {
		fmt.Fprintf(w, "\nNot done: %s\n", r.Unable)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// longWait is the duration of a check from which on the report has the reason of its wait.
const longWait = 10 // seconds

// writeLimits lists the checks that did not run because a permission was missing, and the
// checks that took long.
func (r *Report) writeLimits(w io.Writer) {
	if forbidden := r.Forbidden(); len(forbidden) > 0 {
		fmt.Fprintf(w, "\n%d checks were not run, because what they do is forbidden to this user:\n", len(forbidden))
		for _, x := range forbidden {
			fmt.Fprintf(w, "  %s\n", x.ID)
		}
	}
	for _, x := range r.Results {
		if x.Seconds >= longWait && x.Waits != "" {
			fmt.Fprintf(w, "\n%s took %.0f s: it waits for %s\n", x.ID, x.Seconds, x.Waits)
		}
	}
}

// write writes the details of a check that did not pass.
func (x Result) write(w io.Writer) {
	fmt.Fprintf(w, "\n%s %s: %s\n  %s (%s)\n  %s\n", x.ID, x.Outcome, x.Level, x.About, x.Source, indent(x.Message))
	if x.Outcome != Failed {
		return
	}
	for _, e := range x.Exchanges {
		fmt.Fprintf(w, "    $ %s\n    %s\n", indent(indent(e.Request)), indent(indent(e.Response)))
	}
}

func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n  ") }

// The form of JUnit's XML that build servers read.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string    `xml:"classname,attr"`
		Name    string    `xml:"name,attr"`
		Seconds string    `xml:"time,attr"`
		Failure *junitEnd `xml:"failure,omitempty"`
		Skipped *junitEnd `xml:"skipped,omitempty"`
	}
	junitEnd struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the report as JUnit XML, with a suite for each area. A failed SHOULD or
// MAY does not fail the server: it is reported as skipped.
func (r *Report) WriteJUnit(w io.Writer) error {
	var all junitSuites
	for _, x := range r.Results {
		n := len(all.Suites)
		if n == 0 || all.Suites[n-1].Name != x.Area() {
			all.Suites = append(all.Suites, junitSuite{Name: x.Area()})
			n++
		}
		s := &all.Suites[n-1]
		s.Tests++
		c := junitCase{Class: "conformance." + x.Area(), Name: x.ID, Seconds: fmt.Sprintf("%.3f", x.Seconds)}
		var text strings.Builder
		x.write(&text)
		end := &junitEnd{Message: printable([]byte(string(x.Outcome) + ": " + x.Message)), Text: printable([]byte(text.String()))}
		switch {
		case x.Bad():
			s.Failures++
			c.Failure = end
		case x.Outcome != Passed:
			s.Skipped++
			c.Skipped = end
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
