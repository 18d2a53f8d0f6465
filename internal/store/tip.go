package store

import (
	"fmt"
	"sync"
	"time"
)

// # The tip
//
// The tip is the state under construction: the published state with all writes on top that are not published yet. It is
// kept in the collections (collection.tip). A writer of the store changes it and seals it, which makes the next State. Then
// Store.publish makes that state readable:
//
//	put and remove objects in the tip ...   seal -> batch   publish

// tip is what the tips of all collections have in common. All but the batches is guarded by mu.
type tip struct {
	mu      sync.Mutex
	closing bool
	failure error  // of the log; not nil: no write is possible any more
	sealed  *State // the newest sealed state
	edit    edit   // since then
	bytes   int64  // State.bytes of the tip
	touched []*collection
	// actors are those of recent changes.
	actors actors
	// standIns are the objects of the tip that cannot be read, with their collections. unreadableUpTo is the newest revision
	// with a stand-in.
	standIns       map[*Object]*collection
	unreadableUpTo Revision
	// time is the Origin.Time of the newest change that the log has. Only the goroutine that seals uses it.
	time time.Time
}

// start starts at a state, with the first token of edits. No node of the state has that token or a later
// one.
func (t *tip) start(s *State, token uint64) {
	t.sealed, t.bytes = s, s.bytes
	t.edit.token = token
}

// batch is a sealed state that is not published yet, with the changes that lead to it.
type batch struct {
	changes []made
	state   *State
	keep    bool   // history keeps the state
	token   uint64 // of the edit that made the state
	retired int64  // edit.retired
}

// made is a change that a batch makes.
type made struct {
	collection *collection
	change     *Change
	actorBytes int64 // the memory of the actor, if it is new
}

// tipObject returns an object of the tip, nil when there is none. The caller holds s.mu.
func (s *Store) tipObject(collection, key string) *Object {
	if c := (*s.names.Load())[collection]; c != nil {
		return c.tip.get(key)
	}
	return s.Any().Get(collection, key) // no write of this store changed the collection
}

// apply makes a change of an object in the tip. The caller holds s.mu.
func (s *Store) apply(c *collection, key string, before, after *Object) {
	s.bytes += objectBytes(after) - s.owned(before)
	if before.isUnreadable() {
		delete(s.standIns, before)
	}
	if after.isUnreadable() {
		if s.standIns == nil {
			s.standIns = map[*Object]*collection{}
		}
		s.standIns[after] = c
	}
	if !c.touched {
		c.touched = true
		s.touched = append(s.touched, c)
	}
	if after != nil {
		c.tip, _ = s.edit.put(c.tip, after)
	} else {
		c.tip, _ = s.edit.remove(c.tip, key)
	}
}

// seal makes the tip a state at a revision. Changes is how many it is ahead of the last one. If the revision is zero, the
// tip has no changes, and the batch has no state. The caller holds s.mu.
func (s *Store) seal(r Revision, changes int) batch {
	b := batch{token: s.edit.token, retired: s.edit.retired}
	if r != 0 {
		b.state = &State{revision: r, indexes: *s.indexes.Load(), bytes: s.bytes}
		b.state.roots = s.sealed.roots.with(s.touched)
		s.sealed = b.state
		b.keep = s.history.wantsKept(changes)
	}
	kept := s.edit.kept
	if b.keep {
		kept = b.token
	}
	s.newEdit(kept)
	return b
}

func (s *Store) newEdit(kept uint64) {
	s.edit = edit{token: s.edit.token + 1, kept: kept}
	for _, c := range s.touched {
		c.touched = false
	}
	s.touched = s.touched[:0]
}

// share returns an origin as a change keeps it, and the memory of its actor, if that is new. The caller holds s.mu.
func (s *Store) share(o *Origin) (own Origin, actorBytes int64) {
	own = *o
	if own.Actor != nil {
		own.Actor, actorBytes = s.actors.share(own.Actor)
	}
	return own, actorBytes
}

// publish makes a batch readable: it updates the history and the state, then wakes the
// readers that wait.
func (s *Store) publish(b *batch) {
	s.history.mu.Lock() // no cursor joins a topic in between: see Cursor
	notified := s.record(b)
	s.published.Store(b.state)
	feeds := s.history.feeds
	s.history.mu.Unlock()
	s.announce(notified, feeds, b.state)
	clear(notified)
	s.history.notified = notified[:0]
	s.trim(0)
}

// announce wakes all that wait for a state that was just published.
func (s *Store) announce(notified []*topic, feeds []*Feed, state *State) {
	s.arrival.announce(state.revision)
	for _, t := range notified {
		t.notify()
	}
	for _, f := range feeds {
		f.wake()
	}
	s.account()
	s.watchQuota(state.bytes)
}

// fail ends all writing: the log cannot be trusted any more.
func (s *Store) fail(err error) {
	if failure, first := s.setFailure(err); first {
		s.fatal(failure)
	}
}

// setFailure records why no write is possible any more, unless there is a reason already, and returns the reason. The caller
// calls fatal for the first one.
func (s *Store) setFailure(err error) (failure error, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure, first = err, true
		close(s.failed)
	}
	return s.failure, first
}

func (s *Store) fatal(failure error) {
	if s.o.OnFatal == nil {
		panic(fmt.Sprintf("store: %v", failure))
	}
	s.o.OnFatal(failure)
}

func logFailed(err error) error { return fmt.Errorf("the log failed: %w", err) }
