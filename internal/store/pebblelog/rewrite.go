package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Permanent erasure
//
// A compaction of the history makes records unreadable. Their bytes stay where Pebble has put them: in a
// write-ahead log that it keeps to write over, in a table of the last level that no write has touched since, and
// in a table that a compaction moved down as it is. Rewrite leaves none of these files:
//
//   - Opening the log writes the records of the write-ahead logs into tables, and removes those logs.
//   - Each table gets a newer write of a record within its bounds. Then it overlaps with a newer table, and a
//     compaction of all levels cannot leave it out or move it. In a small log, whose only level is the last one,
//     any write does that, because each one writes the head, the last key.
//   - Opening the log again removes the write-ahead logs and the manifests of the times before.
//
// In the end it compares the names of the files, whose numbers Pebble never uses twice.

// reopens is how often Rewrite opens the log after the compaction: Pebble keeps the manifest of the time before.
const reopens = 2

// Rewrite writes all files of a log anew that is not open, so that no file has records that the log no longer has. All
// drops the whole history first: only the newest state stays. It needs as much free space as the log takes, and may be
// repeated after an error or a crash.
func Rewrite(ctx context.Context, o Options, all bool) (s Summary, err error) {
	old, err := recordFiles(o.withDefaults())
	if err != nil {
		return s, err
	}
	o.ReadOnly = false
	l, err := Open(ctx, o)
	if err != nil {
		return s, err
	}
	if all {
		err = l.Compact(ctx, l.head.Load().revision)
	}
	if err == nil {
		err = l.forgetAllActors()
	}
	if err == nil {
		err = l.rewrite(ctx)
	}
	s = l.Summary()
	if err = errors.Join(err, l.Close()); err != nil {
		return s, err
	}
	for range reopens {
		if l, err = Open(ctx, o); err != nil {
			return s, err
		}
		if err := l.Close(); err != nil {
			return s, err
		}
	}
	left, err := recordFiles(l.o)
	if err != nil {
		return s, err
	}
	for _, name := range left {
		if slices.Contains(old, name) {
			return s, fmt.Errorf("log %s: Pebble has kept %s, which may have records that are gone: try again", l.o.Dir, name)
		}
	}
	return s, nil
}

// recordFiles returns the names of the files that have records, or keys of records.
func recordFiles(o Options) (names []string, err error) {
	all, err := o.FS.List(o.FS.PathJoin(o.Dir, "pebble"))
	if err != nil {
		return nil, fmt.Errorf("log %s: %w", o.Dir, err)
	}
	for _, name := range all {
		if strings.HasPrefix(name, "MANIFEST-") || strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".blob") {
			names = append(names, name)
		}
	}
	return names, nil
}

// forgetAllActors removes the definitions of all actors if no change is left that refers to one.
func (l *Log) forgetAllActors() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := *l.head.Load()
	if h.cut < h.revision {
		return nil
	}
	clear(l.actors)
	batch := l.db.NewBatch()
	defer batch.Close()
	lower, upper := spaceBounds(spaceActor)
	if err := batch.DeleteRange(lower, upper, nil); err != nil {
		return err
	}
	return l.commit(batch, h, pebble.Sync)
}

// rewrite makes Pebble write all tables anew.
func (l *Log) rewrite(ctx context.Context) error {
	l.compacting.Lock()
	defer l.compacting.Unlock()
	if err := l.touch(ctx); err != nil {
		return err
	}
	if err := l.space.admitCompaction(); err != nil {
		return err
	}
	if err := l.compactTables(ctx, []byte{0}, []byte{0xff}); err != nil {
		return err
	}
	return l.awaitRemovals(ctx)
}

// touchBytes is about the size of a batch of touch.
const touchBytes = 4 << 20

// touch writes a record of each table again. A table without records of the newest state gets the removal of one that is
// gone. It keeps other writers out, so that it never writes an older version over a newer one.
func (l *Log) touch(ctx context.Context) error {
	levels, err := l.db.SSTables()
	if err != nil {
		return fmt.Errorf("log %s: its tables: %w", l.o.Dir, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	it, err := l.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	batch := l.db.NewBatch()
	defer func() { batch.Close() }()
	for _, tables := range levels {
		for i := range tables {
			smallest, largest := tables[i].Smallest.UserKey, tables[i].Largest.UserKey
			found := it.SeekGE(smallest) && bytes.Compare(it.Key(), largest) <= 0
			if found && bytes.Equal(it.Key(), headKey) { // which each batch has
				found = it.Next() && bytes.Compare(it.Key(), largest) <= 0
			}
			switch {
			case found:
				err = batch.Set(it.Key(), it.Value(), nil)
			case !bytes.Equal(smallest, headKey):
				err = batch.Delete(smallest, nil)
			}
			if err := errors.Join(err, it.Error(), ctx.Err()); err != nil {
				return err
			}
			if batch.Len() < touchBytes {
				continue
			}
			if err := l.commit(batch, *l.head.Load(), pebble.NoSync); err != nil {
				return err
			}
			batch.Close()
			batch = l.db.NewBatch()
		}
	}
	return l.commit(batch, *l.head.Load(), pebble.Sync)
}

// compactTables makes Pebble compact the tables between two keys.
func (l *Log) compactTables(ctx context.Context, lower, upper []byte) error {
	err := l.apart(func() error { return l.db.Compact(ctx, lower, upper, false) })
	switch f := l.failure.get(); {
	case err == nil:
		return nil
	case f != nil:
		return f
	case ctx.Err() != nil:
		return ctx.Err()
	case retryable(err):
		return fmt.Errorf("%w: %w", store.ErrNoSpace, err)
	}
	return fmt.Errorf("log %s: %w", l.o.Dir, err)
}
