package tidemark_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestModuleAlone loads the command as go install does: without the workspace, which also
// selects the versions of the test module, and without replacements, which only the main
// module may have.
func TestModuleAlone(t *testing.T) {
	t.Parallel()
	load := exec.Command("go", "list", "-mod=readonly", "-deps", "./cmd/tidemark")
	load.Env = append(os.Environ(), "GOWORK=off")
	if out, err := load.CombinedOutput(); err != nil {
		t.Errorf("go list without the workspace: %v\n%s", err, out)
	}

	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatalf("go mod edit: %v", err)
	}
	var mod struct{ Replace, Exclude []json.RawMessage }
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	if len(mod.Replace)+len(mod.Exclude) > 0 {
		t.Error("go.mod replaces or excludes modules: go install refuses that")
	}
}

// linkedModules returns the modules that a package links, without cgo.
func linkedModules(t *testing.T, pattern string) map[string]bool {
	t.Helper()
	load := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", pattern)
	load.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := load.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := map[string]bool{}
	for path := range strings.FieldsSeq(string(out)) {
		if path != module {
			all[path] = true
		}
	}
	return all
}

// TestLinkedModules compares the modules of the command with the table of
// docs/decisions/0004-dependencies.md: a new module needs a reason.
func TestLinkedModules(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("docs/decisions/0004-dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(b), "| module | brought by |\n|---|---|\n")
	if !ok {
		t.Fatal("0004-dependencies.md has no table of linked modules")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for row := range strings.Lines(table) {
		modules, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for name := range strings.SplitSeq(modules, ", ") {
			listed[strings.Trim(name, "`")] = true
		}
	}
	linked := linkedModules(t, "./cmd/tidemark")
	for path := range linked {
		if !listed[path] {
			t.Errorf("%s is linked: avoid it, or say in docs/decisions/0004-dependencies.md who brings it", path)
		}
	}
	for path := range listed {
		if !linked[path] {
			t.Errorf("docs/decisions/0004-dependencies.md is stale: %s is not linked", path)
		}
	}
}

// TestUnmaintained checks that a server in memory does not link the modules that only
// Pebble needs.
func TestUnmaintained(t *testing.T) {
	t.Parallel()
	linked := linkedModules(t, ".")
	for _, path := range []string{"github.com/gogo/protobuf", "github.com/pkg/errors", "github.com/getsentry/sentry-go", "github.com/DataDog/zstd"} {
		if linked[path] {
			t.Errorf("a server in memory links %s", path)
		}
	}
}
