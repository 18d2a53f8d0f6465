package datadir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/datadir"
)

// TestCopyPKI: the copy is readable by its owner alone, and replaces nothing.
func TestCopyPKI(t *testing.T) {
	dir := t.TempDir()
	from, made, empty := filepath.Join(dir, "from"), filepath.Join(dir, "new", "made"), filepath.Join(dir, "empty")
	if err := datadir.CopyPKI(from, made); err == nil || !strings.Contains(err.Error(), "no folder pki") {
		t.Errorf("a directory without certificates: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(from, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "pki", "ca.pem"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(empty, 0o755); err != nil { // as mkdir makes it
		t.Fatal(err)
	}
	for _, to := range []string{made, empty} {
		if err := datadir.CopyPKI(from, to); err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(filepath.Join(to, "pki", "ca.pem")); err != nil || string(content) != "secret" {
			t.Errorf("%s: %q, %v", to, content, err)
		}
		for path, want := range map[string]os.FileMode{"": 0o700, "pki": 0o700, "pki/ca.pem": 0o600} {
			if got := mode(t, filepath.Join(to, path)); got != want {
				t.Errorf("%s/%s: mode %o, want %o", to, path, got, want)
			}
		}
		if left, err := filepath.Glob(filepath.Join(to, ".*part")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if err := datadir.CopyPKI(from, to); err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("a second copy: %v", err)
		}
	}
}
