//go:build unix

package dirlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Lock is a lock that ends with the process at the latest.
type Lock struct{ f *os.File }

// Take takes the lock of a file, and creates the file if it does not exist. It does not wait: the error of a
// lock that is held wraps ErrInUse, and names the process.
func Take(path string) (*Lock, error) {
	// A holder may remove the file while it is opened here: two processes would lock two files.
	for {
		l, err := lockFileAt(path)
		if err != nil {
			return nil, err
		}
		held, err := l.f.Stat()
		if err != nil {
			return nil, errors.Join(err, l.f.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(held, there) {
			if err := errors.Join(l.f.Truncate(0), writePID(l.f)); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", path, err), l.f.Close())
			}
			return l, nil
		}
		if err := l.f.Close(); err != nil {
			return nil, err
		}
	}
}

// lockFileAt locks the file, which may be removed meanwhile.
func lockFileAt(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder := ""
		if pid, err := readPID(f); err == nil {
			holder = fmt.Sprintf(" by process %d", pid)
		}
		return nil, errors.Join(fmt.Errorf("%s: %w%s: stop that server, or use another directory", path, ErrInUse, holder), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &Lock{f}, nil
}

func writePID(f *os.File) error {
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

func readPID(f *os.File) (int, error) {
	b := make([]byte, 32)
	n, _ := f.ReadAt(b, 0)
	return strconv.Atoi(strings.TrimSpace(string(b[:n])))
}

// Held returns an error if the path of the lock leads to another file than the one that is locked, or to none: the
// directory, or the file, was moved, removed or replaced.
func (l *Lock) Held() error {
	there, err := os.Stat(l.f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is gone", ErrLost, l.f.Name())
	}
	if err != nil { // not known
		return nil
	}
	if held, err := l.f.Stat(); err == nil && !os.SameFile(held, there) {
		return fmt.Errorf("%w: %s is another file than the one that was locked", ErrLost, l.f.Name())
	}
	return nil
}

// Close releases the lock.
func (l *Lock) Close() error { return errors.Join(l.f.Truncate(0), l.f.Close()) }

// Remove removes the file, then releases the lock.
func (l *Lock) Remove() error { return errors.Join(os.Remove(l.f.Name()), l.f.Close()) }
