package groupcommit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Room on the medium
//
// Writes matter more than history. When the log is short of space (Log.Short), the
// compaction loop drops history, oldest first, a part at a time, and reclaims the space
// (Log.Reclaim) until there is enough. The changes of the last store.KeepAtLeast stay, for watches
// that are behind by a moment.
//
// This begins before the log refuses writes. A write that is refused nevertheless waits for
// a pass of the loop, if there is history left to drop, and is tried once more.
const (
	// At least one part in roomParts of the history is dropped at a time.
	roomParts = 8
	// The log reclaims when leastReclaim bytes and one part in reclaimShare of the log are
	// garbage: it may have to rewrite the rest.
	leastReclaim = 1 << 20 // bytes
	reclaimShare = 32
	// roomRetry is how long the loop waits for more history to become old enough, and
	// before it retries an operation that failed for lack of space. After each failure it waits twice as
	// long, at most mostRoomRetry.
	roomRetry     = time.Second
	mostRoomRetry = 4 * time.Second
	// longestRoom bounds how long a refused write waits. None waits within roomPause after a
	// pass that did not help.
	longestRoom = 3 * time.Second
	// One call of Log.Reclaim may take reclaimTimeout plus the time to rewrite the log at
	// reclaimRate bytes a second.
	reclaimTimeout = 5 * time.Second
	reclaimRate    = 16 << 20
	// History takes at most one part in diskShare of the space that the log uses or could
	// use, whatever Options.MaxDisk is. So the log can always rewrite it.
	diskShare = 4
	roomPause = 10 * time.Second
)

// room lets refused writes wait for the loop. Its zero value is ready.
type room struct {
	mu     sync.Mutex
	next   chan struct{} // closed at the end of the next pass; nil while no write waits
	failed time.Time     // when a pass did not help, or a write waited in vain; zero: it helped
	passed time.Time     // when the last pass ended

	// garbage counts the bytes that the log may reclaim: of history that compaction dropped
	// since the log last reclaimed, and of versions replaced while space was short.
	garbage atomic.Int64
}

// makeRoom drops history until the log has space or history is as short as it may be. Only
// the compaction loop calls it.
func (c *committer) makeRoom() error {
	s := c.store
	short, history := c.log.Short(), c.log.Usage().HistoryBytes
	first, _ := s.Bounds()
	var err error
	for err == nil && s.Context().Err() == nil && c.log.Short() > 0 {
		floor, head := s.Bounds()
		limit := min(s.Aging().Settled(head), head)
		gives := floor < limit
		if u := c.log.Usage(); gives && u.FreeBytes < u.NeededBytes {
			// The log needs no space to reclaim only if all history is dropped.
			err = c.compact(limit)
		} else if gives {
			err = c.compact(floor + c.roomStep(limit-floor))
		}
		switch {
		case err != nil:
		case c.worthReclaiming():
			err = c.reclaim()
		case !gives:
			return c.endRoom(first, short, history, nil)
		}
	}
	return c.endRoom(first, short, history, err)
}

// tidy reclaims garbage while there is space to rewrite the rest of the log. On a nearly full
// disk that is no longer possible. Only the compaction loop calls it.
func (c *committer) tidy() error {
	u := c.log.Usage()
	if u.NeededBytes == 0 || u.FreeBytes > u.TotalBytes+2*u.NeededBytes || c.room.garbage.Load() < max(leastReclaim, u.TotalBytes/4) {
		return nil
	}
	return c.reclaim()
}

// reclaim makes the log return space to the medium. If that takes too long it returns
// ErrNoSpace, and the loop goes on.
func (c *committer) reclaim() error {
	s := c.store
	had := c.room.garbage.Load()
	rewrite := time.Duration(c.log.Usage().TotalBytes/reclaimRate) * time.Second
	ctx, cancel := context.WithTimeout(s.Context(), reclaimTimeout+rewrite)
	defer cancel()
	err := c.log.Reclaim(ctx)
	switch {
	case err == nil:
		c.room.garbage.Add(-had)
	case ctx.Err() != nil && s.Context().Err() == nil:
		return store.ErrNoSpace
	}
	return err
}

// worthReclaiming reports whether there is much garbage.
func (c *committer) worthReclaiming() bool {
	return c.room.garbage.Load() > max(leastReclaim, c.log.Usage().TotalBytes/reclaimShare)
}

// endRoom notes how much history makeRoom dropped, and returns err.
func (c *committer) endRoom(first store.Revision, short, history int64, err error) error {
	now, _ := c.store.Bounds()
	if now == first {
		return err
	}
	c.store.GaveUp(now - first)
	c.store.Options().Note(true, "log: the disk is nearly full: history was given up", "revisions", uint64(now-first), "oldest", uint64(now),
		"bytes", max(0, history-c.log.Usage().HistoryBytes), "short", short, "stillShort", c.log.Short())
	return err
}

// roomStep returns how many revisions to drop next, assuming they are of equal size.
func (c *committer) roomStep(revisions store.Revision) store.Revision {
	share := 1.0
	if size := c.log.Usage().HistoryBytes; size > 0 {
		share = min(1, max(float64(c.log.Short())/float64(size), 1.0/roomParts))
	}
	return min(revisions, store.Revision(share*float64(revisions))+1)
}

// canMakeRoom reports whether there is history to drop or space to reclaim.
func (c *committer) canMakeRoom() bool {
	s := c.store
	floor, head := s.Bounds()
	return !c.inMemory && (floor < min(s.Aging().Settled(head), head) || c.worthReclaiming())
}

// awaitRoom waits for the end of the loop's next pass, if that may make room, and reports
// whether to try a refused write again. After a wait in vain, no write waits for
// roomPause.
func (c *committer) awaitRoom(ctx context.Context) bool {
	if !c.canMakeRoom() {
		return false
	}
	s, r := c.store, &c.room
	r.mu.Lock()
	if time.Since(r.failed) < roomPause {
		r.mu.Unlock()
		return false
	}
	if r.next == nil {
		r.next = make(chan struct{})
	}
	next := r.next
	r.mu.Unlock()
	s.Aging().Kick()
	timer := time.NewTimer(longestRoom)
	defer timer.Stop()
	select {
	case <-next:
		return true
	case <-timer.C:
		r.mu.Lock()
		r.failed = time.Now()
		r.mu.Unlock()
	case <-ctx.Done():
	case <-s.Done():
	}
	return false
}

// done ends a pass of the loop: the writes that wait for it go on.
func (r *room) done(failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed, r.failed = time.Now(), time.Time{}
	if failed {
		r.failed = r.passed
	}
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}

// rested reports whether the last pass of the loop is long enough ago for another one.
func (r *room) rested() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.passed) >= roomRetry
}
