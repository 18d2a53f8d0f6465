//go:build unix

package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// checksMode: the mode bits of a directory mean something here.
const checksMode = true

// lock is a lock that ends with the process at the latest.
type lock struct{ f *os.File }

// lockPath takes the lock. The file keeps the process id of the holder for the
// error that a second one gets. A file that its holder removes while it is opened here is
// opened again: otherwise two processes would lock two files.
func lockPath(path string) (*lock, error) {
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
func lockFileAt(path string) (*lock, error) {
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
	return &lock{f}, nil
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

// Close gives the lock back.
func (l *lock) Close() error { return errors.Join(l.f.Truncate(0), l.f.Close()) }

// remove removes the file, then gives the lock back.
func (l *lock) remove() error { return errors.Join(os.Remove(l.f.Name()), l.f.Close()) }

// checkOwner refuses a directory of another user: they could change it.
func (d *Dir) checkOwner(info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("data directory %s: it belongs to user %d, and this process runs as user %d: run as its owner, or use another directory%s", d.Path, st.Uid, os.Geteuid(), d.wayOut())
	}
	return nil
}
