package store

import (
	"time"

	"github.com/tidemark-dev/tidemark/internal/store/notify"
)

// # Publication
//
// A writer commits transactions to a log, which makes changes durable. Publisher.Publish is the one way by which they become
// readable: it makes the next State from the published one, adds the changes to the history, swaps the pointer, and wakes
// the readers that wait.
//
//	log has the changes -> [edit the trees, make the state] -> [history, swap] -> [wake]
//
// One goroutine at a time publishes. Its writer sees to that.

// Staged is a change that a writer makes, as Publisher.Publish takes it.
type Staged struct {
	Change     *Change
	collection *collection
	actorBytes int64 // the memory of the actor, if it is new
}

// Collection returns the name of the collection.
func (m *Staged) Collection() string { return m.collection.name }

// SetTime sets the Origin.Time of the change, which is not published yet.
func (m *Staged) SetTime(t time.Time) { m.Change.origin.Time = t }

// Entry returns the change as a log keeps it.
func (m *Staged) Entry() Entry {
	c := m.Change
	return Entry{Collection: m.collection.name, Key: c.Key(), Revision: c.Revision, Object: c.After, Before: c.Before, Origin: &c.origin}
}

// Stage returns a change as Publish takes it. Its origin is a copy, with an actor that other changes share; nil: unknown.
func (s Publisher) Stage(collection string, c *Change, origin *Origin) Staged {
	m := Staged{collection: s.collection(collection), Change: c}
	if origin != nil {
		c.origin = *origin
		if c.origin.Actor != nil {
			c.origin.Actor, m.actorBytes = s.actors.share(c.origin.Actor)
		}
	}
	return m
}

// successor is a state that is about to be published.
type successor struct {
	state   *State
	keep    bool  // history keeps the state
	retired int64 // edit.retired
}

// Publish makes changes readable that the log has. They lead from the published state to the one at a revision, which may
// have no change of its own. The time is State.Time.
func (s Publisher) Publish(changes []Staged, at Revision, t time.Time) {
	s.mu.Lock()
	for i := range changes {
		c := changes[i].Change
		s.apply(changes[i].collection, c.Key(), c.Before, c.After)
		if c.Before.isUnreadable() || c.After.isUnreadable() {
			s.noteUnreadable(c.Revision)
		}
	}
	n := s.seal(at, t, len(changes))
	s.mu.Unlock()
	s.history.mu.Lock() // no cursor joins a topic in between: see Cursor
	notified := s.record(changes, &n)
	s.published.Store(n.state)
	feeds := s.history.feeds
	s.history.mu.Unlock()
	s.announce(notified, feeds, n.state)
	clear(notified)
	s.history.notified = notified[:0]
	s.trim(0)
}

// apply makes a change of an object in the trees. The caller holds s.mu.
func (s *Store) apply(c *collection, key string, before, after *Object) {
	s.bytes += ObjectBytes(after) - s.owned(before)
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
		c.root, _ = s.edit.put(c.root, after)
	} else {
		c.root, _ = s.edit.remove(c.root, key)
	}
}

// seal ends the edit, and makes the state after it. Changes is how many it has. The caller holds s.mu.
func (s *Store) seal(at Revision, t time.Time, changes int) successor {
	n := successor{retired: s.edit.retired}
	n.state = &State{revision: at, indexes: *s.indexes.Load(), roots: s.Any().roots.with(s.touched), bytes: s.bytes, time: t}
	kept := s.edit.kept
	if n.keep = s.history.wantsKept(changes); n.keep {
		kept = s.edit.token
	}
	s.edit = edit{token: s.edit.token + 1, kept: kept}
	for _, c := range s.touched {
		c.touched = false
	}
	s.touched = s.touched[:0]
	return n
}

// announce wakes all that wait for a state that was just published.
func (s *Store) announce(notified []*notify.Topic, feeds []signal, state *State) {
	s.waiters.announce(state.revision)
	for _, t := range notified {
		t.Notify()
	}
	for _, f := range feeds {
		f.send()
	}
	s.account()
	s.watchQuota(state.bytes)
}

// record adds changes to the history, before they are published. It
// returns the topics to notify afterwards. The caller holds history.mu.
func (s *Store) record(changes []Staged, next *successor) []*notify.Topic {
	h := &s.history
	notified := h.notified[:0]
	for i := range changes {
		m := &changes[i]
		notified = s.remember(m.collection, m.Change, m.actorBytes, notified)
	}
	if n := len(h.kept); n > 0 {
		h.kept[n-1].bytes += next.retired
		h.bytes.Add(next.retired)
	}
	if next.keep {
		h.kept = append(h.kept, keptState{next.state, keptOverhead})
		h.bytes.Add(keptOverhead)
	}
	return notified
}

// noteUnreadable records that the state or the history at a revision has a stand-in. The caller holds s.mu.
func (s *Store) noteUnreadable(at Revision) {
	s.unreadableUpTo = max(s.unreadableUpTo, at)
	s.unreadable.Store(true)
}

// HasUnreadable reports whether the store may have objects that cannot be read, now or in its history in
// memory. It is cheap.
func (s *Store) HasUnreadable() bool { return s.unreadable.Load() }

// with returns the roots with those of the touched collections replaced by theirs.
func (r roots) with(touched []*collection) roots {
	size := len(r)
	for _, c := range touched {
		size = max(size, c.index/rootsPiece+1)
	}
	next := make(roots, size)
	copy(next, r)
	for _, c := range touched {
		i := c.index / rootsPiece
		var old *[rootsPiece]*node
		if i < len(r) {
			old = r[i]
		}
		if next[i] == old {
			next[i] = new([rootsPiece]*node)
			if old != nil {
				*next[i] = *old
			}
		}
		next[i][c.index%rootsPiece] = c.root
	}
	return next
}
