// Package autobackup makes backups on a schedule, and removes old ones.
//
// # Invariants
//
//   - A backup counts when the place has it whole and verified. Only then older ones are removed.
//   - The backup that was made last is never removed.
//   - A time of the schedule at which no server ran is made up for at the start.
//   - A backup that failed is tried again after a pause that doubles, and at the next time of the schedule at the latest.
package autobackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/internal/cron"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Config configures a Loop.
type Config struct {
	Place backups.Place
	// Schedule has a next time, always.
	Schedule *cron.Schedule
	// Keep is how many backups are kept at most, and MaxAge for how long; zero: there is no such limit.
	Keep   int
	MaxAge time.Duration
	// Timeout is how long a backup may take.
	Timeout time.Duration
	// Write writes a backup. Verify reads one, and returns an error if it is not whole.
	Write  func(context.Context, io.Writer) error
	Verify func(context.Context, io.Reader) error
	Log    *slog.Logger
}

const (
	// firstRetry and longestRetry are the pauses after one failure and after many.
	firstRetry, longestRetry = time.Minute, time.Hour
	// busyRetry is the pause while another backup is under way.
	busyRetry = 10 * time.Second
	// longestSleep is the pause between two looks at the wall clock, which may be set, or go on while the machine sleeps.
	longestSleep = time.Minute
	// listTime is how long the first look at the place may take.
	listTime = time.Minute
)

// Status is the state of a Loop. A zero time has not occurred.
type Status struct {
	Running bool
	Next    time.Time
	// Last is the newest backup, of this process or an earlier one.
	Last backups.File
	// LastAt is when it began, and Took how long it took; zero: an earlier process made it.
	LastAt time.Time
	Took   time.Duration
	// Kept and KeptBytes count the backups in the place.
	Kept      int
	KeptBytes int64
	// Made, Failed and NotRemoved count the backups that were made, those that failed, and the failures to remove old ones.
	Made, Failed, NotRemoved int64
	// Failure is the error since the last backup that succeeded, or of removing old backups after it; nil: there is none.
	Failure   error
	FailureAt time.Time
}

// Loop makes backups. Run is called once; the other methods are safe for concurrent use.
type Loop struct {
	c Config

	mu sync.Mutex
	s  Status // guarded by mu
}

// New returns a Loop for a place that is open.
func New(c Config) *Loop { return &Loop{c: c} }

// Status returns the state of the loop.
func (l *Loop) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s
}

func (l *Loop) note(f func(s *Status)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.s)
}

// wall returns the time without a monotonic reading, which does not follow the wall clock.
func wall() time.Time { return time.Now().Round(0) }

// Run makes backups until the context ends. It then breaks the one under way off.
func (l *Loop) Run(ctx context.Context) {
	base := l.begin(ctx)
	due, failures := l.c.Schedule.Next(base), 0
	for ctx.Err() == nil {
		l.note(func(s *Status) { s.Next = due })
		if !l.await(ctx, due) {
			return
		}
		now := wall()
		err := l.once(ctx, now)
		due = l.c.Schedule.Next(wall())
		switch {
		case err == nil:
			failures = 0
		case ctx.Err() != nil:
			return
		default:
			pause := busyRetry
			if !errors.Is(err, store.ErrBackupRunning) {
				pause = min(firstRetry<<min(failures, 10), longestRetry)
				failures++
			}
			if retry := wall().Add(pause); retry.Before(due) {
				due = retry
			}
		}
	}
}

// begin looks at the place. It returns the time from which on the schedule holds: that of the newest backup, if there is
// one.
func (l *Loop) begin(ctx context.Context) time.Time {
	listing, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	now := wall()
	all, err := l.list(listing)
	if err != nil && ctx.Err() == nil {
		l.failed(now, fmt.Errorf("the backups in %s cannot be listed: %w", l.c.Place, err))
	}
	if len(all) == 0 {
		return now
	}
	last := all[0]
	l.note(func(s *Status) { s.Last, s.LastAt = last.File, last.at })
	if last.at.After(now) {
		return now
	}
	return last.at
}

// await waits until a time. It returns false when the context ends first. If the clock is set back, it waits for the next
// time of the schedule alone.
func (l *Loop) await(ctx context.Context, due time.Time) bool {
	for {
		now := wall()
		if next := l.c.Schedule.Next(now); next.Before(due) {
			due = next
			l.note(func(s *Status) { s.Next = due })
		}
		pause := min(due.Sub(now), longestSleep)
		if pause <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false
		}
	}
}

// once makes a backup, and removes old ones.
func (l *Loop) once(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, l.c.Timeout)
	defer cancel()
	l.note(func(s *Status) { s.Running = true })
	defer l.note(func(s *Status) { s.Running = false })
	name := backups.Name(now)
	size, err := l.c.Place.Store(ctx, name,
		func(w io.Writer) error { return l.c.Write(ctx, w) },
		func(r io.Reader) error { return l.c.Verify(ctx, r) })
	if errors.Is(err, store.ErrBackupRunning) {
		return err
	}
	if err != nil {
		if !errors.Is(ctx.Err(), context.Canceled) {
			l.failed(now, fmt.Errorf("the backup %s was not made in %s: %w", name, l.c.Place, err))
			l.note(func(s *Status) { s.Failed++ })
		}
		return err
	}
	took := wall().Sub(now)
	l.note(func(s *Status) {
		s.Last, s.LastAt, s.Took = backups.File{Name: name, Bytes: size}, now, took
		s.Made++
		s.Failure, s.FailureAt = nil, time.Time{}
	})
	l.c.Log.Info("a backup was made", "place", l.c.Place.String(), "name", name, "bytes", size, "took", took)
	if err := l.prune(ctx, name, now); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		l.failed(now, fmt.Errorf("old backups in %s cannot be removed: %w", l.c.Place, err))
		l.note(func(s *Status) { s.NotRemoved++ })
	}
	return nil
}

// failed notes and logs an error.
func (l *Loop) failed(at time.Time, err error) {
	l.note(func(s *Status) { s.Failure, s.FailureAt = err, at })
	l.c.Log.Error(err.Error())
}

// dated is a backup with the time of its name.
type dated struct {
	backups.File
	at time.Time
}

// list returns the backups of the place, newest first.
func (l *Loop) list(ctx context.Context) ([]dated, error) {
	files, err := l.c.Place.List(ctx)
	if err != nil {
		return nil, err
	}
	var all []dated
	var bytes int64
	for _, f := range files {
		if at, err := backups.ParseName(f.Name); err == nil {
			all = append(all, dated{f, at})
			bytes += f.Bytes
		}
	}
	slices.SortFunc(all, func(a, b dated) int { return cmp.Or(b.at.Compare(a.at), cmp.Compare(b.Name, a.Name)) })
	l.note(func(s *Status) { s.Kept, s.KeptBytes = len(all), bytes })
	return all, nil
}

// prune removes the backups that are too many or too old, oldest first, but never the one with the given name.
func (l *Loop) prune(ctx context.Context, made string, now time.Time) error {
	all, err := l.list(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(d dated) bool { return d.Name == made })
	var errs []error
	for i, d := range slices.Backward(all) {
		tooMany := l.c.Keep > 0 && i+1 >= l.c.Keep // the one that was made is another one
		tooOld := l.c.MaxAge > 0 && now.Sub(d.at) > l.c.MaxAge
		if !tooMany && !tooOld {
			continue
		}
		if err := l.c.Place.Remove(ctx, d.Name); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Name, err))
			continue
		}
		l.note(func(s *Status) { s.Kept--; s.KeptBytes -= d.Bytes })
		l.c.Log.Info("an old backup was removed", "place", l.c.Place.String(), "name", d.Name)
	}
	return errors.Join(errs...)
}
