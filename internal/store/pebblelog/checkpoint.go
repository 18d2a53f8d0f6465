package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Summary has the revisions and sizes of a log at one moment.
type Summary struct {
	// Revision is that of the newest change, Floor the oldest revision that can be read back.
	Revision, Floor store.Revision
	// Objects is the number of current objects.
	Objects uint64
	// HistoryBytes is the size of the history.
	HistoryBytes uint64
	// Time is that of the newest change that has one; zero: none has.
	Time time.Time
}

// Summary returns the summary of the log. It is cheap.
func (l *Log) Summary() Summary {
	h := l.head.Load()
	s := Summary{Revision: h.revision, Floor: h.floor, Objects: h.objects, HistoryBytes: h.historyBytes}
	if h.time != 0 {
		s.Time = time.UnixMicro(h.time).UTC()
	}
	return s
}

// Checkpoint copies the log, with its history, to a directory that does not exist and is on the same file system.
// The copy is a log of its own, as of one revision: everything that was durable when Checkpoint was called, and
// perhaps some groups more. Reads and writes go on. Tables are linked, where the file system can, and the
// write-ahead logs are copied, so that it takes milliseconds to some hundred of them. The links keep the space of
// tables that the log drops later, so the copy is meant to be removed soon.
//
// The copy is opened and passes the checks of a start before Checkpoint returns its summary. After an error the
// directory may be there, incomplete.
func (l *Log) Checkpoint(ctx context.Context, dir string) (Summary, error) {
	if !l.readers.acquire() {
		return Summary{}, store.ErrClosed
	}
	defer l.readers.release()
	if l.o.ReadOnly {
		return Summary{}, errReadOnly
	}
	if err := l.Usable(); err != nil {
		return Summary{}, err
	}
	if free, ok := l.space.free(); ok && free < l.space.minFree {
		return Summary{}, l.space.refusal(free)
	}
	if err := l.o.FS.MkdirAll(dir, 0o700); err != nil {
		return Summary{}, err
	}
	w := l.witness(l.liveWALs()) // before the copy, which is not behind it then
	err := l.apart(func() error {
		return l.db.Checkpoint(l.o.FS.PathJoin(dir, "pebble"), pebble.WithFlushedWAL())
	})
	if err == nil {
		err = errors.Join(writeHeadFile(l.o.FS, dir, w), syncDir(l.o.FS, dir))
	}
	if err != nil {
		return Summary{}, fmt.Errorf("log %s: a copy: %w", l.o.Dir, err)
	}
	made, err := Open(ctx, Options{Dir: dir, FS: l.o.FS, ReadOnly: true, Logger: l.o.Logger, reach: l.o.reach})
	if err != nil {
		return Summary{}, fmt.Errorf("log %s: a copy cannot be opened: %w", l.o.Dir, err)
	}
	return made.Summary(), made.Close()
}
