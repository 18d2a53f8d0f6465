package atomicfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("old, and open to all"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != "new" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600 (%v)", info.Mode(), err)
	}
	alone(t, dir, "f")
}

func TestWriteFails(t *testing.T) {
	dir := t.TempDir()
	// A directory in the way: the rename fails, after the data was written.
	if err := os.MkdirAll(filepath.Join(dir, "f", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(filepath.Join(dir, "f"), []byte("new"), 0o600); err == nil {
		t.Error("a directory was replaced by a file")
	}
	alone(t, dir, "f")
	if err := atomicfile.Write(filepath.Join(dir, "absent", "f"), nil, 0o600); err == nil {
		t.Error("a file was written into a directory that is not there")
	}
}

// alone checks that nothing temporary stayed behind.
func alone(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("the directory holds %v, %v; want %s alone", entries, err, name)
	}
}
