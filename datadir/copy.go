package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

// followsFile is there in a directory that is the copy of a server. It has the URL of that server. It is written
// before everything else of the copy, and removed last.
const followsFile = "FOLLOWS"

// ErrNoCopy: the directory is not the copy of a server, or not a whole one.
var ErrNoCopy = errors.New("it is not a copy of a server")

// MakeCopy makes the directory a copy of a server from a backup of it, with the history and the resource versions of
// the server. The directory does not exist, is empty, or is what is left of such a copy.
func (d *Dir) MakeCopy(ctx context.Context, backup io.Reader) (about Contents, err error) {
	if err := d.discardCopy(); err != nil {
		return about, err
	}
	err = d.create(func() (err error) {
		if err := atomicfile.Write(filepath.Join(d.Path, followsFile), []byte(d.Follows+"\n"), 0o600); err != nil {
			return err
		}
		about, err = d.restore(ctx, backup, RestoreOptions{KeepHistory: true})
		return err
	})
	return about, err
}

// isCopy reports whether the directory is the copy of a server, and whether it is a whole one.
func (d *Dir) isCopy() (copied, whole bool, err error) {
	exists := func(name string) bool {
		_, failed := os.Lstat(filepath.Join(d.Path, name))
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
		return failed == nil
	}
	copied = exists(followsFile)
	return copied, copied && exists(formatFile), err
}

// discardCopy removes the files of a copy, if the directory is one.
func (d *Dir) discardCopy() error {
	copied, _, err := d.isCopy()
	if err != nil || !copied {
		return err
	}
	lock, err := lockPath(filepath.Join(d.Path, lockFile))
	if err != nil {
		return err
	}
	return errors.Join(clear(d.Path), lock.Close())
}

// mustBeCopy returns an error if the directory is not a whole copy.
func (d *Dir) mustBeCopy() error {
	_, whole, err := d.isCopy()
	if err == nil && !whole {
		err = ErrNoCopy
	}
	if err != nil {
		return fmt.Errorf("data directory %s: %w", d.Path, err)
	}
	return nil
}

// endCopy makes the directory one of its own, if it was a copy.
func (d *Dir) endCopy() error {
	copied, _, err := d.isCopy()
	if err != nil || !copied {
		return err
	}
	if d.Logger != nil {
		d.Logger.Warn("the data directory was the copy of another server, and is one of its own from now on", "path", d.Path)
	}
	return atomicfile.Remove(filepath.Join(d.Path, followsFile))
}
