package store

import (
	"context"
	"errors"
	"fmt"
)

// append makes the group durable; when space is short, its deletions alone.
func (s *Store) append(g *group) error {
	s.mu.Lock()
	failure := s.failure
	s.mu.Unlock()
	if failure != nil || g.state == nil {
		return failure
	}
	err := s.appendOnce(g)
	if errors.Is(err, ErrNoSpace) && g.deletes() > 0 && g.deletes() < len(g.proposals) {
		s.rebase(g, err, func(p *proposal) bool { return p.deleting })
		if g.state == nil {
			return nil
		}
		err = s.appendOnce(g)
	}
	if errors.Is(err, ErrNoSpace) {
		s.rebase(g, err, func(*proposal) bool { return false })
		return nil
	}
	return err
}

func (g *group) deletes() int {
	n := 0
	for _, p := range g.proposals {
		if p.deleting {
			n++
		}
	}
	return n
}

func (s *Store) appendOnce(g *group) error {
	mark, now := s.aging.due(g.state.revision)
	if now.After(s.time) {
		s.time = now
	}
	g.state.time = s.time
	entries := s.entries[:0]
	for _, p := range g.proposals {
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			w := &p.writes[i]
			w.change.origin.Time = s.time
			entries = append(entries, Entry{Collection: w.collection.name, Key: w.key,
				Revision: w.change.Revision, Object: w.object, Before: w.change.Before,
				Origin: &w.change.origin, Deleting: w.deleting})
		}
	}
	began := s.measured.begin()
	err := s.appendLog(entries, mark)
	s.measured.end(began, len(entries), g.bytes, err)
	if g.times != nil {
		*g.times = s.measured.times(began, len(entries), g.bytes)
	}
	if err == nil && mark != nil {
		s.aging.add(*mark, true)
	}
	if s.written += int64(g.bytes); s.written > s.mostHistory.Load()/sizeShare {
		s.written = 0
		s.aging.kick()
	}
	if s.log.Short() > 0 {
		for i := range entries {
			if e := &entries[i]; err == nil && e.Before != nil {
				s.room.garbage.Add(int64(e.Before.Len()))
			}
		}
		if s.room.rested() {
			s.aging.kick()
		}
	}
	clear(entries)
	if cap(entries) <= 1024 {
		s.entries = entries
	}
	return err
}

// appendLog is the only function that writes to the log. A panic of the log counts as a
// failure.
func (s *Store) appendLog(entries []Entry, mark *Mark) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return s.log.Append(context.Background(), entries, mark)
}

// rebase takes the tip back to the published state, fails the writes of the
// group in flight that are not kept, and checks and applies again all others, those
// of the open group too. A transaction that passes makes the same changes as before: its
// conditions name the versions that it replaces.
func (s *Store) rebase(g *group, err error, keep func(*proposal) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = s.Any()
	s.bytes = s.sealed.bytes
	for _, group := range []*group{g, s.open} {
		if group != nil {
			for _, p := range group.proposals {
				for i := range p.writes {
					c := p.writes[i].collection
					c.tip = s.sealed.root(c)
				}
			}
		}
	}
	s.newEdit(s.edit.kept)
	s.guards.rebase(s.sealed.revision)
	for _, p := range g.proposals {
		if p.err == nil && !keep(p) {
			p.err = err
		}
	}
	s.reapply(g)
	s.sealState(g)
	if s.open != nil {
		s.reapply(s.open)
	}
}

func (s *Store) reapply(g *group) {
	g.rebased = true
	for _, p := range g.proposals {
		if p.err == nil {
			p.err = s.recheck(p)
		}
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			s.apply(&p.writes[i])
		}
		s.guards.claim(p.guards, p.writes[len(p.writes)-1].change.Revision, s.Any().revision)
	}
}

// recheck is decide for a transaction that joined a group. Its guards hold: the claims since
// then may be gone, and there are no others.
func (s *Store) recheck(p *proposal) error {
	for i := range p.writes {
		w := &p.writes[i]
		if w.next {
			continue
		}
		if err := check(w.collection.tip.get(w.key), w.condition); err != nil {
			return &TxnError{WritePart, i, err}
		}
	}
	for i := range p.needs {
		if !s.holds(&p.needs[i]) {
			return &TxnError{NeedPart, i, ErrStale}
		}
	}
	return nil
}
