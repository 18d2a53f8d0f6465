package pebblelog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file HEAD is a magic, a head, the write-ahead logs with how far each was
// synced, and a checksum. It is replaced whole: written beside its place, synced and
// renamed. So it is always some head that was durable before, and Pebble has to have
// reached it.
//
// It is written with the first synced write in each write-ahead log, after every flush of a
// memtable, within Options.HeadInterval of every write, and at the clean stop. Only the
// first of these delays a write: without it, the loss of a whole young write-ahead log
// would go unnoticed after a power cut, which may also lose the file SYNCED. A log whose HEAD is old is whole: HEAD only limits the writes that damage at the
// end of the write-ahead log or of the manifest could make look like a torn write.
//
// The head decides whether something is missing. The positions name the log: one that
// HEAD lists may also be gone because Pebble had no use for it any more.

const (
	headFile  = "HEAD"
	headMagic = "tidehd3\n"
	// headMagic2 begins a HEAD whose head has no time, headMagic1 one that is such a head alone.
	headMagic2   = "tidehd2\n"
	headMagic1   = "tidehd1\n"
	positionSize = 8 + 8
)

// witness is the content of HEAD, or of a slot of SYNCED.
type witness struct {
	head
	wals []walPosition
	path string // of the file it was read from
}

// readHeadFile returns nil when there is no file.
func readHeadFile(fs vfs.FS, path string) (*witness, error) {
	f, err := fs.Open(path)
	if oserror.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	w, err := parseHeadFile(b)
	if err != nil {
		return nil, &DamageError{File: path, Place: "its only record", Err: err}
	}
	w.path = path
	return &w, nil
}

func parseHeadFile(b []byte) (witness, error) {
	if old, ok := bytes.CutPrefix(b, []byte(headMagic1)); ok {
		h, err := readHead(old)
		return witness{head: h}, err
	}
	headSize := headSize
	rest, ok := bytes.CutPrefix(b, []byte(headMagic))
	if !ok {
		headSize = oldHeadSize
		if rest, ok = bytes.CutPrefix(b, []byte(headMagic2)); !ok {
			return witness{}, fmt.Errorf("it does not begin with %q", headMagic)
		}
	}
	b = rest
	n := len(b) - headSize - 8
	if n < 0 || n%positionSize != 0 {
		return witness{}, errShort
	}
	if xxhash.Sum64(b[:headSize+n]) != be.Uint64(b[headSize+n:]) {
		return witness{}, errChecksum
	}
	h, err := readHead(b[:headSize])
	w := witness{head: h}
	for p := b[headSize : headSize+n]; len(p) > 0; p = p[positionSize:] {
		w.wals = append(w.wals, walPosition{be.Uint64(p), be.Uint64(p[8:])})
	}
	return w, err
}

func (w *witness) append(b []byte) []byte {
	b = append(b, headMagic...)
	start := len(b)
	b = w.head.append(b)
	for _, p := range w.wals {
		b = be.AppendUint64(b, p.number)
		b = be.AppendUint64(b, p.synced)
	}
	return be.AppendUint64(b, xxhash.Sum64(b[start:]))
}

// writeHeadFile replaces HEAD. A power cut may bring the old one back until the caller,
// or the file system, syncs the directory.
func writeHeadFile(fs vfs.FS, dir string, w witness) error {
	path := fs.PathJoin(dir, headFile)
	if err := writeSynced(fs, path+".new", w.append(nil)); err != nil {
		return err
	}
	return fs.Rename(path+".new", path)
}

func writeSynced(fs vfs.FS, path string, b []byte) error {
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes the directory of the log and the one for Pebble in it, and syncs
// both entries.
func makeDir(fs vfs.FS, dir, pebble string) error {
	if err := fs.MkdirAll(pebble, 0o700); err != nil {
		return err
	}
	return errors.Join(syncDir(fs, fs.PathDir(dir)), syncDir(fs, dir))
}

// copyHeadSoon makes the copier renew HEAD at once.
func (l *Log) copyHeadSoon() { wake(l.copyHead) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runCopier renews HEAD: after flushes at once, after writes within Options.HeadInterval.
func (l *Log) runCopier() {
	defer close(l.copierDone)
	for {
		flushed := true
		select {
		case <-l.stopCopier:
			return
		case <-l.copyHead:
		case <-l.wrote:
			select {
			case <-l.stopCopier:
				return
			case <-l.copyHead:
			case <-time.After(l.o.HeadInterval):
				flushed = false
			}
		}
		if l.Usable() == nil {
			l.renewHead(flushed)
		}
	}
}

// renewHead writes HEAD if it changed. On failure the old HEAD stays, and is still valid.
func (l *Log) renewHead(syncDirectory bool) {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	w := l.witness(l.liveWALs())
	if l.copied != nil && l.copied.head == w.head && slices.Equal(l.copied.wals, w.wals) {
		return
	}
	err := writeHeadFile(l.o.FS, l.o.Dir, w)
	if err == nil && syncDirectory {
		err = syncDir(l.o.FS, l.o.Dir)
	}
	if err != nil {
		if !l.stale {
			l.o.Logger.Warn("log: HEAD was not renewed", "error", err)
		}
		l.stale = true
		return
	}
	l.copied, l.stale = &w, false
}

// witness is the content that HEAD may have now, if Pebble needs so many write-ahead logs. The
// positions are read first, so that the head covers them.
func (l *Log) witness(live int) witness {
	all := l.wals.positions()
	w := witness{wals: all[max(0, len(all)-live):]}
	w.head = *l.durable.Load()
	return w
}

// liveWALs is how many of the newest write-ahead logs Pebble needs; it keeps others to
// write over them.
func (l *Log) liveWALs() int { return int(l.db.Metrics().WAL.Files) }

// checkWitness compares Pebble's head to the one in HEAD. A log without HEAD is refused
// unless it is new. With AcceptDataLoss the difference is logged.
func (l *Log) checkWitness(w *witness, h head) error {
	err := l.compareWitness(w, h)
	if err == nil || !l.o.AcceptDataLoss {
		return err
	}
	attrs := []any{"revision", uint64(h.revision), "error", err}
	if w != nil {
		attrs = append(attrs, "lost", fmt.Sprintf("what was written up to revision %d", w.revision))
	}
	l.o.Logger.Warn("log: data loss accepted: the log goes on from an earlier revision", attrs...)
	return nil
}

func (l *Log) compareWitness(w *witness, h head) error {
	lost := func(format string, args ...any) error {
		return &DamageError{File: l.pebbleDir(), Place: "the head", Err: fmt.Errorf(format+acceptHint, args...)}
	}
	switch {
	case w == nil && h.sequence <= 1 && h.revision == 0:
		return nil // new, or its making was interrupted
	case w == nil:
		return &DamageError{File: l.headPath(), Place: "its name", Err: errors.New("the file is missing" + acceptHint)}
	case h.sequence < w.sequence:
		return lost("it ends at revision %d, batch %d, but %s says that revision %d, batch %d, was durable",
			h.revision, h.sequence, w.path, w.revision, w.sequence)
	case h.sequence == w.sequence && h != w.head:
		return lost("it is not that of %s, though of the same batch %d", w.path, h.sequence)
	case h.revision < w.revision || h.floor < w.floor:
		return lost("revision %d and floor %d, before those of %s (%d and %d)",
			h.revision, h.floor, w.path, w.revision, w.floor)
	}
	return l.checkWitnessChain(w, h)
}

// checkWitnessChain looks up the header that HEAD, or SYNCED, was written at.
func (l *Log) checkWitnessChain(w *witness, h head) error {
	chain, place := h.cutChain, fmt.Sprintf("the cut at revision %d", h.cut)
	switch {
	case w.revision < h.cut:
		return nil // compacted since
	case w.revision > h.cut:
		place = fmt.Sprintf("the header of revision %d", w.revision)
		b, closer, err := l.db.Get(appendHeaderKey(nil, w.revision))
		if err != nil {
			return l.damaged(place, err)
		}
		got, err := parseHeader(b)
		closer.Close()
		if err != nil {
			return l.damaged(place, err)
		}
		chain = got.chain
	}
	if chain != w.chain {
		return l.damaged(place, fmt.Errorf("it is not the one of %s", w.path))
	}
	return nil
}
