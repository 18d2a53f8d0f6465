package store

import (
	"context"
	"iter"
	"time"
)

// A Write is one conditional change of one object.
type Write struct {
	Collection string
	Key        string

	// Value holds the object's bytes without the digits of its resource version,
	// which the store inserts at RevisionAt once it has given the write its
	// revision. Nil deletes the object. The store keeps no reference to it.
	Value      []byte
	RevisionAt int

	// If is the condition. Its zero value asks that the object be absent.
	If Revision
}

// Options configure a store. The zero value works, but for Log.
type Options struct {
	Log Log

	// Retention is how long a revision can be read after a newer one replaced it,
	// in running time; zero means DefaultRetention.
	Retention time.Duration
	// MaxMemory bounds the bytes that history holds in memory: replaced versions,
	// changes, tree nodes that only old states use, states that readers pinned, and
	// what is cached with them. Zero means DefaultMaxMemory.
	MaxMemory int64
	// MaxDisk bounds Usage.HistoryBytes; zero means DefaultMaxDisk.
	MaxDisk int64

	// Now is the clock; nil means time.Now. Only differences between two calls in
	// one process count, by the monotonic reading where there is one.
	Now func() time.Time

	// OnFatal is called, once, when the log failed and nothing more can be
	// acknowledged; nil panics. The process has to end.
	OnFatal func(error)
}

const (
	DefaultRetention = time.Hour
	DefaultMaxMemory = 128 << 20
	DefaultMaxDisk   = 4 << 30
)

// Store is the state of a server. All methods are safe for concurrent use.
type Store struct{ unfinished }

// Open replays the log and starts the store. The store owns the log from then
// on, and closes it.
func Open(ctx context.Context, o Options) (*Store, error) { panic("contract") }

// Close waits for the writes under way, ends every cursor and closes the log.
// It is idempotent.
func (s *Store) Close() error { panic("contract") }

// Commit makes one change and returns when it is durable and readable. The
// result is the new version; of a deletion, the last state as of the revision of
// the deletion (Object.At). With Write.If zero an existing object is
// ErrExists; otherwise an absent one is ErrNotFound, and one whose Modified is
// not If is ErrConflict. When the context ends early the write may still happen;
// the error says so by wrapping ctx.Err().
func (s *Store) Commit(ctx context.Context, w Write) (*Object, error) { panic("contract") }

// Barrier returns once every change that was pending when it was called is
// durable and published. An answer that says "nothing to write" waits here, when
// what it read may rest on a pending write.
func (s *Store) Barrier(ctx context.Context) error { panic("contract") }

// Any returns the state at hand, without waiting: resourceVersion "0".
func (s *Store) Any() *State { panic("contract") }

// MostRecent returns a state that holds every change acknowledged before the
// call, to anybody: resourceVersion unset. On a local log that is Any.
func (s *Store) MostRecent(ctx context.Context) (*State, error) { panic("contract") }

// NotOlderThan returns the newest state once it has reached the revision. It
// waits for at most wait, then it is a *TooLargeError.
func (s *Store) NotOlderThan(ctx context.Context, r Revision, wait time.Duration) (*State, error) {
	panic("contract")
}

// Exact returns the state at the revision: *ExpiredError below the history,
// *TooLargeError when the revision was not reached within wait. A state that is
// no longer in memory is read back from the log as it is scanned; ErrBusy when
// too many do that already. Close the view when done with it.
func (s *Store) Exact(ctx context.Context, collection string, r Revision, wait time.Duration) (*View, error) {
	panic("contract")
}

// Bounds returns the oldest revision that Exact and Changes still answer, and
// the newest.
func (s *Store) Bounds() (floor, head Revision) { panic("contract") }

// State is the whole store at one revision: immutable, shared, free to keep for
// the length of a request.
type State struct{ unfinished }

// Revision is that of the newest change of the whole store: a list's version.
func (s *State) Revision() Revision { panic("contract") }

// Get returns the object, nil when there is none. It does not allocate.
func (s *State) Get(collection, key string) *Object { panic("contract") }

// Snapshot returns a collection of the state; an unknown one is empty.
func (s *State) Snapshot(collection string) Snapshot { panic("contract") }

// Snapshot is one collection at one revision.
type Snapshot struct{ unfinished }

func (s Snapshot) Revision() Revision     { panic("contract") }
func (s Snapshot) Get(key string) *Object { panic("contract") }

// Scan yields the objects whose key has the prefix and is greater than after,
// in the order of their keys. It allocates nothing per object.
func (s Snapshot) Scan(prefix, after string) iter.Seq[*Object] { panic("contract") }

// Count counts what Scan would yield, in O(log n).
func (s Snapshot) Count(prefix, after string) int { panic("contract") }

// View is a collection at a revision that may be read back from the log.
type View struct{ unfinished }

// Revision is the exact one that was asked for.
func (v *View) Revision() Revision { panic("contract") }

// Scan is as Snapshot.Scan; an error (Expired, when compaction overtook the
// scan) ends it.
func (v *View) Scan(prefix, after string) iter.Seq2[*Object, error] { panic("contract") }

// Count counts what Scan would yield: O(log n) in memory, a scan of the keys on
// the log.
func (v *View) Count(ctx context.Context, prefix, after string) (int, error) { panic("contract") }

// Close releases the view. It is idempotent.
func (v *View) Close() { panic("contract") }

// Change is one change of one object, with what was before and after it. What
// it means to a watcher follows from the two.
type Change struct {
	Revision Revision
	// Before is nil when the change created the object, After when it deleted it.
	Before, After *Object
}

// Gone returns Before as of the change's revision: what a deletion, and an
// object that leaves a selector, reports. It is made once and shared.
func (c *Change) Gone() *Object { panic("contract") }

// Watch starts a cursor at a place in the log: its first change is the first one
// after the revision. A revision below the history is *ExpiredError; one that is
// not reached yet is allowed, the cursor then waits for it. Prefix selects keys:
// "" all of them, "namespace/" one namespace, "namespace/name" or "name" that one
// object; the cursor wakes for nothing else.
func (s *Store) Watch(collection, prefix string, after Revision) (*Cursor, error) { panic("contract") }

// Cursor is a place in the shared history. It holds no queue and no copy: a
// reader that lags costs nobody anything, until what it has not read falls out
// of the history. One goroutine uses a cursor.
type Cursor struct{ unfinished }

// Next fills buf with the changes that follow, at least one, and waits for them
// until the context ends. It returns how many there are. *ExpiredError: the
// reader was too slow, and the history went on without it; ErrClosed: the store
// was closed. Changes that are no longer in memory are read back from the log.
func (c *Cursor) Next(ctx context.Context, buf []*Change) (int, error) { panic("contract") }

// TryNext is Next without waiting: zero when there is nothing.
func (c *Cursor) TryNext(buf []*Change) (int, error) { panic("contract") }

// Ready returns a channel that gets a value when TryNext may have something,
// for a select beside timers. A value may be spurious, none is lost.
func (c *Cursor) Ready() <-chan struct{} { panic("contract") }

// Revision is how far the cursor has seen: no change that it selects at or
// below this revision is left to read. It grows with writes to other collections
// too, so a bookmark can say it. It never passes what is durable.
func (c *Cursor) Revision() Revision { panic("contract") }

// Close releases the cursor. It is idempotent.
func (c *Cursor) Close() { panic("contract") }

// unfinished marks what the contract declares and the implementation fills.
type unfinished struct{}
