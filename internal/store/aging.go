package store

import (
	"slices"
	"sync"
	"time"
)

// # The age of revisions
//
// Running time is the time that the store has been open. The store adds up the differences between frequent readings of the
// clock. A negative difference counts as zero, and one far above the interval of the readings counts as a few intervals: so
// neither downtime nor a jump of the clock expires anything.
//
// Marks record which revision was the newest at a running time. The newest mark that is as old as the retention gives the
// floor: its revision was the newest then, and all before it had been replaced. A Log keeps the marks, so that revisions keep
// their age across a restart.

const (
	marksPerRetention = 128
	maxTick           = 30 * time.Second
	minTick           = time.Millisecond

	// KeepAtLeast is how long a revision is spared when the log is short of space, in running time. A deletion on a full medium,
	// and Options.MaxDisk, can end it sooner.
	KeepAtLeast = 5 * time.Second
)

// Aging knows the age of revisions. All methods are safe for concurrent use.
type Aging struct {
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

func (a *Aging) start(o Options, b Bounds) {
	a.now, a.retention = o.Now, o.Retention
	a.tick = min(max(o.Retention/marksPerRetention, minTick), maxTick)
	a.kicked = make(chan struct{}, 1)
	a.seen = a.now()
	a.marks = slices.Clone(b.Marks)
	if n := len(a.marks); n > 0 {
		a.running = a.marks[n-1].Running
	}
	a.stored = a.running
	a.recent.last.Running = a.running - KeepAtLeast // all that a start finds is old
	a.marks = append(a.marks, Mark{b.Head, a.running})
}

// look updates the running time. The caller holds mu.
func (a *Aging) look() {
	now := a.now()
	passed := now.Sub(a.seen)
	a.seen = now
	a.running += min(max(passed, 0), 4*a.tick)
}

// Due returns a mark to store with the group that ends at the revision, or nil if it is too
// early for one. Now is the wall time of the group.
func (a *Aging) Due(r Revision) (m *Mark, now time.Time) {
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

// Add adds a mark. Stored reports that the log has it.
func (a *Aging) Add(m Mark, stored bool) {
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

// Floor is the oldest revision that is younger than the retention.
func (a *Aging) Floor(head Revision) Revision {
	a.mu.Lock()
	a.look()
	running := a.running
	a.mu.Unlock()
	a.Add(Mark{head, running}, false)
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

// Age returns for how long a revision, the floor of the history, has been readable, at least.
func (a *Aging) Age(floor Revision) time.Duration {
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

// Tick is the time between two passes of the loop that drops old history.
func (a *Aging) Tick() time.Duration { return a.tick }

// Kicked returns a channel that gets a value after Kick.
func (a *Aging) Kicked() <-chan struct{} { return a.kicked }

// Kick makes the loop run before its next tick.
func (a *Aging) Kick() {
	select {
	case a.kicked <- struct{}{}:
	default:
	}
}

// recentMarks record which revision was the newest at points of the last seconds. Aging.mu
// guards them.
type recentMarks struct {
	marks []Mark // oldest first; the first may be older than KeepAtLeast
	last  Mark
}

func (m *recentMarks) add(r Revision, running time.Duration) {
	if n := len(m.marks); n == 0 || running >= m.marks[n-1].Running+time.Second {
		if n > 0 && m.last.Revision > m.marks[n-1].Revision {
			m.marks = append(m.marks, m.last) // it was the newest until now
		}
		m.marks = append(m.marks, Mark{r, running})
		for len(m.marks) > 1 && m.marks[1].Running <= running-KeepAtLeast {
			m.marks = slices.Delete(m.marks, 0, 1)
		}
	}
	m.last = Mark{r, running}
}

// Settled is the newest revision that is at least KeepAtLeast old.
func (a *Aging) Settled(head Revision) Revision {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look()
	old := a.running - KeepAtLeast
	if a.recent.last.Running <= old {
		return head // nothing was written since, or since the start
	}
	var r Revision
	for _, m := range a.recent.marks {
		if m.Running <= old {
			r = m.Revision
		}
	}
	return r
}
