package pebblelog

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// space keeps Pebble from filling the disk: a failed write ends the process, so writes have
// to be refused before.
//
//	free space            accepted writes
//	>= minFree            everything
//	<  minFree            groups of deletions, and compactions
//	<  minFree / 2        the same; the reserve file is given up for them
//	<  minFree / 4        no tables by compactions of Pebble
//	<  minFree / 8        compactions of history
//	<  minFree / 16       nothing
//	>= minFree + 2 reserve   everything; the reserve file is made again
type space struct {
	fs      vfs.FS
	dir     string
	minFree uint64 // bytes
	reserve uint64 // bytes
	log     *slog.Logger

	// held reports that the reserve file exists. Only Open and Append use it.
	held bool
	// full is set when a flush found the disk full: another program filled it. Accepted
	// writes then accumulate in memory. A flush that succeeds resets it.
	full atomic.Bool
	// cramped is set when a compaction had no space. One that succeeds resets it.
	cramped atomic.Bool
	// stop ends pauses.
	stop chan struct{}
}

const reserveFile = "RESERVE"

func (s *space) path() string { return s.fs.PathJoin(s.dir, reserveFile) }

// free returns the free bytes; false if they are not known.
func (s *space) free() (uint64, bool) {
	u, err := s.fs.GetDiskUsage(s.dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) {
			s.log.Warn("log: the free space is unknown", "error", err)
		}
		return 0, false
	}
	return u.AvailBytes, true
}

// scale sets the options that are zero, by the size of the file system, and returns the
// size of a memtable for it.
//
//	file system     watermark   reserve   memtable
//	64 MB, less     8 MiB       1.3 MiB   1 MiB
//	90 MB           10.7 MiB    1.8 MiB   1 MiB
//	256 MiB         32 MiB      5.3 MiB   2.7 MiB
//	768 MiB, more   96 MiB      16 MiB    8 MiB
func (s *space) scale() (memTable uint64) {
	standard := uint64(DefaultMinFreeBytes)
	if u, err := s.fs.GetDiskUsage(s.dir); err == nil && u.TotalBytes > 0 {
		standard = min(max(u.TotalBytes/8, leastMinFree), standard)
	}
	if s.minFree == 0 {
		s.minFree = standard
	}
	if s.reserve == 0 {
		s.reserve = standard / (DefaultMinFreeBytes / DefaultReserveBytes)
	}
	return max(standard/(DefaultMinFreeBytes/memTableBytes), leastMemTable)
}

// open finds the reserve file, or makes it when there is space for it.
func (s *space) open() {
	_, err := s.fs.Stat(s.path())
	s.held = err == nil
	if free, ok := s.free(); ok {
		s.settle(free)
	}
}

// settle makes or removes the reserve file, depending on the free space, and returns the
// free space after that.
func (s *space) settle(free uint64) uint64 {
	switch {
	case !s.held && free >= s.minFree+2*s.reserve:
		if err := s.take(); err != nil {
			s.log.Warn("log: no reserve for a full disk", "error", err)
		}
	case s.held && free < s.minFree/2:
		if err := s.fs.Remove(s.path()); err != nil && !oserror.IsNotExist(err) {
			s.log.Warn("log: the reserve was not given up", "error", err)
			return free
		}
		s.held = false
		s.log.Warn("log: the disk is nearly full, the reserve is given up", "free", free, "reserve", s.reserve)
		if now, ok := s.free(); ok {
			return now
		}
	}
	return free
}

// take makes the reserve file, with allocated blocks and no content of meaning.
func (s *space) take() error {
	f, err := s.fs.Create(s.path(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	err = errors.Join(f.Preallocate(0, int64(s.reserve)), f.Close())
	if err != nil {
		return errors.Join(err, s.fs.Remove(s.path()))
	}
	s.held = true
	return nil
}

// admit returns an error if a group of so many bytes may not be written. Scarce reports that
// it may although free space is below the watermark, because it deletes.
func (s *space) admit(deletesOnly bool, size int) (scarce bool, err error) {
	free, ok := s.free()
	if !ok {
		return false, nil
	}
	free = s.settle(free)
	if free >= s.minFree {
		return false, nil
	}
	if deletesOnly && free >= s.minFree/8+uint64(size) && !s.full.Load() {
		return true, nil
	}
	return false, s.refusal(free)
}

func (s *space) refusal(free uint64) error {
	return fmt.Errorf("%w: the file system of %s has %s free, and writes need %s: free space there, or delete objects",
		store.ErrNoSpace, s.dir, inMiB(free), inMiB(s.minFree))
}

// inMiB formats a number of bytes.
func inMiB(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// admitCompaction returns an error if a compaction may not write the little that it needs.
func (s *space) admitCompaction() error {
	if free, ok := s.free(); ok && free < s.minFree/16 {
		return s.refusal(free)
	}
	return nil
}

// retryPause is how long a flush or a compaction waits before it tries a full disk
// again: Pebble tries at once.
const retryPause = time.Second

// pause is called before a table is made.
func (s *space) pause() {
	if !s.full.Load() && !s.cramped.Load() {
		return
	}
	select {
	case <-time.After(retryPause):
	case <-s.stop:
	}
}

// forCompaction reports whether a compaction may write more. It may need as much space as the
// log takes, and has to leave space for deletions and flushes. It can be retried, which a
// write to a write-ahead log cannot.
func (s *space) forCompaction() bool {
	free, ok := s.free()
	return !ok || free >= s.minFree/4
}
