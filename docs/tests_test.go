package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)(?:/[^`]*)?`")
)

// TestTests: each entry of tests.tsv belongs to one row of its page and names tests that exist, and each limit has an entry.
func TestTests(t *testing.T) {
	exist := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") && filepath.Base(filepath.Dir(path)) != "storetest" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
			exist[f[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{"limits": rowsOf(t, "limits.md"), "security": rowsOf(t, "security.md")}
	text, err := os.ReadFile("tests.tsv")
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			t.Fatalf("tests.tsv: want three fields: %q", line)
		}
		found := 0
		for _, row := range rows[fields[0]] {
			if strings.HasPrefix(row, fields[1]) {
				tested[row] = true
				found++
			}
		}
		if found != 1 {
			t.Errorf("tests.tsv: %d rows of %s.md begin with %q", found, fields[0], fields[1])
		}
		for _, name := range testName.FindAllStringSubmatch(fields[2], -1) {
			if !exist[name[1]] {
				t.Errorf("tests.tsv: %s does not exist", name[1])
			}
		}
	}
	for _, row := range rows["limits"] {
		if !tested[row] {
			t.Errorf("tests.tsv names no test of this row of limits.md: %.80s", row)
		}
	}
}

// rowsOf returns the rows of the tables of a document without their first bar.
func rowsOf(t *testing.T, path string) (rows []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before := ""
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| ") && strings.HasPrefix(before, "|") {
			rows = append(rows, strings.TrimPrefix(line, "| "))
		}
		before = line
	}
	return rows
}
