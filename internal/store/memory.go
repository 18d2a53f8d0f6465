package store

import "github.com/tidemark-dev/tidemark/internal/store/notify"

// Charge adds the bytes of a cache outside the store to the memory of history:
// Options.MaxMemory bounds both together. A negative number gives bytes back. History
// makes room at the next write. It reports false if the store's Budget is spent: then the cache should give
// the bytes back.
func (s *Store) Charge(bytes int64) bool {
	s.history.bytes.Add(bytes)
	s.history.caches.Add(bytes)
	s.account()
	return bytes <= 0 || s.o.Account == nil || s.o.Account.over() <= 0
}

// remember adds a change to the history in memory. Besides the change, more bytes count. It appends the
// topics that the change concerns to notified. The caller holds history.mu.
func (s *Store) remember(c *collection, ch *Change, more int64, notified []*notify.Topic) []*notify.Topic {
	h := &s.history
	cost := ch.cost(s.inMemory) + more
	ch.bytes = &h.bytes
	h.order.push(ordered{c, ch, cost})
	h.bytes.Add(cost)
	if ch.Before != nil && s.loans.count.Load() > 0 {
		s.loans.replaced(ch.Before.Modified, s.owned(ch.Before))
	}
	return c.record(ch, notified)
}

// trim drops the oldest changes, in whole revisions: those up to the floor, and as many as the
// bound on memory requires.
func (s *Store) trim(floor Revision) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	before, now, most := h.window, s.Any().revision, s.mostMemory()
	for h.order.len() > 0 {
		o := h.order.at(0)
		r := o.change.Revision
		// A change that is recorded and not yet published cannot have been read.
		if r > now || r > floor && r != h.window && h.bytes.Load() <= most {
			break
		}
		h.window = r
		o.collection.trim(r)
		if len(h.pinned) > 0 {
			h.unpin(func(p *pinned) bool { return p.collection == o.collection && p.revision < r })
		}
		h.bytes.Add(-o.bytes)
		h.unpaid += o.bytes
		h.order.pop()
		h.dropKept(h.window)
	}
	if s.inMemory && h.window > before {
		// Nothing can be read back from such a log.
		s.raiseFloor(h.window)
		if h.unpaid > s.o.MaxMemory/compactShare {
			h.unpaid = 0
			s.aging.Kick()
		}
	}
	if h.order.len() == 0 && h.bytes.Load() > most {
		h.evict(0)
	}
	if h.window > before {
		s.account()
	}
}

// account brings the store's account up to date.
func (s *Store) account() {
	if s.o.Account != nil {
		s.o.Account.set(s.Any().bytes, s.history.bytes.Load())
	}
}

// mostMemory is how much memory history may take now, in bytes.
func (s *Store) mostMemory() int64 {
	most := s.o.MaxMemory
	if a := s.o.Account; a != nil {
		if over := a.over(); over > 0 {
			most = min(most, s.history.bytes.Load()-min(over, s.history.spare()))
		}
	}
	return most
}

// owned is the part of the quota that an object takes. It is zero for an object that a fork shares with
// its parent.
func (s *Store) owned(o *Object) int64 {
	if o == nil || o.Modified <= s.base {
		return 0
	}
	return ObjectBytes(o)
}
