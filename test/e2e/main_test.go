package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// report writes a report of Ginkgo with a test for each name and state, and returns its path.
func report(t *testing.T, states map[string]string) string {
	t.Helper()
	type failure struct{ Message string }
	type leaf struct {
		ContainerHierarchyTexts    []string
		LeafNodeText, LeafNodeType string
		State                      string
		RunTime                    int64
		Failure                    *failure `json:",omitempty"`
	}
	leaves := []leaf{{LeafNodeType: "SynchronizedBeforeSuite", State: "passed"}}
	for name, state := range states {
		container, text, _ := strings.Cut(name, " ")
		l := leaf{ContainerHierarchyTexts: []string{container}, LeafNodeText: text, LeafNodeType: "It", State: state, RunTime: 1e9}
		if state == "failed" {
			l.Failure = &failure{"want 1\n  got 2"}
		}
		leaves = append(leaves, l)
	}
	text, err := json.Marshal([]map[string]any{{"SpecReports": leaves}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestLists finds a name that is in two lists or twice in one, one that others.tsv has a reason for, and a list without order.
func TestLists(t *testing.T) {
	why, err := reasons()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range []string{"conformance.txt", "more.txt"} {
		names, err := list(file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(names) {
			t.Errorf("%s is not sorted", file)
		}
		for _, name := range names {
			if seen[name] {
				t.Errorf("%s: a second time: %s", file, name)
			}
			seen[name] = true
			if (file == "conformance.txt") != strings.Contains(name, conformance) {
				t.Errorf("%s is the wrong list: %s", file, name)
			}
			for _, r := range why {
				if file == "conformance.txt" && r.names.MatchString(name) {
					t.Errorf("others.tsv has a reason too (%s): %s", r.names, name)
				}
			}
		}
	}
}

// TestFocus chooses the tests of a list, and not those whose names only begin so.
func TestFocus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte("# a comment\n[sig] one (and all)\n\n[sig] two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run([]string{"focus", path}, &out); err != nil {
		t.Fatal(err)
	}
	focus := regexp.MustCompile(strings.TrimSpace(out.String()))
	for text, want := range map[string]bool{
		"suite [sig] one (and all)": true, "[sig] two": true,
		"suite [sig] two and more": false, "[sig] one": false, "# a comment": false,
	} {
		if got := focus.MatchString(text); got != want {
			t.Errorf("%q: chosen %t, want %t", text, got, want)
		}
	}
}

// TestTable shows what failed in one of two runs, and reports it. Tests that were not chosen are not in it.
func TestTable(t *testing.T) {
	first := report(t, map[string]string{"[sig] one": "passed", "[sig] two": "passed", "[sig] three": "skipped"})
	second := report(t, map[string]string{"[sig] one": "passed", "[sig] two": "failed", "[sig] three": "skipped"})
	var out strings.Builder
	err := run([]string{"table", first, second}, &out)
	if err == nil || !strings.Contains(err.Error(), "1 of 2 tests did not pass") {
		t.Errorf("error %v, want one of two", err)
	}
	want := `passed  failed  1.0 s  [sig] two  want 1 got 2
passed  passed  1.0 s  [sig] one  
1 passed, 1 failed
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	if err := run([]string{"table", first}, &strings.Builder{}); err != nil {
		t.Errorf("one run without failures: %v", err)
	}
}

// TestCheck finds a conformance test that no list knows, and a listed one that does not exist.
func TestCheck(t *testing.T) {
	names, err := list("conformance.txt")
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, name := range names[1:] {
		states[name] = "skipped"
	}
	states["[sig-new] new [Conformance]"] = "skipped"
	err = run([]string{"check", report(t, states)}, &strings.Builder{})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"no such test: " + names[0], "0 reasons, not in conformance.txt: [sig-new] new [Conformance]"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q: %.300s", want, err)
		}
	}
}
