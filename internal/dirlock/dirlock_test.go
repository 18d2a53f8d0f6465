package dirlock_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
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

// TestHeld: a lock whose file was moved or replaced is lost.
func TestHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := dirlock.Take(filepath.Join(dir, dirlock.File))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Held(); err != nil {
		t.Errorf("a lock that is held: %v", err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		if runtime.GOOS == "windows" { // it does not move a directory with an open file
			return
		}
		t.Fatal(err)
	}
	if err := l.Held(); !errors.Is(err, dirlock.ErrLost) {
		t.Errorf("without its directory: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, dirlock.File), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Held(); !errors.Is(err, dirlock.ErrLost) {
		t.Errorf("with another file in its place: %v", err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".old", dir)); err != nil {
		t.Fatal(err)
	}
	if err := l.Held(); err != nil {
		t.Errorf("with its directory back: %v", err)
	}
}
