package derived

import (
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Tracker keeps a value that its owner changes in place, such as maps, in step with collections. A
// change of one object costs the owner's work for it, however many objects there are. Use it where
// a copy of the value for each change costs too much; its readers take a lock. Its methods are safe
// for concurrent use; make one with NewTracker.
type Tracker struct {
	collections []string
	change      func(collection int, key string, after *store.Object)

	mu   sync.RWMutex // guards from and the owner's value
	from []store.Snapshot
	// upTo is a revision at which the collections were as in from.
	upTo atomic.Uint64
}

// NewTracker returns a tracker. It calls change for each changed object, with the index of its
// collection and the object's key; after is nil for a deleted object. No reader reads meanwhile.
// Change must set the values that it derives from the object, not add to them: after a panic it is
// called again.
func NewTracker(change func(collection int, key string, after *store.Object), collections ...string) *Tracker {
	return &Tracker{collections: collections, change: change, from: make([]store.Snapshot, len(collections))}
}

// RLock brings the value to a published state, or to a newer one that another reader asked for,
// and keeps it unchanged until RUnlock.
func (t *Tracker) RLock(s *store.State) {
	t.mu.RLock()
	for !t.holds(s) {
		t.mu.RUnlock()
		t.advance(s)
		t.mu.RLock()
	}
}

// RUnlock releases the lock of RLock.
func (t *Tracker) RUnlock() { t.mu.RUnlock() }

// holds reports whether the value is that of the state, or of a newer one.
func (t *Tracker) holds(s *store.State) bool {
	if uint64(s.Revision()) <= t.upTo.Load() {
		return true
	}
	for i, name := range t.collections {
		if !t.from[i].Same(s.Snapshot(name)) {
			return false
		}
	}
	t.upTo.Store(uint64(s.Revision()))
	return true
}

// advance brings the value to a state.
func (t *Tracker) advance(s *store.State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.holds(s) {
		return
	}
	for i, name := range t.collections {
		now := s.Snapshot(name)
		for before, after := range now.Since(t.from[i]) {
			key := ""
			if before != nil {
				key = before.Key
			} else {
				key = after.Key
			}
			t.change(i, key, after)
		}
		t.from[i] = now
	}
	t.upTo.Store(uint64(s.Revision()))
}
