package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// # Compaction
//
// A revision is kept for Options.Retention of running time after a newer one
// replaced it. Running time is the time that the store has been open. The store adds up
// the differences between frequent readings of the clock. A negative difference counts as
// zero, and one far above the interval of the readings counts as a few intervals: so
// neither downtime nor a jump of the clock expires anything.
//
// Marks record which revision was the newest at a running time. The newest mark that is as
// old as the retention gives the floor: its revision was the newest then, and all before
// it had been replaced. The log keeps the marks, so that revisions keep their age across a
// restart.
//
// If history is larger than its bound, the floor rises by the share that is too much. It also
// rises when the medium is short of space: see room.go.
//
// The floor is published before the log forgets. The exception is a deletion on a full
// medium, which makes the log forget at once: then the floor is published with the
// deletion. A reader below the floor of the log gets an *ExpiredError, never wrong data.

const (
	marksPerRetention = 128
	maxTick           = 30 * time.Second
	minTick           = time.Millisecond
	// compactStep is the most revisions that one call of Log.Compact forgets, so that writes
	// proceed in between.
	compactStep = 16384
	// After one part in sizeShare of Options.MaxDisk is written, the size is checked at
	// once.
	sizeShare = 64
)

// aging knows the age of revisions.
type aging struct {
	now       func() time.Time
	retention time.Duration
	tick      time.Duration
	kicked    chan struct{}

	mu      sync.Mutex
	seen    time.Time     // the last reading of the clock
	running time.Duration // the running time then
	marks   []Mark
	stored  time.Duration // the running time of the last mark in the log
	recent  recentMarks
}

func (a *aging) start(o Options, b Bounds) {
	a.now, a.retention = o.Now, o.Retention
	a.tick = min(max(o.Retention/marksPerRetention, minTick), maxTick)
	a.kicked = make(chan struct{}, 1)
	a.seen = a.now()
	a.marks = slices.Clone(b.Marks)
	if n := len(a.marks); n > 0 {
		a.running = a.marks[n-1].Running
	}
	a.stored = a.running
	a.recent.last.Running = a.running - keepAtLeast // all that a start finds is old
	a.marks = append(a.marks, Mark{b.Head, a.running})
}

// look updates the running time. The caller holds mu.
func (a *aging) look() {
	now := a.now()
	passed := now.Sub(a.seen)
	a.seen = now
	a.running += min(max(passed, 0), 4*a.tick)
}

// due returns a mark to store with the group that ends at the revision, or nil if it is too
// early for one. Now is the wall time of the group.
func (a *aging) due(r Revision) (m *Mark, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	a.recent.add(r, a.running)
	if a.stored != 0 && a.running < a.stored+a.tick {
		return nil, wallTime(a.seen)
	}
	return &Mark{r, a.running}, wallTime(a.seen)
}

// wallTime returns a time as a log keeps it.
func wallTime(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// add adds a mark. Stored reports that the log has it.
func (a *aging) add(m Mark, stored bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stored {
		a.stored = m.Running
	}
	if n := len(a.marks); n > 0 && a.marks[n-1].Revision == m.Revision {
		return // the revision has an older mark
	}
	a.marks = append(a.marks, m)
}

// floor is the oldest revision that is younger than the retention.
func (a *aging) floor(head Revision) Revision {
	a.mu.Lock()
	a.look()
	running := a.running
	a.mu.Unlock()
	a.add(Mark{head, running}, false)
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.marks) && a.marks[n].Running <= a.running-a.retention {
		n++
	}
	if n == 0 {
		return 0
	}
	r := a.marks[n-1].Revision
	a.marks = slices.Delete(a.marks, 0, n-1)
	return r
}

// age returns for how long a revision, the floor of the history, has been readable, at least.
func (a *aging) age(floor Revision) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	for _, m := range a.marks {
		if m.Revision >= floor {
			return a.running - m.Running
		}
	}
	return 0
}

// kick makes the loop run before its next tick.
func (a *aging) kick() {
	select {
	case a.kicked <- struct{}{}:
	default:
	}
}

// compactLoop runs until the store closes.
func (c *committer) compactLoop() {
	s := c.store
	ticker := time.NewTicker(s.aging.tick)
	defer ticker.Stop()
	var retry <-chan time.Time
	wait := roomRetry
	for {
		select {
		case <-s.done:
			return
		case <-c.log.Broken():
			c.end(c.log.Compact(s.ctx, 0))
			return
		case <-ticker.C:
		case <-s.aging.kicked:
		case <-retry:
		}
		floor, head := s.Bounds()
		floor = max(floor, s.aging.floor(head))
		bySize := c.floorBySize(floor, head)
		err := c.compact(max(floor, bySize))
		if err == nil && bySize > floor && c.mostHistory.Load() < s.o.MaxDisk {
			s.givenUp.Add(int64(bySize - floor)) // for the sake of a small disk
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
		if s.ctx.Err() != nil {
			return // compaction was interrupted, and goes on after the next start
		}
		if err != nil && !errors.Is(err, ErrNoSpace) {
			c.end(err)
			return
		}
	}
}

// end ends all writing, since the log has failed between two groups.
func (c *committer) end(err error) {
	if failure, first := c.fail(err); first {
		c.store.fatal(failure)
	}
}

// floorBySize is the floor that brings history below its bound on disk.
func (c *committer) floorBySize(floor, head Revision) Revision {
	u := c.log.Usage()
	size, most := u.HistoryBytes, c.store.o.MaxDisk
	if u.NeededBytes > 0 {
		most = min(most, (u.FreeBytes+u.TotalBytes)/diskShare)
	}
	c.mostHistory.Store(most)
	if size <= most {
		return floor
	}
	// A little more than needed, so that it is not needed again at once.
	excess := float64(size-most+most/16) / float64(size)
	return floor + min(head-floor, Revision(float64(head-floor)*excess)+1)
}

// compact raises the floor, step by step, in memory and in the log. Only the loop calls it.
func (c *committer) compact(floor Revision) error {
	s := c.store
	if c.compacted >= floor {
		return nil
	}
	began := time.Now()
	defer func() { s.measured.compacted(time.Since(began)) }()
	before := c.log.Usage().HistoryBytes
	defer func() { c.room.garbage.Add(max(0, before-c.log.Usage().HistoryBytes)) }()
	for c.compacted < floor {
		if s.closed.Load() {
			return nil
		}
		next := min(floor, c.compacted+compactStep)
		s.raiseFloor(next)
		s.trim(next)
		if err := c.log.Compact(s.ctx, next); err != nil {
			return fmt.Errorf("compact below revision %d: %w", next, err)
		}
		c.compacted = next
	}
	return nil
}
