package tidemark_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
)

// TestModuleAlone loads the command as go install does: without the workspace,
// which takes versions from the module of the tests, and without replacements,
// which a main module alone may have.
func TestModuleAlone(t *testing.T) {
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
