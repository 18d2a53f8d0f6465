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

// space keeps Pebble away from the end of the disk: an error of a write ends the
// process, so writes have to be refused before.
//
//	free space            what is taken
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

	// held says that the reserve file is there. It is used by Open and Append alone.
	held bool
	// full is set when a flush met the end of the disk: another program filled it. Then
	// what is taken piles up in memory. It is taken back when a flush works.
	full atomic.Bool
	// cramped is set when a compaction had no space. It is taken back when one works.
	cramped atomic.Bool
	// stop ends pauses.
	stop chan struct{}
}

const reserveFile = "RESERVE"

func (s *space) path() string { return s.fs.PathJoin(s.dir, reserveFile) }

// free returns the free bytes; false when the file system cannot tell.
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

// scale fills in what the options left out, by the size of the file system, and returns
// the size of a memtable for it.
//
//	file system     watermark   reserve   memtable
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

// settle makes or gives up the reserve, as the free space asks for, and returns
// the free space after that.
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

// take makes the reserve file. Its blocks are allocated, its content is nothing.
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

// admit says whether a group of so many bytes may be written. Scarce: it may because it
// deletes, below the watermark.
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

// inMiB writes a number of bytes for people.
func inMiB(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// admitCompaction says whether a compaction may write the little that it needs.
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

// forCompaction reports whether a compaction may write more: it may need as much as the
// log has, and must leave what deletions and flushes need. It can be tried again, which a
// write to a write-ahead log cannot.
func (s *space) forCompaction() bool {
	free, ok := s.free()
	return !ok || free >= s.minFree/4
}
