package pebblelog

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file HEAD is a magic and a head. It is replaced whole: written beside its
// place, synced, renamed, and the directory synced. So it is always some head
// that was durable before, and Pebble has to have reached it.
//
// It is written after every flush of a memtable and at the clean stop. Nothing
// waits for it, and a log whose HEAD is old is whole: HEAD only bounds what
// damage at the end of the write-ahead log or of the manifest could make look
// like a torn write.

const (
	headFile  = "HEAD"
	headMagic = "tidehd1\n"
)

// readHeadFile returns nil when there is no file.
func readHeadFile(fs vfs.FS, path string) (*head, error) {
	f, err := fs.Open(path)
	if oserror.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return nil, err
	}
	h, err := parseHeadFile(b)
	if err != nil {
		return nil, &DamageError{File: path, Place: "its only record", Err: err}
	}
	return &h, nil
}

func parseHeadFile(b []byte) (head, error) {
	if len(b) < len(headMagic) || string(b[:len(headMagic)]) != headMagic {
		return head{}, fmt.Errorf("it does not begin with %q", headMagic)
	}
	return readHead(b[len(headMagic):])
}

func writeHeadFile(fs vfs.FS, dir string, h head) error {
	path := fs.PathJoin(dir, headFile)
	b := h.append([]byte(headMagic))
	if err := writeSynced(fs, path+".new", b); err != nil {
		return err
	}
	if err := fs.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(fs, dir)
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

// copyHeadSoon has HEAD renewed in the background.
func (l *Log) copyHeadSoon() {
	select {
	case l.copyHead <- struct{}{}:
	default:
	}
}

func (l *Log) runCopier() {
	defer close(l.copierDone)
	for {
		select {
		case <-l.stopCopier:
			return
		case <-l.copyHead:
		}
		if l.failure.get() != nil {
			continue
		}
		// A HEAD that could not be written leaves the old one, which is as true.
		if err := writeHeadFile(l.o.FS, l.o.Dir, *l.durable.Load()); err != nil {
			l.o.Logger.Warn("log: HEAD was not renewed", "error", err)
		}
	}
}

// checkWitness compares the head that Pebble came up with to the one in HEAD.
func (l *Log) checkWitness(witness *head, h head) error {
	lost := func(format string, args ...any) error {
		return &DamageError{File: l.pebbleDir(), Place: "the head", Err: fmt.Errorf(format, args...)}
	}
	switch {
	case witness == nil && h.sequence <= 1 && h.revision == 0:
		return nil // new, or its making was interrupted
	case witness == nil:
		return &DamageError{File: l.headPath(), Place: "its name", Err: errors.New("the file is missing")}
	case h.sequence < witness.sequence:
		return lost("it ends at revision %d, batch %d, but %s says that revision %d, batch %d, was durable",
			h.revision, h.sequence, l.headPath(), witness.revision, witness.sequence)
	case h.sequence == witness.sequence && h != *witness:
		return lost("it is not that of %s, though of the same batch %d", l.headPath(), h.sequence)
	case h.revision < witness.revision || h.floor < witness.floor:
		return lost("revision %d and floor %d, before those of %s (%d and %d)",
			h.revision, h.floor, l.headPath(), witness.revision, witness.floor)
	}
	return l.checkWitnessChain(*witness, h)
}

// checkWitnessChain looks up the header that HEAD was written at.
func (l *Log) checkWitnessChain(w, h head) error {
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
		return l.damaged(place, fmt.Errorf("it is not the one of %s", l.headPath()))
	}
	return nil
}
