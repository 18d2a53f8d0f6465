package tidemarktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reported is a test that records what it reports.
type reported struct {
	TB
	errors, log []string
}

func (r *reported) Helper() {}
func (r *reported) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}
func (r *reported) Logf(format string, a ...any) { r.log = append(r.log, fmt.Sprintf(format, a...)) }

// TestReport: a search reports each error, also that of a run whose disturbance did not happen.
func TestReport(t *testing.T) {
	r := &reported{TB: t}
	s := &search{t: r, name: "EveryFault", first: new(Run)}
	all := []disturbance{{}, {name: "one"}, {name: "two"}, {name: "three"}, {name: "four"}, {name: "five"}}
	s.report(all, []outcome{{tried: true}, {tried: true, missed: true}, {tried: true, missed: true, err: errors.New("lost")}, {tried: true, err: errors.New("wrong")}, {}, {tried: true, err: errors.New("wrong")}})
	if len(r.errors) != 2 || !strings.Contains(r.errors[0], "two:\nlost") || !strings.Contains(r.errors[1], "three:\nwrong\n  the same error with 1 more:\n    five") {
		t.Errorf("the errors are %q", r.errors)
	}
	if len(r.log) != 3 || !strings.Contains(r.log[0], "3 of 5 runs failed, in 2 ways") || !strings.Contains(r.log[1], "1 of 5 disturbances did not happen") || !strings.Contains(r.log[2], "before 1 of 6 runs") {
		t.Errorf("the log is %q", r.log)
	}
}

// TestReportSupersets: the shortest error comes first, and one that contains it has one line.
func TestReportSupersets(t *testing.T) {
	r := &reported{TB: t}
	s := &search{t: r, name: "EveryPrefix", first: new(Run)}
	all := []disturbance{{}, {name: "one", dir: "crash-after-write-1"}, {name: "two", dir: "two words"}, {name: "three"}, {name: "four"}}
	s.report(all, []outcome{{tried: true}, {tried: true, err: errors.New("a\nb\nc")}, {tried: true, err: errors.New("c\nb")}, {tried: true, err: errors.New("d\nb\nc\ne")}, {tried: true, err: errors.New("d\nb\nc\ne")}})
	want := []string{
		"tidemarktest: EveryPrefix: two:\nc\nb",
		"tidemarktest: EveryPrefix: one: the error of \"two\", and 1 line more\n  this run alone, with its state and history in DIR: TIDEMARK_ONLY=crash-after-write-1 TIDEMARK_DUMP=DIR go test -run '^TestReportSupersets$'",
		"tidemarktest: EveryPrefix: three: the error of \"two\", and 2 lines more; the same with 1 other run",
	}
	if len(r.errors) != 3 || r.errors[0] != want[0] || r.errors[1] != want[1] || !strings.HasPrefix(r.errors[2], want[2]) {
		t.Errorf("the errors are %q, want %q", r.errors, want)
	}
}

// TestReportWithDumps: with TIDEMARK_DUMP, a failure shows both where its state is and how to repeat its run.
func TestReportWithDumps(t *testing.T) {
	t.Setenv("TIDEMARK_DUMP", "dumps")
	s := &search{t: &reported{TB: t}, name: "EveryFault", first: new(Run)}
	if got, want := s.repeatCommand("two words"), "\n  this run alone: TIDEMARK_ONLY='two words' go test -run '^TestReportWithDumps$'"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r := &reported{TB: t}
	s.t = r
	hint := "\n  its state and history are in dumps/one" + s.repeatCommand("one")
	s.report([]disturbance{{}, {name: "one", dir: "one"}, {name: "two", dir: "two"}}, []outcome{{tried: true}, {tried: true, err: errors.New("a\nb"), hint: hint}, {tried: true, err: errors.New("b"), hint: "\n  its state"}})
	if len(r.errors) != 2 || !strings.HasSuffix(r.errors[0], "\n  its state") || !strings.HasSuffix(r.errors[1], hint) {
		t.Errorf("the errors are %q", r.errors)
	}
}

// TestPanicking: the cleanups of a test that panics know it.
func TestPanicking(t *testing.T) {
	if panicking() {
		t.Error("nothing panics")
	}
	func() {
		defer func() { recover() }()
		defer func() {
			if !panicking() {
				t.Error("the function panics")
			}
		}()
		panic("on purpose")
	}()
}

// TestSelectByDirectory: a run can be chosen by the name of the directory of its dump.
func TestSelectByDirectory(t *testing.T) {
	s := &search{t: &reported{TB: t}, name: "EveryFault", first: new(Run)}
	all := []disturbance{{dir: "undisturbed"}, {name: "one", dir: "status-500-watch jobs.batch-1"}, {name: "two", dir: "other"}}
	if got := s.selectOnly(all, "status-500-watch_jobs.batch-1"); len(got) != 2 || got[1].name != "one" {
		t.Errorf("the runs are %v", got)
	}
}

// TestTestFlag: the command that repeats a run selects the test, its subtest or its spec alone.
func TestTestFlag(t *testing.T) {
	for name, want := range map[string]string{
		"TestCrashes":           `-run '^TestCrashes$'`,
		"TestCrashes/a+b/c_d":   `-run '^TestCrashes$/^a\+b$/^c_d$'`,
		"the website (it) ends": `-ginkgo.focus='the website \(it\) ends$'`,
	} {
		if got := testFlag(name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// TestNewDumpDir: the directories of dumps are absolute and different.
func TestNewDumpDir(t *testing.T) {
	t.Chdir(t.TempDir())
	var got []string
	for _, names := range [][]string{{"Test/A", "one"}, {"Test/A", "one"}, {"Test/A", "one-2"}, {"Test/A", "one"}, {"Test/A"}} {
		got = append(got, newDumpDir("dump", names...))
	}
	root, err := filepath.Abs("dump")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"one", "one-2", "one-2-2", "one-3", ""} {
		want = append(want, filepath.Join(root, "Test_A", name))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the directories are %q, want %q", got, want)
	}
}

// historyHost is a Host whose worlds have a history.
type historyHost string

func (h historyHost) Control(context.Context, string, string, []byte) (int, io.ReadCloser, error) {
	return 200, io.NopCloser(strings.NewReader(string(h))), nil
}

// TestBusiest: the message of a world that does not settle names who writes the same object again and again.
func TestBusiest(t *testing.T) {
	line := func(key, agent string) string {
		return fmt.Sprintf(`{"verb":"update","collection":"configmaps","key":%q,"actor":{"user":%q}}`+"\n", key, agent)
	}
	busiest := func(history string) string {
		e := &Env{session: &session{control: control{historyHost(history)}}}
		return e.busiest()
	}
	hot := strings.Repeat(line("default/a", "one"), 12) + strings.Repeat(line("default/b", "two"), 15) + strings.Repeat(line("default/c", "three"), 9)
	if got, want := busiest(hot), "\nof the last 36 changes there are\n  15 times: update configmaps default/b by two\n  12 times: update configmaps default/a by one"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := busiest(line("default/a", "one")); got != "" {
		t.Errorf("one write: %q", got)
	}
}

func TestPlural(t *testing.T) {
	for want, got := range map[string]string{"is 1 match": plural(1, "match"), "are 2 matches": plural(2, "match"), "are 0 writes": plural(0, "write")} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// endingHost is a Host that ends.
type endingHost struct{ ended bool }

func (h *endingHost) Control(context.Context, string, string, []byte) (int, io.ReadCloser, error) {
	if h.ended {
		return 0, nil, errors.New("connection refused")
	}
	return 200, io.NopCloser(strings.NewReader("{}")), nil
}

// TestEndedHost: the error of a World whose server has ended says so.
func TestEndedHost(t *testing.T) {
	h := &endingHost{}
	w := &World{Host: h}
	if _, err := w.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.ended = true
	if _, err := w.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused. Has the server of World.Host ended") {
		t.Errorf("the error is %v", err)
	}
}
