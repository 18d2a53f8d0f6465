package store

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/exposition"
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

	// Deleting marks a step of a deletion, such as setting the deletion timestamp. It is
	// exempt from the quota, and a full log stores it in the space reserved for deletions.
	Deleting bool

	// If is the revision that the object must have. Zero: the object must be absent.
	If Revision
	// Origin is how and by whom the write is made; nil: unknown. The store sets Origin.Time
	// itself. It keeps no reference to the Origin nor to its Actor.
	Origin *Origin

	// Next: the write changes the object that the write directly before it in the transaction makes.
	// If is zero then.
	Next bool
}

// Options configure a store. The zero value works, but for Log or Shared.
type Options struct {
	// Log is the log of a store that is its only writer; Shared is one that others append to as
	// well. One of them is set.
	Log    Log
	Shared Shared

	// Retention is how long a revision can be read after a newer one replaced it,
	// in running time; zero means DefaultRetention. On a Shared it bounds the history in memory
	// alone: the log has a compaction of its own.
	Retention time.Duration
	// MaxMemory bounds the bytes that history holds in memory: replaced versions,
	// changes, tree nodes that only old states use, states that readers pinned, and
	// caches (see Charge). Zero means DefaultMaxMemory.
	MaxMemory int64
	// MaxDisk bounds Usage.HistoryBytes of a Log; zero means DefaultMaxDisk.
	MaxDisk int64

	// Packed are the collections whose large objects are held compressed because they are
	// seldom read. Object.Bytes unpacks them.
	Packed map[string]bool

	// Encryption is set if the log encrypts values; nil: it does not.
	Encryption Encryption

	// Now is the clock; nil means time.Now. It gives changes their Origin.Time, and measures the
	// age of revisions. For that, only differences between two calls in one process count, by the
	// monotonic reading where there is one. Timers and pauses use package time.
	Now func() time.Time

	// Note is called with messages for an operator about space, and pairs of names and
	// values. A warning may need action. Note must not call the store. Nil discards the
	// messages.
	Note func(warning bool, message string, pairs ...any)

	// Account is the account of a fork in the budget of all forks; nil: there is no such budget. The store closes
	// it, unless Open or Fork fails.
	Account *Account

	// OnDivergence is called once when the state is no longer the one that a fork began with, in a goroutine of its
	// own: after the first write, or by Open if the log is beyond Base. Nil: it is not called. The store compacts
	// nothing before.
	OnDivergence func()
	// Base is the revision that the log of a fork began with. Fork ignores it.
	Base Revision

	// OnFatal is called once if the log failed and no more writes can be acknowledged, or if a
	// Shared was reset (ErrReset), so that the state is void. The process has to end. Nil panics.
	OnFatal func(error)
}

// Encryption has the methods of a log that encrypts values, besides those of Log. All methods are safe for concurrent
// use.
type Encryption interface {
	// Writable returns why the log cannot store a write at present, or nil: it cannot encrypt, or
	// the record of the version that the write replaces is damaged. Append must not fail for
	// these reasons, since a failed Append ends the process. Writable may read from the medium.
	Writable(w *Write) error
	// Outdated reports whether the log would encrypt an object in another way now than it did
	// when it stored the current version. It may read that version from the medium.
	Outdated(collection, key string) bool
}

// Defaults of Options; sizes in bytes.
const (
	DefaultRetention = time.Hour
	DefaultMaxMemory = 128 << 20
	DefaultMaxDisk   = 4 << 30
)

// Store is the state of a server. All methods are safe for concurrent use.
//
// Locks, in the order in which they may be taken together:
//
//	history.mu -> collection.mu -> topic.mu
//	groupcommit: committer.mu -> Store.mu, actors.mu
//	sharedwriter: writer.publishing -> Store.mu, history.mu
//	sharedwriter: writer.mu -> flights.mu -> Store.mu, actors.mu
type Store struct {
	writer    Writer
	archive   archive // the log of either kind
	o         Options
	published atomic.Pointer[State]
	floor     atomic.Uint64                          // the oldest revision that can be read, a Revision
	names     atomic.Pointer[map[string]*collection] // those that were used
	indexes   atomic.Pointer[map[string]int]         // State.indexes of the next state
	opened    Revision                               // the head when the store was opened, or loaded again
	base      Revision                               // of a fork: that of its parent's state; otherwise zero
	inMemory  bool                                   // Bounds.InMemory of the log

	// mu guards the trees under construction and failure. It is also held while a collection is added.
	mu sync.Mutex
	trees
	failure error         // of the log; not nil: no write is possible any more
	failed  chan struct{} // closed when failure is set
	actors  actors
	noSpace atomic.Int64 // writes that were refused for lack of space
	givenUp atomic.Int64 // revisions whose history was dropped for lack of space
	history history
	loans   *loans // the forks
	aging   Aging
	quota   quota
	old     oldReads
	// unreadable: the state or the history in memory has a stand-in.
	unreadable atomic.Bool
	arrival    arrival
	measured   Measured
	closed     atomic.Bool
	closeOnce  sync.Once
	closeErr   error
	done       chan struct{} // closed when the store closes
	stop       context.CancelFunc
	ctx        context.Context // ends when the store closes
	loop       sync.WaitGroup
}

// collection is one collection of the store. Its index in a State never changes.
type collection struct {
	name  string
	index int

	// The tree of the published state, or of the one that is about to be published. Guarded by Store.mu, as is touched:
	// whether they differ.
	root    *node
	touched bool

	recent

	writes [3]atomic.Pointer[exposition.Histogram] // by Operation; nil before the first one
}

func (o *Options) setDefaults() {
	o.Retention = cmp.Or(o.Retention, DefaultRetention)
	o.MaxMemory = cmp.Or(o.MaxMemory, DefaultMaxMemory)
	o.MaxDisk = cmp.Or(o.MaxDisk, DefaultMaxDisk)
	if o.Note == nil {
		o.Note = func(bool, string, ...any) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// start starts the store at a state, all but its loop.
func (s *Store) start(o Options, b Bounds, state *State) {
	s.loans = new(loans)
	s.o, s.done, s.failed = o, make(chan struct{}), make(chan struct{})
	if s.archive = o.Log; o.Shared != nil {
		s.archive = o.Shared
	}
	s.measured.start()
	s.opened, s.inMemory = b.Head, b.InMemory
	s.floor.Store(uint64(b.Floor))
	s.indexes.Store(&state.indexes)
	s.published.Store(state)
	s.history.window = b.Head
	s.aging.start(o, b)
	s.old.start(o.Shared != nil)
	s.ctx, s.stop = context.WithCancel(context.Background())
}

func newCollection(name string, index int, opened Revision) *collection {
	c := &collection{name: name, index: index}
	c.trimmed, c.newest = opened, opened
	return c
}

// collection returns the collection with the name. It creates one if there is none.
func (s *Store) collection(name string) *collection {
	if c := (*s.names.Load())[name]; c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collectionLocked(name)
}

// collectionLocked is collection for a caller that holds s.mu.
func (s *Store) collectionLocked(name string) *collection {
	names := *s.names.Load()
	if c := names[name]; c != nil {
		return c
	}
	name = strings.Clone(name)
	indexes := *s.indexes.Load()
	index, known := indexes[name]
	if !known {
		index = len(indexes)
		indexes = maps.Clone(indexes)
		indexes[name] = index
		s.indexes.Store(&indexes)
	}
	c := newCollection(name, index, s.opened)
	c.root = s.Any().roots.at(index) // a fork's: no write changed it so far
	names = maps.Clone(names)
	names[c.name] = c
	s.names.Store(&names)
	return c
}

// Outdated reports whether an object is stored in another form than a write would give it now:
// it is encrypted with another key than the first one, or not encrypted. A write of the same
// content then stores it anew.
func (s *Store) Outdated(collection, key string) bool {
	return s.o.Encryption != nil && s.o.Encryption.Outdated(collection, key)
}

// writable returns why the log cannot store a transaction at present, or nil.
func (s *Store) writable(t *Txn) error {
	if s.o.Encryption == nil {
		return nil
	}
	for i := range t.Writes {
		if err := s.o.Encryption.Writable(&t.Writes[i]); err != nil {
			return err
		}
	}
	return nil
}

// Close waits for the writes under way, ends every cursor and closes the log.
// It is idempotent.
func (s *Store) Close() error {
	s.closeOnce.Do(func() {
		s.writer.Close()
		s.closed.Store(true)
		close(s.done)
		s.stop()
		s.loop.Wait()
		for _, c := range *s.names.Load() {
			c.wakeAll()
		}
		s.history.mu.Lock()
		feeds := s.history.feeds
		s.history.mu.Unlock()
		for _, f := range feeds {
			f.wake()
		}
		s.old.close() // no read of the log after this
		s.closeErr = s.archive.Close()
		s.o.Account.Close()
	})
	return s.closeErr
}

// Any returns the published state, without waiting: resourceVersion "0".
func (s *Store) Any() *State { return s.published.Load() }

// NotOlderThan returns the newest state once it has reached the revision. After waiting
// for wait it returns a *TooLargeError.
func (s *Store) NotOlderThan(ctx context.Context, r Revision, wait time.Duration) (*State, error) {
	if now := s.Any(); now.revision >= r {
		return now, nil
	}
	if wait <= 0 {
		return nil, &TooLargeError{Revision: r, Current: s.Any().revision}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	return s.arrival.await(ctx, s, r, timer.C)
}

// Bounds returns the oldest revision that Exact and Changes still return, and
// the newest.
func (s *Store) Bounds() (floor, head Revision) {
	// The floor first: it never passes the head.
	floor = Revision(s.floor.Load())
	return floor, s.Any().revision
}
