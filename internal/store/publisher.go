package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Start gives the store its writer. It is called once, before the store is shared and before a goroutine of Go.
func (s Publisher) Start(w Writer) { s.writer = w }

// Store returns the store, for everyone else.
func (s Publisher) Store() *Store { return s.inner }

// Options returns the options of the store, with their defaults. They must not be changed.
func (s Publisher) Options() *Options { return &s.o }

// Aging returns the age of revisions.
func (s Publisher) Aging() *Aging { return &s.aging }

// Measured returns the metrics of the log.
func (s Publisher) Measured() *Measured { return &s.measured }

// Now returns the time as a log keeps it.
func (s Publisher) Now() time.Time { return wallTime(s.o.Now()) }

// Owned is the part of the quota that an object takes. It is zero for nil, and for an object that a fork shares with
// its parent.
func (s Publisher) Owned(o *Object) int64 { return s.owned(o) }

// Pack packs a loaded object of a collection if Options.Packed has it. No other goroutine has the object yet.
func (s Publisher) Pack(collection string, o *Object) {
	if o != nil && s.o.packs(collection, len(o.Held)) {
		packLoaded(o)
	}
}

// Floor returns the oldest revision that can be read.
func (s Publisher) Floor() Revision { return Revision(s.floor.Load()) }

// RaiseFloor raises the oldest revision that can be read. It never lowers it.
func (s Publisher) RaiseFloor(r Revision) { s.raiseFloor(r) }

// Trim drops the changes up to the floor from memory, and more if they take too much of it.
func (s Publisher) Trim(floor Revision) { s.trim(floor) }

// Window returns the revision above which all changes are in memory.
func (s Publisher) Window() Revision { return s.window() }

// GaveUp counts revisions that were dropped because space was short.
func (s Publisher) GaveUp(revisions Revision) { s.givenUp.Add(int64(revisions)) }

// Reached waits until a revision that the log has is published. If that takes too long, the error is an *UnavailableError.
func (s Publisher) Reached(ctx context.Context, r Revision) (*State, error) { return s.reached(ctx, r) }

// ReadOld calls f, which reads a batch from the log, when not too many others do. f must not wait for a client. Its
// context ends with the caller's and with the store.
func (s Publisher) ReadOld(ctx context.Context, f func(context.Context) error) error {
	return s.old.batch(ctx, s.old.batches, f)
}

// Fail records that the log cannot be trusted any more, and returns the first error of that kind: no write is possible. The
// caller calls Fatal for the first one. It adds "the log failed" to an error that is not ErrReset.
func (s Publisher) Fail(err error) (failure error, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure, first = err, true
		if !errors.Is(err, ErrReset) {
			s.failure = fmt.Errorf("the log failed: %w", err)
		}
		close(s.failed)
	}
	return s.failure, first
}

// Fatal calls Options.OnFatal.
func (s Publisher) Fatal(failure error) {
	if s.o.OnFatal == nil {
		panic(fmt.Sprintf("store: %v", failure))
	}
	s.o.OnFatal(failure)
}

// Failure returns why no write is possible any more, or nil.
func (s Publisher) Failure() error { return s.brokenBy() }

// Context is canceled when the store closes, or by Stop.
func (s Publisher) Context() context.Context { return s.ctx }

// Done returns a channel that is closed after Writer.Close has returned.
func (s Publisher) Done() <-chan struct{} { return s.done }

// Stop ends Context before the store closes.
func (s Publisher) Stop() { s.stop() }

// Go runs a function in a goroutine that Close waits for.
func (s Publisher) Go(f func()) { s.loop.Go(f) }
