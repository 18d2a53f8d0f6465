package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDumpsAreNoDataDirectories: a command that needs a data directory and gets the dump of a test says how to read the dump.
func TestDumpsAreNoDataDirectories(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.jsonl"), []byte(`{"revision":1}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"serve", dir, "--play=10x", "--secure-port=0"},
		{"serve", dir, "--at=-1h", "--secure-port=0"},
		{"history", "-A", "--data-dir=" + dir},
		{"diff", "-A", "--from=1", "--data-dir=" + dir},
		{"blame", "configmap/a", "--data-dir=" + dir},
	} {
		if code, _, errs := command(args...); code == 0 || !strings.Contains(errs, "history.jsonl") || !strings.Contains(errs, "--at") {
			t.Errorf("%s: %d, %s", args[0], code, errs)
		}
	}
}
