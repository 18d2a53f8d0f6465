//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// runExample runs an example of another language, whose server is this test binary. It needs the
// interpreter.
func runExample(t *testing.T, interpreter string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(interpreter)
	if err != nil {
		t.Skipf("%s is not installed: %v", interpreter, err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "GORACE=atexit_sleep_ms=0", "TIDEMARK="+self(t), "PYTHONDONTWRITEBYTECODE=1", "TMPDIR="+t.TempDir(), "XDG_RUNTIME_DIR=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", interpreter, err, out)
	}
}

func TestExamplePython(t *testing.T) {
	t.Parallel()
	runExample(t, "python3", "../../examples/python/test_shop.py")
}

// TestExampleTypeScript runs the example as JavaScript: its text is both.
func TestExampleTypeScript(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../examples/typescript/shop.test.ts")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "shop.test.mjs")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	runExample(t, "node", "--test", path)
}
