package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// Import is the state that a new directory begins with.
type Import struct {
	// Revision is the newest one: the first write of a server has the next one.
	Revision store.Revision
	// Objects yields the objects with their collections, as the log stores them. None was modified after
	// Revision.
	Objects iter.Seq2[string, *store.Object]
	// Err returns why the objects ended early, or nil.
	Err func() error
	// Amendments yields later states, in order; nil: there are none. Its error ends Import.
	Amendments iter.Seq2[Amendment, error]
	// Verify checks the log, which is open for reading alone, before the directory is complete.
	Verify func(store.Log) error
}

// Amendment is the changes that lead to a later state.
type Amendment struct {
	Revision store.Revision
	// Entries are the changes since the state before, as the log stores their objects. Several of one object may
	// follow each other.
	Entries []store.Entry
}

// Import makes a directory of a state. The directory does not exist or is empty. When Import returns nil, the
// directory is durable. After an error, and if the process ends before, it is as after a failed Restore: no server
// starts on it.
func (d *Dir) Import(ctx context.Context, i Import) (found Contents, err error) {
	err = d.create(func() error {
		if err := atomicfile.MakeDir(filepath.Join(d.Path, logDir)); err != nil {
			return err
		}
		err := pebblelog.Fill(ctx, d.logOptions(), i.Revision, time.Time{}, i.Objects)
		if err := errors.Join(i.Err(), err); err != nil {
			return err
		}
		if err := d.amend(ctx, i.Amendments); err != nil {
			return err
		}
		if found.Log, err = check(ctx, d.logOptions()); err != nil {
			return fmt.Errorf("the new log is damaged: %w", err)
		}
		if err := d.verify(ctx, i.Verify); err != nil {
			return err
		}
		return errors.Join(atomicfile.SyncDirs(d.Path), writeFormat(d.Path, basicFormat))
	})
	return found, err
}

// amend applies amendments to a log that was filled.
func (d *Dir) amend(ctx context.Context, all iter.Seq2[Amendment, error]) error {
	if all == nil {
		return nil
	}
	log, err := pebblelog.Open(ctx, d.logOptions())
	if err != nil {
		return err
	}
	for a, err := range all {
		if err == nil {
			err = log.Amend(ctx, a.Revision, a.Entries)
		}
		if err != nil {
			return errors.Join(err, log.Close())
		}
	}
	return log.Close()
}

// verify calls a function with the log, open for reading alone.
func (d *Dir) verify(ctx context.Context, f func(store.Log) error) error {
	o := d.logOptions()
	o.ReadOnly = true
	log, err := pebblelog.Open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(f(log), log.Close())
}

// FreeBytes returns the free space of the file system that has a path, or would have it; false: it is not known.
func FreeBytes(path string) (int64, bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return 0, false
	}
	for {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			break
		}
		path = filepath.Dir(path)
	}
	u, err := vfs.Default.GetDiskUsage(path)
	return int64(u.AvailBytes), err == nil
}
