package store

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Store is the state of a server. All methods are safe for concurrent use.
//
// Locks, in the order in which they may be taken together:
//
//	history.mu -> collection.mu -> notify.Topic.mu -> notify.Fanout.mu
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
	waiters    waiters
	measured   Measured
	closed     atomic.Bool
	closeOnce  sync.Once
	closeErr   error
	done       chan struct{} // closed when the store closes
	stop       context.CancelFunc
	ctx        context.Context // ends when the store closes
	loop       sync.WaitGroup
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
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.old.start(s.ctx, o.Shared != nil)
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
	w := s.waiters.join(r)
	defer s.waiters.leave(w)
	// Check after joining: a publication in between closes the channel.
	if now := s.Any(); now.revision >= r {
		return now, nil
	}
	select {
	case <-w.reached:
		return s.Any(), nil
	case <-timer.C:
		return nil, &TooLargeError{Revision: r, Current: s.Any().revision}
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.done:
		return nil, ErrClosed
	case <-s.failed:
		return nil, s.brokenBy()
	}
}

// Bounds returns the oldest revision that Exact and Changes still return, and
// the newest.
func (s *Store) Bounds() (floor, head Revision) {
	// The floor first: it never passes the head.
	floor = Revision(s.floor.Load())
	return floor, s.Any().revision
}

// Publisher is a store as its writer sees it: besides the methods for everyone, it has those that make the changes of a log
// readable. Loader.Publisher and Store.Fork return one; other packages cannot make one of a Store. All methods are safe for
// concurrent use, apart from Start. Publish, Reload and Heal must not be called concurrently.
//
//	Start, Store                            the writer, and the store for everyone
//	Fits, Drafts, Owned, Pack               before a transaction joins the log, or a change the state
//	Stage, Publish                          changes that the log has become the next state
//	Reload, Unread, Heal                    the same for states whose changes are not known
//	Floor, RaiseFloor, Trim, Window, GaveUp how much history there is
//	Fail, Fatal, Failure                    the end of all writing
//	Reached, ReadOld                        waits for a revision, reads from the log
//	Aging, Measured, Options, Now           the age of revisions, the metrics of the log, the options, the clock
//	Context, Go, Done, Stop                 goroutines that end with the store
type Publisher struct{ *inner }

// inner is Store by a name that other packages cannot use.
type inner = Store

// brokenBy returns why no write is possible any more, or nil.
func (s *Store) brokenBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// window returns the revision above which all changes are in memory.
func (s *Store) window() Revision {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.window
}

// raiseFloor publishes a floor. It never lowers it.
func (s *Store) raiseFloor(r Revision) {
	for {
		old := s.floor.Load()
		if old >= uint64(r) || s.floor.CompareAndSwap(old, uint64(r)) {
			return
		}
	}
}

// Shared reports whether the store works on a Shared: other servers may have made writes that Any does
// not have yet.
func (s *Store) Shared() bool { return s.o.Shared != nil }
