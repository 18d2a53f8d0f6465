package pebblelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Lost writes at start
//
// The files are read before Pebble opens them for writing: Pebble would truncate the
// write-ahead logs, and remove them after flushing the rest. So a refused start leaves the
// directory unchanged, and a missing file can be put back.
//
//	losses  the logs that end before their synced length, as a later chunk or HEAD has it
//	peek    opens Pebble read-only and returns its head, which must not be older than HEAD
//
// HEAD may list a log that Pebble flushed and removed since. A file missing only according
// to HEAD is a loss only if Pebble's head is older than HEAD.
//
// With AcceptDataLoss, the log is opened without the missing data. Data after a gap depends
// on it, so the later write-ahead logs are set aside as a whole, and the one with the gap is
// truncated. If there are several gaps, the choice is the latest one that leaves a
// consistent log, or none.

// acceptHint ends the errors that AcceptDataLoss overrides.
const acceptHint = restoreHint + ", or start with --accept-data-loss to continue without the missing writes"

// AsideDir has the write-ahead logs that were set aside, and the originals of truncated
// ones.
const AsideDir = "dropped"

// walLoss is a write-ahead log that is shorter than its synced length.
type walLoss struct {
	number  uint64
	missing bool   // there is no file
	end     uint64 // of its intact beginning, in bytes
	synced  uint64 // its synced length in HEAD
	proven  bool   // a chunk after the end records that more was synced
}

// findLosses returns the write-ahead logs that end too early, by number.
func (l *Log) findLosses(w *witness) ([]walLoss, error) {
	synced := map[uint64]uint64{}
	for _, p := range w.wals {
		synced[p.number] = p.synced
	}
	names, err := l.o.FS.List(l.pebbleDir())
	if err != nil {
		return nil, err
	}
	var losses []walLoss
	for _, name := range names {
		number, ok := walNumber(l.o.FS.PathBase(name))
		if !ok {
			continue
		}
		end, err := readWAL(l.o.FS, l.walPath(number), number)
		if err != nil {
			return nil, err
		}
		if end.lost || end.at < synced[number] {
			losses = append(losses, walLoss{number: number, end: end.at, synced: synced[number], proven: end.lost})
		}
		delete(synced, number)
	}
	for number, at := range synced {
		if at > 0 {
			losses = append(losses, walLoss{number: number, missing: true, synced: at})
		}
	}
	slices.SortFunc(losses, func(a, b walLoss) int { return cmp.Compare(a.number, b.number) })
	return losses, nil
}

func (l *Log) walPath(number uint64) string {
	return l.o.FS.PathJoin(l.pebbleDir(), walName(number))
}

// examine reads the files and refuses a log that lost synced data, before anything is
// changed. It reports whether there is a log.
func (l *Log) examine(ctx context.Context, w *witness) (exists bool, err error) {
	names, err := l.o.FS.List(l.pebbleDir())
	if err != nil && !oserror.IsNotExist(err) {
		return false, err
	}
	if w == nil && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "marker.manifest.") }) {
		return false, nil // new, or its making was interrupted
	}
	if err != nil {
		return false, &DamageError{File: l.pebbleDir(), Place: "its name", Err: errors.New("the directory is missing; restore it or a backup of the whole directory")}
	}
	return true, l.checkLosses(ctx, w)
}

// checkLosses refuses a log that is older than HEAD, and write-ahead logs that lost synced
// data. With AcceptDataLoss it truncates them to a consistent log, and start logs how far
// behind the head is.
func (l *Log) checkLosses(ctx context.Context, w *witness) error {
	known := cmp.Or(w, &witness{path: l.headPath()})
	losses, err := l.findLosses(known)
	if err != nil {
		return err
	}
	h, peekErr := l.peek(ctx, nil, func(p *Log, h head) error {
		switch {
		case l.o.AcceptDataLoss && len(losses) == 0:
			return nil
		case l.o.AcceptDataLoss, len(losses) > 0 && h.sequence < known.sequence:
			return p.checkAll(ctx, h)
		}
		if err := p.compareWitness(w, h); err != nil {
			return err
		}
		return p.checkTail(ctx, h)
	})
	proven := slices.ContainsFunc(losses, func(s walLoss) bool { return s.proven })
	var other *DamageError
	switch {
	case len(losses) == 0:
		return peekErr
	case !proven && peekErr == nil && h.sequence >= known.sequence:
		return nil // Pebble had no use for them
	case !proven && errors.As(peekErr, &other) && strings.HasSuffix(other.File, ".sst"):
		return peekErr // so whether they were needed is not known
	case !l.o.AcceptDataLoss:
		return l.lossError(losses, known, h, peekErr)
	case peekErr == nil:
		return l.keep(losses)
	}
	for _, loss := range slices.Backward(losses) {
		if _, err := l.peek(ctx, &loss, func(p *Log, h head) error { return p.checkAll(ctx, h) }); err == nil {
			return l.drop(loss)
		}
	}
	return l.lossError(losses, known, h, peekErr)
}

// checkAll checks that the files are consistent; with AcceptDataLoss, also all current
// objects.
func (l *Log) checkAll(ctx context.Context, h head) error {
	if err := l.checkTail(ctx, h); err != nil || !l.o.AcceptDataLoss {
		return err
	}
	return l.loadAll(ctx, h, func(string, *store.Object) error { return nil })
}

// lossError names the first loss and the remaining revisions.
func (l *Log) lossError(losses []walLoss, w *witness, h head, peekErr error) error {
	first := losses[0]
	e := &DamageError{File: l.walPath(first.number), Place: fmt.Sprintf("offset %d", first.end)}
	what := "what was synced there does not fit its checksum"
	switch {
	case first.missing:
		e.Place = "its name"
		what = fmt.Sprintf("the file is missing; %d bytes of it had been synced", first.synced)
	case !first.proven:
		what = fmt.Sprintf("it ends there, but %d bytes were synced", first.synced)
	}
	if n := len(losses) - 1; n > 0 {
		what += fmt.Sprintf(" (and %d more write-ahead logs end too early)", n)
	}
	what += fmt.Sprintf("; %s records revision %d as durable", w.path, w.revision)
	if peekErr == nil {
		what += fmt.Sprintf(", and what is left ends at revision %d", h.revision)
	} else { // it may be the cause: an earlier start that failed may have used the file up
		what += "; what is left cannot be read: " + strings.TrimSuffix(peekErr.Error(), restoreHint)
	}
	e.Err = errors.New(what + acceptHint)
	return e
}

// peek opens Pebble read-only, without the data after the loss if there is one, and returns
// its head and the error of check. It changes nothing in the directory.
func (l *Log) peek(ctx context.Context, loss *walLoss, check func(*Log, head) error) (h head, err error) {
	p := &Log{o: l.o, memTable: memTableBytes}
	p.failure.done = make(chan struct{})
	if loss != nil {
		p.o.FS = cutFS{FS: l.o.FS, dir: l.pebbleDir(), loss: *loss}
	}
	o, closeFS := p.pebbleOptions(true)
	o.ReadOnly = true
	p.closeFS = closeFS
	err = p.apart(func() (err error) {
		p.db, err = pebble.Open(p.pebbleDir(), o)
		return err
	})
	if err != nil {
		return head{}, errors.Join(p.openError(err), closeFS())
	}
	defer func() { err = errors.Join(err, p.closePebble()) }()
	if h, err = p.loadHead(); err != nil {
		return head{}, err
	}
	return h, check(p, h)
}

// keep copies write-ahead logs to dropped that Pebble will read only up to their losses.
func (l *Log) keep(losses []walLoss) error {
	fs, dir := l.o.FS, l.o.FS.PathJoin(l.o.Dir, AsideDir)
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, loss := range losses {
		path := l.walPath(loss.number)
		if loss.missing {
			l.o.Logger.Warn("log: data loss accepted: a write-ahead log is missing", "path", path, "bytes", loss.synced)
			continue
		}
		l.o.Logger.Warn("log: data loss accepted: a write-ahead log is read up to a gap", "path", path, "offset", loss.end, "original", dir)
		if err := fs.Link(path, fs.PathJoin(dir, walName(loss.number))); err != nil && !oserror.IsExist(err) {
			return err
		}
	}
	return errors.Join(syncDir(fs, dir), syncDir(fs, l.o.Dir))
}

// drop sets the write-ahead logs after a loss aside, and truncates the one with the loss. The
// newest goes first, so that an interruption leaves no other gap.
func (l *Log) drop(loss walLoss) error {
	fs, dir := l.o.FS, l.o.FS.PathJoin(l.o.Dir, AsideDir)
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	names, err := fs.List(l.pebbleDir())
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		name = fs.PathBase(name)
		if number, ok := walNumber(name); ok && number > loss.number {
			l.o.Logger.Warn("log: data loss accepted: a write-ahead log is set aside, because one before it lost writes",
				"path", l.walPath(number), "to", dir)
			if err := fs.Rename(l.walPath(number), fs.PathJoin(dir, name)); err != nil {
				return err
			}
		}
	}
	if !loss.missing {
		if err := l.cut(loss, dir); err != nil {
			return err
		}
	}
	return errors.Join(syncDir(fs, dir), syncDir(fs, l.o.Dir), syncDir(fs, l.pebbleDir()))
}

// cut replaces a write-ahead log by its intact beginning. The file stays in dropped.
func (l *Log) cut(loss walLoss, dropped string) error {
	fs, path := l.o.FS, l.walPath(loss.number)
	l.o.Logger.Warn("log: data loss accepted: a write-ahead log is cut", "path", path, "offset", loss.end, "original", dropped)
	kept := fs.PathJoin(dropped, walName(loss.number))
	if err := fs.Link(path, kept); err != nil && !oserror.IsExist(err) {
		return err
	}
	f, err := fs.Open(path)
	if err != nil {
		return err
	}
	whole, err := io.ReadAll(io.LimitReader(f, int64(loss.end)))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	// In another directory: Pebble might take the file for one of its own.
	part := fs.PathJoin(dropped, "part")
	if err := writeSynced(fs, part, whole); err != nil {
		return err
	}
	return fs.Rename(part, path)
}

// cutFS is a file system that hides the data after a loss.
type cutFS struct {
	vfs.FS
	dir  string
	loss walLoss
}

// List implements vfs.FS.
func (fs cutFS) List(dir string) ([]string, error) {
	names, err := fs.FS.List(dir)
	if dir != fs.dir {
		return names, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		number, ok := walNumber(fs.PathBase(name))
		return ok && number > fs.loss.number
	}), err
}

// Open implements vfs.FS.
func (fs cutFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, o...)
	if number, ok := walNumber(fs.PathBase(name)); ok && err == nil && number == fs.loss.number {
		f = &cutFile{f, int64(fs.loss.end)}
	}
	return f, err
}

// Unwrap implements vfs.FS.
func (fs cutFS) Unwrap() vfs.FS { return fs.FS }

// cutFile ends after rest bytes.
type cutFile struct {
	vfs.File
	rest int64
}

// Read implements vfs.File.
func (f *cutFile) Read(p []byte) (int, error) {
	if f.rest == 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.rest)])
	f.rest -= int64(n)
	return n, err
}
