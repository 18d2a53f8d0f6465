package store

import (
	"context"
	"iter"
	"time"
)

// Revision is the store's clock: one for all collections. Each change has a
// revision of its own, also inside a group; revisions only grow, for ever. Zero
// means "none".
type Revision uint64

// Entry is one change as a log keeps it.
type Entry struct {
	Collection string
	Key        string

	// Revision is that of the change.
	Revision Revision

	// Object is the state after the change; nil when the change deleted it.
	// Object.Modified == Revision.
	Object *Object

	// Before is the state that the change replaced; nil when the change created
	// the object.
	Before *Object

	// Deleting: the change is a deletion or a step of one, which a log takes from what it
	// keeps for them when its medium is full. It is not read back.
	Deleting bool
}

// Bounds tells what a log holds after a replay.
type Bounds struct {
	// Head is the revision of the newest durable change; zero for an empty log
	// that never held one. It never goes back, not even when everything was
	// deleted and compacted.
	Head Revision

	// Floor is the oldest revision that can be read back: ObjectsAt(r) and
	// Changes(after r) are answered for Floor <= r <= Head. It is at most Head.
	Floor Revision

	// Marks tell the age of revisions, oldest first: sparse pairs, one for each
	// Mark that Append was given and that compaction has not dropped.
	Marks []Mark

	// InMemory says that the log keeps history in the memory of the process, the
	// same objects that the store holds. So there is nothing to read back from it,
	// and the store compacts it up to what it holds itself.
	InMemory bool
}

// Mark says that the revision was the newest at a time of the store's running
// time: the time that stores on this log have been open, added up. Downtime and
// jumps of the wall clock do not count, so neither expires anything.
type Mark struct {
	Revision Revision
	Running  time.Duration
}

// A Log is the durable, totally ordered record of changes, and the only truth:
// trees, watches and the history in memory derive from it. The store is its only
// writer; it has checked the conditions and has given each entry its revision.
// (A log that others write too, as etcd, decides conditions and revisions
// itself: it will stand beside this interface, not behind it.)
//
// One goroutine at a time calls Append, one calls Compact, beside that or not; the
// reading methods may be called at any time, by any number. Close is called when
// Append and Compact have returned.
type Log interface {
	// Replay calls load once for each object of the newest state, and returns
	// what the log holds. Load is safe for concurrent use, and a log may call it
	// from several goroutines; the objects come in any order. Replay does not read
	// the history: that is read back when somebody asks for it. A torn tail that
	// was never acknowledged is cut off; any other damage is an error that names
	// the file and the place.
	Replay(ctx context.Context, load func(collection string, o *Object) error) (Bounds, error)

	// Append makes a group durable, whole or not at all, and returns then. The
	// entries' revisions grow. After an error the log is unusable and the process
	// has to end: an error of a sync is never retried. ErrNoSpace alone is
	// different: nothing was written and the log goes on. A mark that is not nil
	// is stored with the group.
	//
	// When the medium is nearly full, a group of deletions may raise the floor to its
	// last revision, because history would need space; Floor says so afterwards.
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

	// Compact forgets what is needed only for revisions below floor. The newest
	// state stays. ErrNoSpace: forgetting needs space, too; it may be tried later.
	Compact(ctx context.Context, floor Revision) error

	// Floor returns the oldest revision that can be read back: what the last Compact
	// asked for, or what an Append raised it to. It is cheap.
	Floor() Revision

	// Short returns how many bytes must be freed to reach twice the watermark, below
	// which the log is short of space; zero when none. Writes are not refused yet. It is
	// cheap.
	Short() int64

	// Reclaim gives the space back to the medium that compactions freed. It takes time in
	// proportion to the log, and may run beside everything but Compact. When the context
	// ends it returns the context's error; ErrNoSpace: it may be tried later.
	Reclaim(ctx context.Context) error

	// Broken returns a channel that is closed when the log became unusable while
	// nobody called it; Append and Compact then say why. Nil: that cannot be.
	Broken() <-chan struct{}

	// Usage tells what the log costs on its medium. It is cheap.
	Usage() Usage

	// Close releases everything. It is called once.
	Close() error
}

// Usage tells what a log costs.
type Usage struct {
	// HistoryBytes is about how much of the log compaction could free.
	HistoryBytes int64
	// TotalBytes is the size of the log on its medium.
	TotalBytes int64
	// FreeBytes is the free space of the medium, NeededBytes what has to be free for
	// writes to be taken. Both are zero when that is not known.
	FreeBytes, NeededBytes int64
}
