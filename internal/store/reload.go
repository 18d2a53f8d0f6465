package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// # Loading again
//
// When compaction overtakes the follower, the changes up to some revision are lost. The follower
// then loads the whole state as of a newer revision, and publishes it. It does not know the
// changes in between: in a collection that is as it was, objects may have been created and
// deleted. So the history in memory begins anew, for all collections. Cursors and feeds get an
// *ExpiredError, unless the log can read back what they have not read. Views of collections that
// are as they were keep their trees.

const (
	reloadPause     = 100 * time.Millisecond
	mostReloadPause = 5 * time.Second
)

// reload loads the state again, and publishes it. It tries until the store closes.
func (f *follower) reload() error {
	s := f.store
	for pause := reloadPause; ; pause = min(2*pause, mostReloadPause) {
		l := loader{o: &s.o}
		b, err := f.log.Load(f.ctx, l.load)
		switch {
		case err == nil && b.Head < s.Any().revision:
			return fmt.Errorf("%w: its revision is %d, and was %d before", ErrReset, b.Head, s.Any().revision)
		case err == nil:
			f.replace(&l, b)
			return nil
		case errors.Is(err, ErrReset) || f.ctx.Err() != nil:
			return err
		}
		s.o.Note(true, "storage: the state could not be loaded again", "error", err)
		if !sleep(f.ctx, pause) {
			return f.ctx.Err()
		}
	}
}

// sleep reports whether the context lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// replace publishes a state that was loaded.
func (f *follower) replace(l *loader, b Bounds) {
	s := f.store
	f.publishing.Lock()
	defer f.publishing.Unlock()
	was, changed := s.renew(b.Head, f.time, false, func() {
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
	f.floor.Store(max(f.floor.Load(), uint64(b.Floor)))
	f.raiseFloor()
	s.o.Note(true, "storage: compaction was faster than this server: the state was loaded again, and watches end",
		"from", uint64(was), "to", uint64(b.Head), "changed_collections", len(changed))
}

// renew publishes a state whose changes are not known, at a revision. It is publish otherwise. A function makes the state with
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
	var notified []*topic
	for _, c := range *s.names.Load() {
		notified = c.lose(at, notified)
	}
	h.unpin(func(p *pinned) bool { return p.root.Load().root != state.root(p.collection) })
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

// objects returns what was loaded of a collection, in the order of keys.
func (l *loader) objects(name string) []*Object {
	p := l.parts[name]
	if p == nil {
		return nil
	}
	slices.SortFunc(p.objects, func(a, b *Object) int { return strings.Compare(a.Key, b.Key) })
	return p.objects
}

// lose records that the changes of the collection up to a revision are not in memory. It appends all of its topics to notified.
func (c *recent) lose(r Revision, notified []*topic) []*topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trimmed, c.newest = r, r
	for t := range maps.Values(c.topics) {
		t.note(r)
		notified = append(notified, t)
	}
	return notified
}
