// Package tier decides which tests run. It is the part of the root module's package tier that the tests of these modules
// need: they stand alone.
package tier

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Full skips a test that runs in the full tier alone, unless that tier is chosen.
func Full(t testing.TB) {
	t.Helper()
	if os.Getenv("TIDEMARK_TIER") != "full" {
		t.Skip("runs in the full tier: set TIDEMARK_TIER=full, or call .ci/full")
	}
}

// UseProgram makes the tests of a process use the server's program that the tests of all modules share. The go command
// builds it once for each tree. Outside a tree, or if it does not build, tidemarktest finds or builds one by itself.
func UseProgram() {
	const variable = "TIDEMARK_BINARY"
	if os.Getenv(variable) != "" {
		return
	}
	root := ".."
	for len(root) < 100 {
		if _, err := os.Stat(filepath.Join(root, "cmd", "tidemark")); err == nil {
			break
		}
		root = filepath.Join("..", root)
	}
	c := exec.Command("go", "tool", "-n", "tidemark")
	c.Dir = root
	if out, err := c.Output(); err == nil {
		os.Setenv(variable, strings.TrimSpace(string(out)))
	}
}
