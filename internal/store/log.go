package store

import (
	"context"
	"iter"
	"time"
)

// Entry is one change as a log keeps it.
type Entry struct {
	Collection string
	Key        string

	// Revision of the change.
	Revision Revision

	// Object is the state after the change; nil when the change deleted it.
	// Object.Modified == Revision.
	Object *Object

	// Before is the state that the change replaced; nil when the change created
	// the object.
	Before *Object

	// Origin is when, how and by whom the change was made; nil: nothing of it is known.
	Origin *Origin

	// Deleting marks a deletion or a step of one. A log whose medium is full stores it in
	// the space that it reserves for deletions. Deleting is not read back.
	Deleting bool
}

// Bounds are the revisions that a log has after a replay.
type Bounds struct {
	// Head is the revision of the newest durable change; zero for a log that never held
	// one. It never decreases, even if everything was deleted and compacted.
	Head Revision

	// Floor is the oldest revision that can be read back: ObjectsAt(r) and
	// Changes(after r) succeed for Floor <= r <= Head. It is at most Head.
	Floor Revision

	// Time is the Origin.Time of the newest change that had one; zero: none had. It never
	// decreases either.
	Time time.Time

	// Marks are the ages of some revisions, oldest first: each Mark that Append stored and
	// compaction has not dropped.
	Marks []Mark

	// InMemory reports that the log keeps history in the memory of the process and
	// shares its objects with the store. There is nothing to read back from such a log, and
	// the store compacts it to the history that the store has itself.
	InMemory bool
}

// change returns the change of an entry that was read back.
func (e *Entry) change() *Change {
	c := &Change{Revision: e.Revision, Before: e.Before, After: e.Object}
	if e.Origin != nil {
		c.origin = *e.Origin
	}
	return c
}

// A Log is the durable, totally ordered record of changes and the source of truth:
// trees, watches and the history in memory derive from it. The store is its only
// writer, checks the conditions, and gives each entry its revision. (A log with other
// writers, such as etcd, decides conditions and revisions itself and does not fit behind
// this interface.)
//
// One goroutine at a time calls Append, and one calls Compact, perhaps concurrently. Any
// number of goroutines may call the reading methods at any time. Close is called after
// Append and Compact have returned.
type Log interface {
	// Replay calls load once for each object of the newest state, and returns
	// the bounds of the log. Load is safe for concurrent use, and a log may call it
	// from several goroutines; the objects come in any order. Replay does not read
	// the history, which is read back on demand. A torn tail that was never acknowledged is
	// cut off; any other damage is an error that names the file and the offset.
	Replay(ctx context.Context, load func(collection string, o *Object) error) (Bounds, error)

	// Append makes a group durable as a whole, and returns then. The entries' revisions
	// grow. After an error the log is unusable and the process has to end: a failed sync is
	// never retried. ErrNoSpace is the exception: nothing was written, and the log remains
	// usable. A mark that is not nil is stored with the group.
	//
	// When the medium is nearly full, a group of deletions may raise the floor to its
	// last revision, because history would need space. Floor then returns that revision.
	Append(ctx context.Context, group []Entry, mark *Mark) error

	// Changes yields the changes of a collection (of all collections when the
	// name is empty) with after < revision <= upTo, in order, as they were
	// written. It stops with Expired when compaction overtakes it. Memory: O(1)
	// changes at a time.
	Changes(ctx context.Context, collection string, after, upTo Revision) iter.Seq2[Entry, error]

	// ObjectsAt yields the objects of a collection as they were at a revision,
	// those whose key has the prefix and is greater than after, in the order of
	// their keys. Memory: O(1) objects at a time; time: linear in the versions
	// stored within the range.
	ObjectsAt(ctx context.Context, collection string, at Revision, prefix, after string) iter.Seq2[*Object, error]

	// Current returns the newest durable version of an object, nil if there is none. A group
	// that Append has not yet returned for may or may not count.
	Current(collection, key string) (*Object, error)

	// Compact drops the history that only revisions below floor need. The newest
	// state stays. ErrNoSpace: compaction itself needs space; it may be tried later.
	Compact(ctx context.Context, floor Revision) error

	// Floor returns the oldest revision that can be read back, as set by the last Compact
	// or raised by an Append. It is cheap.
	Floor() Revision

	// Short returns how many bytes must be freed to reach twice the watermark, below
	// which the log is short of space; zero when none. Writes are not refused yet. It is
	// cheap.
	Short() int64

	// Reclaim returns to the medium the space that compactions freed. It takes time in
	// proportion to the log, and may run concurrently with everything but Compact. When the
	// context ends it returns the context's error; ErrNoSpace: it may be tried later.
	Reclaim(ctx context.Context) error

	// Broken returns a channel that is closed if the log becomes unusable between calls;
	// Append and Compact then return the reason. Nil: this cannot happen.
	Broken() <-chan struct{}

	// Usage returns the space that the log takes on its medium. It is cheap.
	Usage() Usage

	// Close releases everything. It is called once.
	Close() error
}

// archive has the methods that a Log and a Shared have in common.
type archive interface {
	Changes(ctx context.Context, collection string, after, upTo Revision) iter.Seq2[Entry, error]
	ObjectsAt(ctx context.Context, collection string, at Revision, prefix, after string) iter.Seq2[*Object, error]
	Usage() Usage
	Close() error
}

// Usage is the space that a log takes.
type Usage struct {
	// HistoryBytes is about how much of the log compaction could free.
	HistoryBytes int64
	// TotalBytes is the size of the log on its medium.
	TotalBytes int64
	// FreeBytes is the free space of the medium; NeededBytes is how much has to be free for
	// writes to be accepted. Both are zero if that is not known.
	FreeBytes, NeededBytes int64
	// LimitBytes is the upper limit of TotalBytes: the quota of etcd; zero: there is none, or it is not known.
	LimitBytes int64
	// Full: all writes that need space are refused, whatever is free. An operator has to act.
	Full bool
}

// size is about the memory of an entry that was read back, in bytes.
func (e *Entry) size() int {
	size := changeOverhead
	for _, o := range []*Object{e.Before, e.Object} {
		if o != nil {
			size += len(o.Held)
		}
	}
	return size
}
