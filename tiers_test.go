package tidemark_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unraced lists packages that start goroutines and whose tests do not run with the race detector in the change tier.
var unraced = map[string]string{
	"cmd/tidemark":                      "its tests run the command as a process",
	"cmd/tidemark/internal/bench":       "it measures, and the full tier runs it",
	"cmd/tidemark/internal/conformance": "a client, whose tests take minutes with the detector: the full tier",
	"cmd/tidemark/internal/etcdstub":    "one goroutine that serves",
	"internal/store/etcdlog":            "test/etcdlog tests it with members of etcd",
	"internal/world":                    "the tests of the root package run it with the detector",
}

var (
	goStatement = regexp.MustCompile(`(?m)^\s*go (func\(|\w)|\.Go\(func`)
	raceCall    = regexp.MustCompile(`tier\.Race\(m([^)]*)\)\)`)
	quoted      = regexp.MustCompile(`"(\w+)"`)
	otherGate   = regexp.MustCompile(`testing\.Short\(\)|TIDEMARK_TEST_SUITES`)
)

// TestTiers: package tier alone decides which tests run, packages with goroutines run with the race detector, and the tests
// that they name for a run without it exist.
func TestTiers(t *testing.T) {
	for dir, files := range goFiles(t) {
		product, tests := join(t, files, false), join(t, files, true)
		if otherGate.MatchString(tests) && dir != "." {
			t.Errorf("%s: %q decides which tests run; call tier.Full or tier.IsFull", dir, otherGate.FindString(tests))
		}
		call := raceCall.FindStringSubmatch(tests)
		if call != nil {
			for _, name := range quoted.FindAllStringSubmatch(call[1], -1) {
				if !strings.Contains(tests, "\nfunc "+name[1]+"(t *testing.T)") {
					t.Errorf("%s: tier.Race names %s, which does not exist", dir, name[1])
				}
			}
		}
		_, excused := unraced[dir]
		starts := goStatement.MatchString(product) && tests != ""
		switch {
		case excused && (call != nil || !starts):
			t.Errorf("unraced is stale: %s", dir)
		case starts && call == nil && !excused:
			t.Errorf("%s starts goroutines: let its TestMain call tier.Race, or give unraced the reason", dir)
		}
	}
}

// goFiles returns the Go files of the root module, by directory.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, top := range []string{"*.go", "*/*.go", "*/*/*.go", "*/*/*/*.go", "*/*/*/*/*.go"} {
		files, err := filepath.Glob(top)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if first, _, _ := strings.Cut(f, "/"); !slices.Contains([]string{"test", "tidemarktest", "tools", "examples"}, first) {
				all[filepath.ToSlash(filepath.Dir(f))] = append(all[filepath.ToSlash(filepath.Dir(f))], f)
			}
		}
	}
	return all
}

// join returns the text of the tests among files, or that of the others.
func join(t *testing.T, files []string, tests bool) string {
	t.Helper()
	var text strings.Builder
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") != tests {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}
