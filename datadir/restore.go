package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/dirlock"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// VerifyBackup reads a whole backup and compares it with its checksums.
func VerifyBackup(ctx context.Context, r io.Reader) (Contents, error) {
	return readArchive(ctx, r, func(string, io.Reader) error { return nil })
}

// RestoreOptions change the effects of Restore.
type RestoreOptions struct {
	// KeepHistory leaves the logs as they are in the backup. Otherwise the history is forgotten, and resource versions
	// continue at the time of the restore, in microseconds since 1970: clients that have seen a change which the backup lacks get 410 Gone for its
	// resource version, and list again. With KeepHistory they take other changes for it.
	KeepHistory bool
}

// Restore makes the directory of a backup, and checks it as Check does. The directory does not exist or is empty. When
// Restore returns nil, the directory is durable. After an error it is empty or does not exist, as before, unless removing
// the files failed, too. No server starts on the directory before Restore returns, nor if the process ends before: FORMAT
// is written last.
func (d *Dir) Restore(ctx context.Context, r io.Reader, o RestoreOptions) (about Contents, err error) {
	err = d.create(func() (err error) {
		about, err = d.restore(ctx, r, o)
		return err
	})
	return about, err
}

// CheckNew returns an error if the directory holds files, so that none of Restore, Import and MakeCopy can fill it.
// A directory that does not exist can be filled. So can one with the files of an interrupted first start.
func (d *Dir) CheckNew() error {
	known, empty, err := contents(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case known || !empty:
		return fmt.Errorf("data directory %s: it is not empty: choose an empty or a new directory", d.Path)
	}
	return nil
}

// create locks a directory that does not exist or is empty, and calls fill, which writes FORMAT last. After an error
// the directory is as before.
func (d *Dir) create(fill func() error) error {
	_, missing := os.Stat(d.Path)
	if err := d.prepare(); err != nil {
		return err
	}
	if err := d.CheckNew(); err != nil {
		return err
	}
	lock, err := dirlock.Take(filepath.Join(d.Path, dirlock.File))
	if err != nil {
		return err
	}
	if err = fill(); err == nil {
		return lock.Close()
	}
	err = errors.Join(err, clear(d.Path), lock.Remove())
	if errors.Is(missing, fs.ErrNotExist) {
		_ = os.Remove(d.Path) // it stays if another process has begun to use it
	}
	return err
}

// restore writes the files of a backup, checks the logs, and moves them ahead.
func (d *Dir) restore(ctx context.Context, r io.Reader, o RestoreOptions) (Contents, error) {
	about, format, err := unpack(ctx, r, d.Path)
	if err != nil {
		return about, err
	}
	f := newForks(d)
	names, err := f.names()
	if err != nil {
		return about, err
	}
	found, err := check(ctx, d.logOptions())
	if err == nil {
		_, err = f.check(ctx, names)
	}
	if err != nil {
		return about, fmt.Errorf("the backup has a damaged log: %w", err)
	}
	if found.ResourceVersion != about.Log.ResourceVersion || found.Objects != about.Log.Objects {
		return about, fmt.Errorf("the backup has %d objects at resource version %d, and describes %d at %d",
			found.Objects, found.ResourceVersion, about.Log.Objects, about.Log.ResourceVersion)
	}
	if !o.KeepHistory {
		if err := errors.Join(openAndMoveAhead(ctx, d.logOptions()), f.moveAhead(ctx, names)); err != nil {
			return about, err
		}
		format = max(format, basicFormat) // the logs were written to
	}
	return about, writeFormat(d.Path, format)
}

// moveAhead moves the logs of forks ahead, which are not open.
func (f *forks) moveAhead(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := openAndMoveAhead(ctx, f.options(name)); err != nil {
			return err
		}
	}
	return nil
}

func openAndMoveAhead(ctx context.Context, o pebblelog.Options) error {
	log, err := pebblelog.Open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(moveAhead(ctx, log), log.Close())
}

// moveAhead makes a log continue from a resource version that no client has seen.
func moveAhead(ctx context.Context, log *pebblelog.Log) error {
	head := log.Summary().Revision
	return log.Advance(ctx, restoredHead(head, time.Now())-head)
}

// leastAhead is how many revisions a restored log is ahead of its backup at least, if the clock is wrong.
const leastAhead = 1_000_000_000

// restoredHead returns the revision that a restored log continues from; head is that of the backup. A server makes
// fewer than a million revisions a second. So the time in microseconds is beyond all revisions that servers have made,
// from this backup or from others, and a backup may be restored again and again.
func restoredHead(head store.Revision, now time.Time) store.Revision {
	if at := now.UnixMicro(); at > 0 && store.Revision(at) > head {
		return store.Revision(at)
	}
	return head + leastAhead
}

// parts are the files and directories of a backup but FORMAT.
var parts = []string{logDir, forksDir, pkiDir, KubeconfigFile}

// removeParts removes the parts of a backup, FORMAT first.
func removeParts(dir string) error {
	errs := []error{atomicfile.Remove(filepath.Join(dir, formatFile))}
	for _, name := range parts {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

// clear removes the remains of a failed restore.
func clear(dir string) error {
	if err := removeParts(dir); err != nil {
		return err
	}
	return atomicfile.Remove(filepath.Join(dir, followsFile))
}

// unpack writes the files of a backup, all but FORMAT, and makes them durable. It returns the format of the directory.
func unpack(ctx context.Context, r io.Reader, dir string) (about Contents, format int, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return about, 0, err
	}
	defer root.Close()
	var text []byte
	made := map[string]bool{}
	about, err = readArchive(ctx, r, func(name string, content io.Reader) (err error) {
		if name == formatFile {
			text, err = io.ReadAll(io.LimitReader(content, maxFormatBytes))
			return err
		}
		if parent := path.Dir(name); !made[parent] {
			if err := root.MkdirAll(parent, 0o700); err != nil {
				return err
			}
			made[parent] = true
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		if err == nil {
			err = f.Sync()
		}
		return errors.Join(err, f.Close())
	})
	if err != nil {
		return about, 0, err
	}
	if format, err = parseFormat(text); err != nil {
		return about, 0, fmt.Errorf("%s of the backup: %w", formatFile, err)
	}
	if format > Version {
		return about, 0, fmt.Errorf("the backup is of a data directory of format %d, this program knows the formats up to %d: use the program that wrote it", format, Version)
	}
	return about, format, atomicfile.SyncDirs(dir)
}

// Check reads a whole data directory that is not in use, and verifies that its logs are consistent: all objects, all
// history, and each step from one change to the next. It changes nothing but LOCK. It takes time in proportion to the
// logs, and memory for 16 bytes per replaced version. The first fault is the error.
func (d *Dir) Check(ctx context.Context) (c Contents, err error) {
	look := *d
	look.ReadOnly, look.opened = true, nil
	log, err := look.OpenLog(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := look.opened.log.Check(ctx); err != nil {
		return c, err
	}
	c.Log = contentsOf(look.opened.log.Summary())
	f := look.opened.forks
	names, err := f.names()
	if err != nil {
		return c, err
	}
	c.Forks, err = f.check(ctx, names)
	return c, err
}

// check checks the logs of forks, which are not open.
func (f *forks) check(ctx context.Context, names []string) (all map[string]LogContents, err error) {
	for _, name := range names {
		found, err := check(ctx, f.options(name))
		if err != nil {
			return all, fmt.Errorf("kept fork %s: %w", name, err)
		}
		if all == nil {
			all = map[string]LogContents{}
		}
		all[name] = found
	}
	return all, nil
}

// check checks a log that is not open.
func check(ctx context.Context, o pebblelog.Options) (c LogContents, err error) {
	o.ReadOnly = true
	log, err := pebblelog.Open(ctx, o)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	return contentsOf(log.Summary()), log.Check(ctx)
}
