//go:build !unix

package dirlock

import (
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Lock is a lock that ends with the process at the latest.
type Lock struct {
	io.Closer
	path string
}

// Take takes the lock of a file, and creates the file if it does not exist. It does not wait: the error of a
// lock that is held wraps ErrInUse.
func Take(path string) (*Lock, error) {
	c, err := vfs.Default.Lock(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: stop that server, or use another directory (%w)", path, ErrInUse, err)
	}
	return &Lock{c, path}, nil
}

// Held returns nil: a file that is locked cannot be moved.
func (l *Lock) Held() error { return nil }

// Remove releases the lock, and removes the file unless another process has it open.
func (l *Lock) Remove() error {
	err := l.Close()
	_ = os.Remove(l.path)
	return err
}
