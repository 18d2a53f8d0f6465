package dirlock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/dirlock"
)

// TestLock: one at a time holds the lock. It can be taken again after Close, and after Remove, which leaves no file.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), dirlock.File)
	take := func() *dirlock.Lock {
		t.Helper()
		l, err := dirlock.Take(path)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := dirlock.Take(path); !errors.Is(err, dirlock.ErrInUse) {
			t.Errorf("a second lock: %v, %v", second, err)
		}
		return l
	}
	if err := take().Close(); err != nil {
		t.Fatal(err)
	}
	if err := take().Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
	if err := take().Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := dirlock.Take(filepath.Join(path, "below", "a", "file")); err == nil {
		t.Error("a lock where no file can be")
	}
}
