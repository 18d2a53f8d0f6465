package store

import (
	"context"
	"errors"
	"iter"
	"time"
)

// A Shared is a log that other servers append to as well, such as etcd. It decides the
// conditions of transactions and gives revisions, which the store learns afterwards. A Log in
// contrast has one writer, the store.
//
// One revision can hold several changes: those of one transaction, and those of others, such
// as the end of an etcd lease, which deletes all its keys at once. The changes of a revision
// are read, published and sent together. A position in the history is a revision and an index
// within it.
//
// All methods may be called concurrently. They return ctx.Err() when the context ends early, and
// ErrReset when they find that the log is another one than before, or went back.
// Close is called once, after all other calls have returned.
type Shared interface {
	// Load calls load once for each object as of one revision, and returns the bounds of the log.
	// The revision may be one of before the call: Follow catches up, and Head says how far. Load
	// calls the function from several goroutines; the objects come in any order. *ExpiredError:
	// compaction overtook it, and the caller may begin again.
	Load(ctx context.Context, load func(collection string, o *Object) error) (Bounds, error)

	// Follow yields all changes after a revision, by any server, in order. A batch holds whole
	// revisions. An object changes at most once in a revision. At most one batch is in memory: a
	// slow reader slows the sender. The sequence reconnects by itself. It ends with an error alone:
	// *ExpiredError, when a compaction overtook it; ErrReset; or ctx.Err(). Entry.Before is not set:
	// the store knows it. The store owns the objects.
	Follow(ctx context.Context, after Revision) iter.Seq2[Batch, error]

	// Propose makes a transaction or refuses it, as one step. While the outcome is unknown, it
	// repeats the transaction, which its conditions make safe. An error means that nothing is
	// known to be written: *UnavailableError, ErrOverloaded, ErrNoSpace, an *UnfitError; or
	// ErrUnknown, when the transaction may have been made or may still be.
	//
	// If a write is followed by one with Next, only the later one is stored. Writes of one
	// transaction have the same revision. A log in which each change has a revision of its
	// own sets Decision.First.
	Propose(ctx context.Context, t *Txn) (Decision, error)

	// Head returns a revision that is not older than any change that a server acknowledged
	// before the call. ErrOverloaded: try again later.
	Head(ctx context.Context) (Revision, error)

	// Changes and ObjectsAt are those of a Log. Changes sets Entry.Before. Within a revision the
	// changes have the same order as in Follow.
	Changes(ctx context.Context, collection string, after, upTo Revision) iter.Seq2[Entry, error]
	ObjectsAt(ctx context.Context, collection string, at Revision, prefix, after string) iter.Seq2[*Object, error]

	// Usage returns the space that the log takes on its medium, as of some time ago. It is cheap.
	Usage() Usage

	// Close releases everything.
	Close() error
}

// Batch is a run of whole revisions of a Shared.
type Batch struct {
	// Entries are the changes, in order. Those of one revision stand side by side. It is
	// empty when only Through or Floor has grown.
	Entries []Entry
	// Through is the newest revision that the batch speaks for: no other change at or before
	// it follows. It is at least the revision of the last entry.
	Through Revision
	// Floor is the oldest revision that the log can read back; see Bounds.
	Floor Revision
}

// Decision is the outcome of a transaction that a Shared decided.
type Decision struct {
	// Made reports that the transaction was made.
	Made bool
	// Revision is that of the transaction or, if it was not made, one at which its
	// conditions did not hold. First is set if each change of the transaction has a revision of its
	// own: theirs are First to Revision, and no other change has one of these.
	First, Revision Revision
}

var (
	// ErrReset: the log is another one than before, or has gone back to an
	// earlier revision, such as a backup that was restored. The state of the store is void.
	ErrReset = errors.New("the log was replaced or restored from a backup")
	// ErrUnknown: the transaction may have been made, or may still be.
	ErrUnknown = errors.New("the outcome of the write is not known")
)

// Keeper is a Shared that can leave a copy of its state for the next Load, which then starts sooner.
type Keeper interface {
	// Keep leaves the copy. It has until the end of the context.
	Keep(ctx context.Context, s *State) error
}

// Member is one of the processes that hold a Shared together, such as a member of etcd.
type Member struct {
	URL, Version string
	// Leader: it leads the others. Bytes is the size of its copy.
	Leader bool
	Bytes  int64
	// Err is why its state is unknown or bad; nil: it is fine.
	Err error
}

// UnavailableError: the log cannot be reached, and nothing was written.
type UnavailableError struct {
	// RetryAfter is when to try again; zero: not known.
	RetryAfter time.Duration
	// Err is the cause. Its text names the address that cannot be reached.
	Err error
}

func (e *UnavailableError) Error() string { return e.Err.Error() }

func (e *UnavailableError) Unwrap() error { return e.Err }
