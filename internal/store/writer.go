package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Writer commits the transactions of a store to its log. There are two: groupcommit on a Log, and sharedwriter on a Shared.
// All methods are safe for concurrent use.
type Writer interface {
	// Commit makes a transaction that Txn.Check and Encryption.Writable allow. It is Store.Apply otherwise.
	Commit(ctx context.Context, t *Txn) ([]*Object, error)
	// MostRecent returns a state that has every change acknowledged before the call.
	MostRecent(ctx context.Context) (*State, error)
	// Verify verifies that nothing is left of the transactions that are over.
	Verify() error
	// Close refuses further writes, and waits for those under way.
	Close()
}

// Commit is Apply of a transaction of one write. Its errors are ErrExists, ErrNotFound and
// ErrConflict as they are.
func (s *Store) Commit(ctx context.Context, w Write) (*Object, error) {
	made, err := s.Apply(ctx, &Txn{Writes: []Write{w}})
	if err == nil {
		return made[0], nil
	}
	var failed *TxnError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return nil, err
}

// Apply makes a transaction and returns when it is durable and readable. The result has
// an object for each write: the new version or, of a deletion, the last state with the
// revision of the deletion (Object.At). A *TxnError says which condition does not hold. With
// Write.If zero, an existing object is ErrExists. Otherwise an absent one is ErrNotFound,
// and one whose Modified is not If is ErrConflict. A need or a guard that does not hold is
// ErrStale. An error of Options.Encryption.Writable is returned as it is. If the context ends
// early, the transaction may still be made; the error then wraps ctx.Err().
//
// On a Shared, the errors of Shared.Propose are returned as they are, and ErrOverloaded if too many
// transactions are under way. All writes of a transaction then have one revision, and those that
// have others with Next behind them have the object of the last one. A client that has seen a part
// of the events of a revision, and continues a watch from there, misses the rest, as with
// kube-apiserver: so a transaction should not write several objects that one watch selects.
func (s *Store) Apply(ctx context.Context, t *Txn) ([]*Object, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if i := t.repeated(); i >= 0 {
		return nil, &TxnError{WritePart, i, ErrStale}
	}
	if err := s.writable(t); err != nil {
		return nil, err
	}
	began := time.Now()
	made, err := s.writer.Commit(ctx, t)
	switch {
	case err == nil:
		s.count(t, time.Since(began))
	case errors.Is(err, ErrNoSpace):
		s.noSpace.Add(1)
	case errors.As(err, new(*QuotaError)):
		s.noteFull(err)
	}
	return made, err
}

// Publisher is a store as its writer sees it: besides the methods for everyone, it has those that make the changes of a log
// readable. A Writer uses one from one goroutine at a time, apart from the methods that say otherwise.
//
//	Fits, Drafts, Owned                     before a transaction joins the log
//	Stage, Publish                          changes that the log has become the next state
//	Reload, Unread, Heal                    the same for states whose changes are not known
//	RaiseFloor, Trim, Window, GaveUp        how much history there is
//	Fail, Fatal, Failure                    the end of all writing
//	Aging, Measured, Options                the age of revisions, the metrics of the log, the options
//	Context, Go, Done, Stop, Closed         goroutines that end with the store
type Publisher struct{ *Store }

// Start gives the store its writer. No other method of the store is called before, but for Any.
func (s Publisher) Start(w Writer) { s.writer = w }

// Options returns the options of the store, with their defaults. They must not be changed.
func (s Publisher) Options() *Options { return &s.o }

// Aging returns the age of revisions, which is safe for concurrent use.
func (s Publisher) Aging() *Aging { return &s.aging }

// Measured returns the metrics of the log, which are safe for concurrent use.
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

// RaiseFloor raises the oldest revision that can be read. It never lowers it. It is safe for concurrent use.
func (s Publisher) RaiseFloor(r Revision) { s.raiseFloor(r) }

// Trim drops the changes up to the floor from memory, and more if they take too much of it. It is safe for concurrent use.
func (s Publisher) Trim(floor Revision) { s.trim(floor) }

// Window returns the revision above which all changes are in memory. It is safe for concurrent use.
func (s Publisher) Window() Revision { return s.window() }

// GaveUp counts revisions that were dropped because space was short.
func (s Publisher) GaveUp(revisions Revision) { s.givenUp.Add(int64(revisions)) }

// Reached waits until a revision that the log has is published. If that takes too long, the error is an *UnavailableError. It
// is safe for concurrent use.
func (s Publisher) Reached(ctx context.Context, r Revision) (*State, error) { return s.reached(ctx, r) }

// ReadOld calls f, which reads a batch from the log, when not too many others do. f must not wait for a client. Its
// context ends with the caller's and with the store. It is safe for concurrent use.
func (s Publisher) ReadOld(ctx context.Context, f func(context.Context) error) error {
	return s.batch(ctx, s.old.batches, f)
}

// Fail records that the log cannot be trusted any more, and returns the first error of that kind: no write is possible. The
// caller calls Fatal for the first one. It is safe for concurrent use.
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

// Failure returns why no write is possible any more, or nil. It is safe for concurrent use.
func (s Publisher) Failure() error { return s.brokenBy() }

// brokenBy is Publisher.Failure.
func (s *Store) brokenBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Context ends when the store closes.
func (s Publisher) Context() context.Context { return s.ctx }

// Done is closed when the store closes, after the writer.
func (s Publisher) Done() <-chan struct{} { return s.done }

// Stop ends Context before the store closes.
func (s Publisher) Stop() { s.stop() }

// Closed reports whether the writer is closed.
func (s Publisher) Closed() bool { return s.closed.Load() }

// Go runs a function in a goroutine that Close waits for.
func (s Publisher) Go(f func()) { s.loop.Go(f) }

// Floor returns the oldest revision that can be read. It is safe for concurrent use.
func (s Publisher) Floor() Revision { return Revision(s.floor.Load()) }
