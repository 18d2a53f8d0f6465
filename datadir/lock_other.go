//go:build !unix

package datadir

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// checksMode: there are no mode bits here.
const checksMode = false

// lock is a lock that ends with the process at the latest.
type lock struct {
	io.Closer
	path string
}

// lockPath takes the lock.
func lockPath(path string) (*lock, error) {
	c, err := vfs.Default.Lock(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: stop that server, or use another directory (%w)", path, ErrInUse, err)
	}
	return &lock{c, path}, nil
}

// remove gives the lock back, and removes the file unless another process has it open.
func (l *lock) remove() error {
	err := l.Close()
	_ = os.Remove(l.path)
	return err
}

// checkOwner has nothing to check: access is governed by what the directory
// inherits.
func (d *Dir) checkOwner(fs.FileInfo) error { return nil }
