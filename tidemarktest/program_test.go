package tidemarktest

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNoGo: without the Go command, the error says what is missing and what to set.
func TestNoGo(t *testing.T) {
	t.Setenv("TIDEMARK_BINARY", "")
	t.Setenv("PATH", t.TempDir())
	_, err := findProgram(t.TempDir())
	const want = "the API server's program cannot be found or built: there is no command go in PATH. Set TIDEMARK_BINARY to a program tidemark that was built before"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

// TestBinaryVariable: a path that does not exist is an error, which says how a relative one is read.
func TestBinaryVariable(t *testing.T) {
	for path, want := range map[string]bool{filepath.Join("bin", "missing"): true, filepath.Join(t.TempDir(), "missing"): false} {
		t.Setenv("TIDEMARK_BINARY", path)
		_, err := findProgram(t.TempDir())
		if err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "absolute path") != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
