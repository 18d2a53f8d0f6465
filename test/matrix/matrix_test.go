package matrix

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

const website = "../../examples/website"

// rows are the versions.
var rows = []struct {
	name     string
	module   string // the directory of the module with the tests
	versions string // the file of this directory with the versions; empty: the module's go.mod
	packages string
}{
	{"controller-runtime 0.22", website, "", "./..."},
	{"controller-runtime 0.23", website, "controller-runtime-0.23.mod", "./..."},
	{"controller-runtime 0.24", website, "controller-runtime-0.24.mod", "./..."},
	{"controller-runtime 0.25", website, "controller-runtime-0.25.mod", "./..."},
}

// limit is how long a row may take if nothing is compiled yet.
const limit = 20 * time.Minute

// goTest runs go test with the versions of a file.
func goTest(t *testing.T, module, versions string, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"test", "-count=1"}, args...)
	if versions != "" {
		path, err := filepath.Abs(versions)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "-modfile="+path)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestVersions: the tests pass with each version.
func TestVersions(t *testing.T) {
	tier.Full(t)
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			out, err := goTest(t, row.module, row.versions, row.packages)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			t.Log(strings.TrimSpace(out))
		})
	}
}

// TestNaive: EveryPrefix finds the bug of the tutorial's first reconciler, and nothing else does.
func TestNaive(t *testing.T) {
	tier.Full(t)
	const file = "internal/controller/website_controller.go"
	dir, err := filepath.Abs(website)
	if err != nil {
		t.Fatal(err)
	}
	naive := filepath.Join(dir, "internal/controller/testdata/naive/website_controller.go")
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(dir, file): naive}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(overlay, text, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := goTest(t, website, "controller-runtime-0.24.mod", "-overlay="+overlay, "-json", "./internal/controller")
	if err == nil {
		t.Fatalf("the tests pass\n%s", out)
	}
	var failed []string
	var printed strings.Builder
	for d := json.NewDecoder(strings.NewReader(out)); ; {
		var event struct{ Action, Test, Output string }
		if d.Decode(&event) != nil {
			break
		}
		printed.WriteString(event.Output)
		if event.Action == "fail" && event.Test != "" {
			failed = append(failed, event.Test)
		}
	}
	if len(failed) != 1 || failed[0] != "TestCrashes" {
		t.Errorf("%q fail\n%s", failed, &printed)
	}
	for _, want := range []string{"EveryPrefix: a crash at revision ", "after write 1 of 2", "services default/home"} {
		if !strings.Contains(printed.String(), want) {
			t.Errorf("it does not print %q:\n%s", want, &printed)
		}
	}
}
