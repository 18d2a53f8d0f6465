package groupcommit

import (
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Compaction
//
// A revision is kept for Options.Retention of running time after a newer one
// replaced it, see aging.go of package store.
//
// If history is larger than its bound, the floor rises by the share that is too much. It also
// rises when the medium is short of space: see room.go.
//
// The floor is published before the log forgets. The exception is a deletion on a full
// medium, which makes the log forget at once: then the floor is published with the
// deletion. A reader below the floor of the log gets an *ExpiredError, never wrong data.

const (
	// compactStep is the most revisions that one call of Log.Compact forgets, so that writes
	// proceed in between.
	compactStep = 16384
	// After one part in sizeShare of Options.MaxDisk is written, the size is checked at
	// once.
	sizeShare = 64
)

// compactLoop runs until the store closes.
func (c *committer) compactLoop() {
	s := c.store
	ticker := time.NewTicker(s.Aging().Tick())
	defer ticker.Stop()
	var retry <-chan time.Time
	wait := roomRetry
	for {
		select {
		case <-s.Done():
			return
		case <-c.log.Broken():
			c.end(c.log.Compact(s.Context(), 0))
			return
		case <-ticker.C:
		case <-s.Aging().Kicked():
		case <-retry:
		}
		floor, head := s.Bounds()
		floor = max(floor, s.Aging().Floor(head))
		bySize := c.floorBySize(floor, head)
		err := c.compact(max(floor, bySize))
		if err == nil && bySize > floor && c.mostHistory.Load() < s.Options().MaxDisk {
			s.GaveUp(bySize - floor) // for the sake of a small disk
		}
		if err == nil && !c.inMemory {
			err = c.makeRoom()
		}
		if err == nil && !c.inMemory {
			err = c.tidy()
		}
		u := c.log.Usage()
		c.room.done(u.FreeBytes < u.NeededBytes)
		retry = nil
		if floor, head = s.Bounds(); c.log.Short() > 0 && (floor < head || err != nil || c.worthReclaiming()) {
			retry = time.After(wait)
		}
		if wait = min(wait*2, mostRoomRetry); err == nil {
			wait = roomRetry
		}
		if s.Context().Err() != nil {
			return // compaction was interrupted, and goes on after the next start
		}
		if err != nil && !errors.Is(err, store.ErrNoSpace) {
			c.end(err)
			return
		}
	}
}

// end ends all writing, since the log has failed between two groups.
func (c *committer) end(err error) {
	if failure, first := c.fail(err); first {
		c.store.Fatal(failure)
	}
}

// floorBySize is the floor that brings history below its bound on disk.
func (c *committer) floorBySize(floor, head store.Revision) store.Revision {
	u := c.log.Usage()
	size, most := u.HistoryBytes, c.store.Options().MaxDisk
	if u.NeededBytes > 0 {
		most = min(most, (u.FreeBytes+u.TotalBytes)/diskShare)
	}
	c.mostHistory.Store(most)
	if size <= most {
		return floor
	}
	// A little more than needed, so that it is not needed again at once.
	excess := float64(size-most+most/16) / float64(size)
	return floor + min(head-floor, store.Revision(float64(head-floor)*excess)+1)
}

// compact raises the floor, step by step, in memory and in the log. Only the loop calls it.
func (c *committer) compact(floor store.Revision) error {
	s := c.store
	if c.compacted >= floor {
		return nil
	}
	began := time.Now()
	defer func() { s.Measured().Compacted(time.Since(began)) }()
	before := c.log.Usage().HistoryBytes
	defer func() { c.room.garbage.Add(max(0, before-c.log.Usage().HistoryBytes)) }()
	for c.compacted < floor {
		if s.Context().Err() != nil {
			return nil
		}
		next := min(floor, c.compacted+compactStep)
		s.RaiseFloor(next)
		s.Trim(next)
		if err := c.log.Compact(s.Context(), next); err != nil {
			return fmt.Errorf("compact below revision %d: %w", next, err)
		}
		c.compacted = next
	}
	return nil
}
