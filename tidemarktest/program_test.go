package tidemarktest

import (
	"path/filepath"
	"strings"
	"testing"
)

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
