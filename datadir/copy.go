package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// followsFile is there in a directory that is the copy of a server. It has the URL of that server. It is written
// before everything else of the copy, and removed last.
const followsFile = "FOLLOWS"

// newCopyDir is a directory within a copy: another copy that takes its place when it is whole. placedFile is there when
// the files of the old one are removed.
const (
	newCopyDir = "copy.new"
	placedFile = "PLACED"
)

// ErrNoCopy: the directory is not the copy of a server, or not a whole one.
var ErrNoCopy = errors.New("it is not a copy of a server")

// MakeCopy makes the directory a copy of a server from a backup of it, with the history and the resource versions of
// the server. The directory does not exist, is empty, or is a copy of a server. A copy stays until the new one is whole.
func (d *Dir) MakeCopy(ctx context.Context, backup io.Reader) (about Contents, err error) {
	copied, _, err := d.isCopy()
	switch {
	case err != nil:
		return about, err
	case copied:
		return d.replaceCopy(ctx, backup)
	}
	err = d.create(func() (err error) {
		if err := d.writeFollows(); err != nil {
			return err
		}
		about, err = d.restore(ctx, backup, RestoreOptions{KeepHistory: true})
		return err
	})
	return about, err
}

func (d *Dir) writeFollows() error {
	return atomicfile.Write(filepath.Join(d.Path, followsFile), []byte(d.Follows+"\n"), 0o600)
}

// replaceCopy makes another copy within the directory, and then puts it in the place of the one that is there.
func (d *Dir) replaceCopy(ctx context.Context, backup io.Reader) (about Contents, err error) {
	lock, err := dirlock.Take(filepath.Join(d.Path, dirlock.File))
	if err != nil {
		return about, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if copied, _, err := d.isCopy(); err != nil || !copied { // it was promoted meanwhile
		return about, errors.Join(err, fmt.Errorf("data directory %s: %w", d.Path, ErrNoCopy))
	}
	next := &Dir{Path: filepath.Join(d.Path, newCopyDir), GroupAccess: d.GroupAccess, MinFreeBytes: d.MinFreeBytes, ReserveBytes: d.ReserveBytes, Logger: d.Logger}
	if err := os.RemoveAll(next.Path); err != nil {
		return about, err
	}
	if err := atomicfile.MakeDir(next.Path); err != nil {
		return about, err
	}
	if about, err = next.restore(ctx, backup, RestoreOptions{KeepHistory: true}); err != nil {
		return about, errors.Join(err, os.RemoveAll(next.Path))
	}
	return about, errors.Join(d.writeFollows(), d.placeCopy())
}

// placeCopy puts a new copy that is whole in the place of the old one, and removes one that is not whole. It goes on
// where an earlier call was interrupted. The caller has the lock.
func (d *Dir) placeCopy() error {
	in := filepath.Join(d.Path, newCopyDir)
	if _, err := os.Lstat(filepath.Join(in, formatFile)); errors.Is(err, fs.ErrNotExist) {
		return os.RemoveAll(in)
	} else if err != nil {
		return err
	}
	placed := filepath.Join(in, placedFile)
	if _, err := os.Lstat(placed); errors.Is(err, fs.ErrNotExist) {
		if err := errors.Join(removeParts(d.Path), atomicfile.Write(placed, nil, 0o600)); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	for _, name := range append(slices.Clone(parts), formatFile) { // FORMAT last
		if err := atomicfile.Rename(filepath.Join(in, name), filepath.Join(d.Path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(in)
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
	return copied, copied && (exists(formatFile) || exists(filepath.Join(newCopyDir, formatFile))), err
}

// settleCopy completes an interrupted operation, and checks again that the directory is a copy
// where it must be. The caller has the lock.
func (d *Dir) settleCopy() error {
	copied, _, err := d.isCopy()
	switch {
	case err != nil || !copied:
	case !d.ReadOnly:
		err = d.placeCopy()
	default:
		if _, missing := os.Lstat(filepath.Join(d.Path, formatFile)); missing != nil {
			return fmt.Errorf("data directory %s: another copy is being put in its place: start its server or its follower first", d.Path)
		}
	}
	if err == nil && d.Follows != "" {
		err = d.mustBeCopy()
	}
	return err
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

// endCopy makes the directory one of its own, if it was a copy. The server may have acknowledged changes that the copy
// lacks. So the logs move ahead, as those of a restored backup do. An interrupted call leaves a copy.
func (d *Dir) endCopy(ctx context.Context, log *pebblelog.Log) error {
	copied, _, err := d.isCopy()
	if err != nil || !copied {
		return err
	}
	if err := moveAhead(ctx, log); err != nil {
		return err
	}
	f := newForks(d)
	names, err := f.names()
	if err != nil {
		return err
	}
	if err := f.moveAhead(ctx, names); err != nil {
		return err
	}
	if d.Logger != nil {
		d.Logger.Warn("the data directory was the copy of another server, and is one of its own from now on; its clients list again", "path", d.Path, "resourceVersion", log.Summary().Revision)
	}
	return atomicfile.Remove(filepath.Join(d.Path, followsFile))
}
