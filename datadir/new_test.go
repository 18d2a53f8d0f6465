package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
)

// TestCheckNew: a directory can be filled unless it holds files; those of an interrupted first start do not count.
func TestCheckNew(t *testing.T) {
	for file, fits := range map[string]bool{"": true, dirlock.File: true, "lost+found": true, "FORMAT": false, "notes.txt": false} {
		d := &datadir.Dir{Path: filepath.Join(t.TempDir(), "data")}
		if err := d.CheckNew(); err != nil {
			t.Errorf("a directory that does not exist: %v", err)
		}
		if err := os.Mkdir(d.Path, 0o700); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			if err := os.WriteFile(filepath.Join(d.Path, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.CheckNew(); (err == nil) != fits || err != nil && !strings.Contains(err.Error(), "it is not empty") {
			t.Errorf("with the file %q: %v", file, err)
		}
	}
}
