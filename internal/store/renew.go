package store

import (
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store/notify"
)

// # States without changes
//
// Two states are published although their changes are not known or have no revision: one that was loaded again, and one in
// which objects that could not be read can be read again. The history in memory begins anew with such a state.

// Reload publishes the state that was loaded from the log, in place of the published one. It returns the revision of the
// state before, and the number of collections that differ. The changes in between are not known: in a collection that did not
// change, objects may have been created and deleted.
func (s Publisher) Reload(l *Loader, b Bounds, t time.Time) (was Revision, collections int) {
	was, changed := s.renew(b.Head, t, false, func() {
		s.opened = b.Head // for collections that are made from now on
		for name := range l.parts {
			s.collectionLocked(name)
		}
		for name, c := range *s.names.Load() {
			s.replace(c, l.objects(name))
		}
		if len(s.standIns) > 0 {
			s.noteUnreadable(b.Head)
		}
	})
	return was, len(changed)
}

// Unread returns the stand-ins of the newest state by their collections. If there are none, neither there nor in the history
// in memory, HasUnreadable is false from now on.
func (s Publisher) Unread() map[string][]*Object {
	window := s.window()
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string][]*Object{}
	for o, c := range s.standIns {
		all[c.name] = append(all[c.name], o)
	}
	if len(all) == 0 && window >= s.unreadableUpTo {
		s.unreadable.Store(false)
	}
	return all
}

// Heal publishes objects in place of their stand-ins, if these are current, at the published revision. It returns the number
// of collections that differ.
func (s Publisher) Heal(healed map[*Object]*Object, t time.Time) (collections int) {
	_, changed := s.renew(s.Any().revision, t, true, func() {
		for standIn, o := range healed {
			if c := s.standIns[standIn]; c != nil {
				s.apply(c, o.Key, standIn, o)
			}
		}
	})
	return len(changed)
}

// renew publishes a state whose changes are not known, at a revision. It is Publish otherwise. A function makes the state with
// Store.apply. The history in memory begins anew there. If expire is true, cursors of the changed collections and all feeds get
// an *ExpiredError. It returns the revision that was published before, and the collections that the function changed. If
// nothing has changed, nothing is published.
func (s *Store) renew(at Revision, t time.Time, expire bool, change func()) (was Revision, changed []*collection) {
	was = s.Any().revision
	s.mu.Lock()
	change()
	if changed = slices.Clone(s.touched); at == was && len(changed) == 0 {
		s.mu.Unlock()
		return was, nil
	}
	state := s.seal(at, t, 0).state
	s.mu.Unlock()
	s.trim(was) // all of the history in memory

	h := &s.history
	h.mu.Lock()
	h.window = at
	h.dropKept(at + 1)
	var notified []*notify.Topic
	for _, c := range *s.names.Load() {
		notified = c.lose(at, notified)
	}
	h.unpin(func(p *pinned) bool { return p.root.Load().root != state.roots.at(p.collection.index) })
	for _, p := range h.pinned {
		p.revision = at
	}
	if expire {
		h.epoch.Add(1)
		for _, c := range changed {
			c.epoch.Add(1)
		}
	}
	s.published.Store(state)
	feeds := h.feeds
	h.mu.Unlock()
	s.announce(notified, feeds, state)
	if expire {
		for _, c := range changed {
			c.wakeAll()
		}
	}
	return was, changed
}

// replace makes the objects those of the collection in the next state. The caller holds s.mu.
func (s *Store) replace(c *collection, objects []*Object) {
	set := func(key string, before, after *Object) {
		s.apply(c, key, before, after)
	}
	old := c.root.all()
	for len(old) > 0 || len(objects) > 0 {
		switch {
		case len(objects) == 0 || len(old) > 0 && old[0].Key < objects[0].Key:
			set(old[0].Key, old[0], nil)
			old = old[1:]
		case len(old) == 0 || objects[0].Key < old[0].Key:
			set(objects[0].Key, nil, objects[0])
			objects = objects[1:]
		default:
			if old[0].Modified != objects[0].Modified || old[0].isUnreadable() != objects[0].isUnreadable() {
				set(old[0].Key, old[0], objects[0])
			}
			old, objects = old[1:], objects[1:]
		}
	}
}
