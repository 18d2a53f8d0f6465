package pebblelog

import (
	"errors"
	"io"
	"slices"
	"sync"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The file SYNCED has the same content as HEAD would have, as of the last synced group. It is overwritten in place after
// each sync and before the write is acknowledged, and is not synced itself: that costs a few
// microseconds instead of a second sync. The page cache outlives the process, so after kill -9 the
// file is exact, and a write-ahead log that lost any acknowledged group is refused. After a power cut
// the file may have any of its earlier contents, and HEAD is the bound, as it is without the file.
//
// The file has two slots, written in turn, so that an interrupted write leaves the other one. A slot
// is a HEAD with one write-ahead log, the newest with synced bytes. A slot that does not fit its
// checksum is ignored.

const (
	syncedFile = "SYNCED"
	slotSize   = 512 // a sector; the rest of it is zero
	slots      = 2
	slotUsed   = len(headMagic) + headSize + positionSize + 8
)

// slotFile is the open file SYNCED. It is safe for concurrent use; a nil one does nothing.
type slotFile struct {
	mu   sync.Mutex
	file vfs.File
	next int64 // the slot to write, 0 or 1
	buf  []byte
	err  error // of the first write that failed; no further one is tried
}

// openSlots makes SYNCED, or empties it, and writes w to it. The content is synced: after
// AcceptDataLoss, a power cut must not bring slots back that are ahead of the log.
func openSlots(fs vfs.FS, dir string, w witness) (*slotFile, error) {
	path := fs.PathJoin(dir, syncedFile)
	if err := writeSynced(fs, path+".new", make([]byte, slots*slotSize)); err != nil {
		return nil, err
	}
	if err := fs.Rename(path+".new", path); err != nil {
		return nil, err
	}
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	s := &slotFile{file: f}
	if err := errors.Join(s.write(w), syncDir(fs, dir)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// write puts w into the next slot.
func (s *slotFile) write(w witness) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil
	}
	s.buf = w.append(s.buf[:0])
	_, s.err = s.file.WriteAt(s.buf, s.next*slotSize)
	s.next = (s.next + 1) % slots
	return s.err
}

func (s *slotFile) close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}

// readSlots returns the newer slot of SYNCED, or nil if there is none.
func readSlots(fs vfs.FS, path string) (*witness, error) {
	f, err := fs.Open(path)
	if oserror.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, slots*slotSize))
	if err != nil {
		return nil, err
	}
	var newest *witness
	for ; len(b) >= slotUsed; b = b[min(slotSize, len(b)):] {
		if w, err := parseHeadFile(b[:slotUsed]); err == nil && (newest == nil || w.sequence > newest.sequence) {
			newest = &w
		}
	}
	if newest != nil {
		newest.path = path
	}
	return newest, nil
}

// withSynced returns HEAD, or the head of SYNCED if that is later, with the positions of both. SYNCED alone
// does not make up for a missing HEAD.
func withSynced(head, synced *witness) *witness {
	if head == nil || synced == nil {
		return head
	}
	w := witness{head: head.head, path: head.path, wals: slices.Clone(head.wals)}
	if synced.sequence > head.sequence {
		w.head, w.path = synced.head, synced.path
	}
	for _, p := range synced.wals {
		i := slices.IndexFunc(w.wals, func(q walPosition) bool { return q.number == p.number })
		if i < 0 {
			w.wals = append(w.wals, p)
		} else {
			w.wals[i].synced = max(w.wals[i].synced, p.synced)
		}
	}
	return &w
}
