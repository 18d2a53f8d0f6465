package store

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
)

// # Replicas
//
// A replica reads the store like another server of a cluster, whose copy of the state is behind: it has
// the state of an older revision, and its cursors deliver no change above that revision. It copies
// nothing. It is a revision that only grows, and its reads are served from the store's own history:
//
//	revision = the highest of: head - lag, the revisions that Reach and Advance have named, the floor
//
// So a replica is never further behind than the history reaches back, and a replica without a lag reads
// like the store.
//
// A cursor of the store is woken by changes of its topic. A cursor of a replica has something to read when
// the revision of the replica grows, and writes to any collection make it grow. So the replica wakes its
// cursors: in Reach and Advance, and with each publication while it has a lag.

// Frozen is the lag of a replica whose revision does not grow with the head.
const Frozen = math.MaxUint64

// Replica is a reader of the store that is behind its head. All methods are safe for concurrent use.
type Replica struct {
	store *Store
	at    atomic.Uint64 // the replica is never below it, a Revision
	lag   atomic.Uint64

	late atomic.Uint64 // see Late

	ended    atomic.Bool
	end      chan struct{} // closed when ended becomes true
	trailing sync.WaitGroup

	advancing sync.Mutex // held by Advance

	mu      sync.Mutex
	cursors map[*Cursor]struct{}
}

// Replica starts a replica that is at least at a revision, and at most lag revisions behind the head. A
// revision below the history is an *ExpiredError, one above the head a *TooLargeError; zero is no bound.
func (s *Store) Replica(at Revision, lag uint64) (*Replica, error) {
	floor, head := s.Bounds()
	switch {
	case s.closed.Load():
		return nil, ErrClosed
	case at > head:
		return nil, &TooLargeError{Revision: at, Current: head}
	case at != 0 && at < floor:
		return nil, &ExpiredError{Revision: at, Floor: floor}
	}
	r := &Replica{store: s, end: make(chan struct{}), cursors: map[*Cursor]struct{}{}}
	r.at.Store(uint64(at))
	r.lag.Store(lag)
	if lag == 0 || lag == Frozen {
		return r, nil
	}
	feed, err := s.Feed(head) // it is not read: it is ready after each publication
	if err != nil {
		return nil, err
	}
	r.trailing.Go(func() { r.trail(feed) })
	return r, nil
}

// trail wakes the cursors with each publication, until the lag is zero.
func (r *Replica) trail(feed *Feed) {
	defer feed.Close()
	for r.lag.Load() != 0 && !r.store.closed.Load() {
		select {
		case <-feed.Ready():
			r.wake()
		case <-r.end:
			return
		}
	}
}

// Revision is the revision of the replica's state. It never decreases.
func (r *Replica) Revision() Revision {
	floor, head := r.store.Bounds()
	now := max(floor, Revision(r.at.Load()))
	if lag := Revision(r.lag.Load()); lag < head {
		now = max(now, head-lag)
	}
	return now
}

// Late returns how often a reader has seen that the replica is behind: a read returned a state without the newest changes of
// its collection, or a cursor did not return a change that it selects. If it is zero, readers of the replica saw the same as
// readers of the store.
func (r *Replica) Late() uint64 { return r.late.Load() }

// Reach moves the replica to a revision, or to the head if that is lower. It never moves the replica back.
func (r *Replica) Reach(to Revision) {
	to = min(to, r.store.Any().revision)
	for {
		now := r.at.Load()
		if Revision(now) >= to {
			return
		}
		if r.at.CompareAndSwap(now, uint64(to)) {
			r.wake()
			return
		}
	}
}

// Advance moves the replica forward by a number of revisions, to the head at most.
func (r *Replica) Advance(by uint64) {
	r.advancing.Lock()
	defer r.advancing.Unlock()
	now := r.Revision()
	if to := now + Revision(by); to >= now {
		r.Reach(to)
	} else {
		r.Reach(math.MaxUint64)
	}
}

// CatchUp ends the lag of the replica permanently.
func (r *Replica) CatchUp() {
	r.lag.Store(0)
	r.wake()
}

func (r *Replica) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.cursors {
		c.Wake()
	}
}

// Snapshot returns a collection at the revision of the replica. Its errors are those of Exact.
func (r *Replica) Snapshot(ctx context.Context, collection string) (s Snapshot, err error) {
	err = r.read(collection, func(at Revision) error {
		root, _, err := r.store.rootAt(ctx, collection, at, nil)
		s = Snapshot{at, root}
		return err
	})
	return s, err
}

// View is Snapshot for a reader that may be slow. The caller closes the view.
func (r *Replica) View(ctx context.Context, collection string) (v *View, err error) {
	err = r.read(collection, func(at Revision) error {
		v, err = r.store.Exact(ctx, collection, at, 0)
		return err
	})
	return v, err
}

// read calls a function that reads a collection with the revision of the replica, again if the history has passed it
// meanwhile.
func (r *Replica) read(collection string, f func(at Revision) error) error {
	for {
		at := r.Revision()
		err := f(at)
		if err == nil && r.store.collection(collection).changedAfter(at) {
			r.late.Add(1)
		}
		if expired := (*ExpiredError)(nil); !errors.As(err, &expired) || r.Revision() == at {
			return err
		}
	}
}

// Watch is Store.Watch for a cursor that delivers no change above the revision of the replica. The revision
// to begin after may be above it.
func (r *Replica) Watch(collection, prefix string, after Revision) (*Cursor, error) {
	c, err := r.store.Watch(collection, prefix, after)
	if err != nil {
		return nil, err
	}
	c.horizon = r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cursors[c] = struct{}{}
	return c, nil
}

// hides implements horizon.
func (r *Replica) hides() {
	if r.lag.Load() != 0 {
		r.late.Add(1)
	}
}

// over implements horizon.
func (r *Replica) over() bool { return r.ended.Load() }

// leave implements horizon: it forgets the cursor.
func (r *Replica) leave(c *Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.cursors, c)
}

// Close ends the cursors, which then return ErrClosed. It is idempotent.
func (r *Replica) Close() {
	if r.ended.Swap(true) {
		return
	}
	close(r.end)
	r.trailing.Wait()
	r.wake()
}
