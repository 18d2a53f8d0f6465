package timeline

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

func TestUnified(t *testing.T) {
	t.Parallel()
	text := func(lines ...string) string { return strings.Join(lines, "\n") + "\n" }
	for _, c := range []struct{ name, a, b, want string }{
		{"equal", text("a"), text("a"), ""},
		{"created", "", text("a", "b"), "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"removed", text("a"), "", "@@ -1 +0,0 @@\n-a\n"},
		{"changed", text("1", "2", "3", "4", "5", "6", "7", "8", "9"), text("1", "2", "3", "4", "x", "6", "7", "8", "9"),
			"@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
		{"two hunks", text("a", "1", "2", "3", "4", "5", "6", "7", "b"), text("c", "1", "2", "3", "4", "5", "6", "7", "d"),
			"@@ -1,4 +1,4 @@\n-a\n+c\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+d\n"},
		{"one hunk", text("a", "1", "2", "3", "4", "5", "6", "b"), text("c", "1", "2", "3", "4", "5", "6", "d"),
			"@@ -1,8 +1,8 @@\n-a\n+c\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+d\n"},
	} {
		var out strings.Builder
		if err := new(Env).unified(&out, "x", c.a, "y", c.b); err != nil {
			t.Fatal(err)
		}
		if got, want := out.String(), "--- x\n+++ y\n"+c.want; got != want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, want)
		}
	}
}

// TestDifference checks that the edits of random texts lead from one to the other.
func TestDifference(t *testing.T) {
	t.Parallel()
	r := testrand.New(t)
	random := func() (lines []string) {
		for range r.IntN(30) {
			lines = append(lines, string(rune('a'+r.IntN(4))))
		}
		return lines
	}
	for range 2000 {
		check(t, random(), random())
	}
	long := make([]string, 3*maxEdits)
	other := make([]string, 3*maxEdits)
	for i := range long {
		long[i], other[i] = "a"+string(rune('a'+r.IntN(26))), "b"
	}
	check(t, long, other)
}

func check(t *testing.T, a, b []string) {
	t.Helper()
	var from, to []string
	for _, e := range difference(a, b) {
		if e.kind != '+' {
			from = append(from, e.line)
		}
		if e.kind != '-' {
			to = append(to, e.line)
		}
	}
	if strings.Join(from, " ") != strings.Join(a, " ") || strings.Join(to, " ") != strings.Join(b, " ") {
		t.Fatalf("%v to %v: the edits lead from %v to %v", a, b, from, to)
	}
}
