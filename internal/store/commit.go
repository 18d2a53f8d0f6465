package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// # Group commit
//
// A writer checks its condition against the tip and joins the open group, under
// committer.mu. One writer at a time leads: it seals the open group, appends it to
// the log, publishes its state and acknowledges its writes, while the next group
// fills. Then it hands the lead to one writer of that group.
//
//	tip        = the published state + the group in flight + the open group
//	revisions  = published < in flight < open
//
// A writer that comes alone leads at once, on its own goroutine: no hand-off, no
// timer. Writers that come during a sync share the next one.
//
//	writer A   check, join, lead: [seal][append, sync......][publish] ack
//	writer B          check, join                      wait  lead: [seal][append...
//	writer C              check, join                  wait  ................. ack
//
// # What a failed append means
//
// No space: the writes of the group fail, apart from its deletions, which are
// tried once more on their own, since a log may have a reserve for them. The tip
// loses the failed writes, and all writes on top of them (deletions of this
// group, the open group) are checked again: see rebase. Revisions given to failed
// writes stay unused. Each failed Commit then waits for room, if there may be some
// soon, and proposes its write again: see room.go. The leader does not wait, so
// deletions go on meanwhile.
//
// Anything else: the log is unusable. OnFatal is called; no write of any group is
// acknowledged any more.

// These bound a group, and so its memory and the time of one sync. A writer that finds
// the open group full waits for the next.
const (
	maxGroupWrites = 4096
	maxGroupBytes  = 4 << 20 // as the log writes them: with the replaced versions
)

// committer is the part of the store that writes.
type committer struct {
	mu       sync.Mutex
	closing  bool
	failure  error // of the log; not nil: no write is possible any more
	leading  bool  // a writer leads, or was given the lead
	last     Revision
	sealed   *State // the newest sealed state: what the open group is based on
	edit     edit   // of the open group
	bytes    int64  // State.bytes of the tip
	touched  []*collection
	guards   guards
	open     *group // nil when empty
	inFlight *group // sealed, not yet published

	// compacting is held by the one compaction under way.
	compacting sync.Mutex
	compacted  Revision // the floor of the log; guarded by compacting
	// entries is scratch space of the leader. written counts the bytes that it appended
	// since the size of the log was last checked.
	entries []Entry
	written int64
	// actors are those of recent changes.
	actors actors
	// time is the Origin.Time of the newest change that the log has. The leader uses it.
	time time.Time
}

// start starts at a state, with the first token of edits. No node of the state has that token or a later
// one.
func (c *committer) start(s *State, token uint64) {
	c.sealed, c.last, c.bytes = s, s.revision, s.bytes
	c.edit.token = token
}

// group is a run of transactions that become durable together. Guarded by
// committer.mu until it is sealed, then owned by its leader.
type group struct {
	proposals []*proposal
	first     [1]*proposal // room for a transaction that comes alone
	writes    int
	bytes     int
	state     *State    // the state with these writes; nil until sealed, or when all failed
	keep      bool      // history keeps the state
	token     uint64    // of the edit that made the state
	retired   int64     // edit.retired
	rebased   bool      // some of its transactions were checked again, and may have failed
	err       error     // why all failed
	times     *LogTimes // nil: no transaction needs them

	lead chan struct{} // gets a value for the writer that shall lead; nil when the first one led at once
	done chan struct{} // closed when the group is done; nil while no writer waits
	over bool          // the group is done
}

// proposal is a transaction in a group.
type proposal struct {
	writes   []proposed
	first    [1]proposed // room for a transaction of one write
	needs    []Need
	guards   []Guard
	deleting bool // all of its writes are steps of deletions
	err      error
}

// proposed is a write of a proposal.
type proposed struct {
	collection *collection
	key        string
	condition  Revision
	next       bool    // Write.Next
	object     *Object // the next version; nil of a deletion
	deleting   bool    // Write.Deleting, or a deletion
	change     *Change
	actorBytes int64 // the memory of the actor, if it is new
}

// wait returns a channel that is closed when the group is done. The caller holds
// committer.mu.
func (g *group) wait() <-chan struct{} {
	if g.done == nil {
		g.done = make(chan struct{})
		if g.over {
			close(g.done)
		}
	}
	return g.done
}

// Commit is Apply of a transaction of one write. Its errors are ErrExists, ErrNotFound and
// ErrConflict as they are.
func (s *Store) Commit(ctx context.Context, w Write) (*Object, error) {
	made, err := s.Apply(ctx, &Txn{Writes: []Write{w}})
	if err == nil {
		return made[0], nil
	}
	var failed *TxnError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return nil, err
}

// Apply makes a transaction and returns when it is durable and readable. The result has
// an object for each write: the new version or, of a deletion, the last state with the
// revision of the deletion (Object.At). A *TxnError says which condition does not hold. With
// Write.If zero, an existing object is ErrExists. Otherwise an absent one is ErrNotFound,
// and one whose Modified is not If is ErrConflict. A need or a guard that does not hold is
// ErrStale. An error of Options.Sealing.Writable is returned as it is. If the context ends
// early, the transaction may still be made; the error then wraps ctx.Err().
//
// On a Shared, the errors of Shared.Propose are returned as they are, and ErrOverloaded if too many
// transactions are under way. All writes of a transaction then have one revision, and those that
// have others with Next behind them have the object of the last one. A client that has seen a part
// of the events of a revision, and continues a watch from there, misses the rest, as with
// kube-apiserver: so a transaction should not write several objects that one watch selects.
func (s *Store) Apply(ctx context.Context, t *Txn) ([]*Object, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if i := t.repeated(); i >= 0 {
		return nil, &TxnError{WritePart, i, ErrStale}
	}
	if err := s.writable(t); err != nil {
		return nil, err
	}
	began := time.Now()
	var made []*Object
	var err error
	if s.follower != nil {
		made, err = s.follower.commit(ctx, t)
	} else if made, err = s.commit(ctx, t); errors.Is(err, ErrNoSpace) && s.awaitRoom(ctx) {
		made, err = s.commit(ctx, t)
	}
	switch {
	case err == nil:
		s.count(t, time.Since(began))
	case errors.Is(err, ErrNoSpace):
		s.room.refused.Add(1)
	}
	return made, err
}

// commit is one try of Apply.
func (s *Store) commit(ctx context.Context, t *Txn) ([]*Object, error) {
	var one [1]draft
	drafts, size := s.drafts(t, one[:0])
	for {
		s.mu.Lock()
		g, p, err := s.propose(t, drafts, size)
		if p != nil && !s.leading {
			s.leading = true
			s.seal(g)
			s.mu.Unlock()
			s.leadSealed(g)
			return g.outcome(t, p)
		}
		if g == nil {
			s.mu.Unlock()
			s.noteFull(err)
			return nil, err
		}
		done := g.wait()
		s.mu.Unlock()
		if p != nil {
			if err := s.follow(ctx, g, done); err != nil {
				return nil, err
			}
			return g.outcome(t, p)
		}
		// The error rests on the group g, or g is full.
		select {
		case <-done:
		case <-ctx.Done():
			return nil, fmt.Errorf("the write was not made: %w", ctx.Err())
		}
		if err != nil && g.err == nil && !g.rebased {
			s.noteFull(err)
			return nil, err
		}
	}
}

// drafts copies the values of a transaction, and returns their size.
func (s *Store) drafts(t *Txn, all []draft) ([]draft, int) {
	size, next := 0, s.Any().revision
	for i := range t.Writes {
		w := &t.Writes[i]
		next++
		if w.Value == nil {
			all = append(all, draft{})
			continue
		}
		d := newDraft(w.Value, w.RevisionAt, next)
		if s.o.packs(w.Collection, len(w.Value)) {
			d.packed = pack(w.Value)
		}
		size += len(d.value)
		all = append(all, d)
	}
	return all, size
}

// propose checks a transaction and adds it to the open group. It returns no proposal in two
// cases. With an error, the error rests on the returned group, if there is one. Without an
// error, the returned group is full. The caller holds s.mu.
func (s *Store) propose(t *Txn, drafts []draft, size int) (*group, *proposal, error) {
	switch {
	case s.failure != nil:
		return nil, nil, s.failure
	case s.closing:
		return nil, nil, ErrClosed
	}
	for i := range t.Writes {
		w := &t.Writes[i]
		if before := s.collectionLocked(w.Collection).tip.get(w.Key); before != nil {
			size += before.Len()
		}
		if w.Next {
			size += len(drafts[i-1].value)
		}
	}
	if g := s.open; g != nil && (g.writes+len(t.Writes) > maxGroupWrites || g.bytes+size > maxGroupBytes) {
		return g, nil, nil
	}
	if g, err := s.decide(t, drafts); err != nil {
		return g, nil, err
	}
	p := s.proposal(t, drafts)
	g := s.open
	if g == nil {
		g = new(group)
		g.proposals = g.first[:0]
		s.open = g
	}
	if s.leading && g.lead == nil {
		g.lead = make(chan struct{}, 1)
	}
	if t.Times != nil && g.times == nil {
		g.times = new(LogTimes)
	}
	g.proposals = append(g.proposals, p)
	g.writes += len(t.Writes)
	g.bytes += size
	return g, p, nil
}

// decide checks the conditions of a transaction against the tip. With an error it returns the
// group that the error rests on, nil if that is published. The caller holds s.mu.
func (s *Store) decide(t *Txn, drafts []draft) (*group, error) {
	var grown int64
	for i := range t.Writes {
		w := &t.Writes[i]
		c := s.collectionLocked(w.Collection)
		before, had := c.tip.get(w.Key), int64(0)
		switch {
		case w.Next:
			had = drafts[i-1].takes(w.Key)
		default:
			had = s.owned(before)
			if err := check(before, w.If); err != nil {
				return s.restsOn(c, w.Key, before), &TxnError{WritePart, i, err}
			}
		}
		grows := drafts[i].takes(w.Key) - had
		if err := s.fits(w, before != nil || w.Next, grown, grows); err != nil {
			return s.pending(nil), err
		}
		grown += grows
	}
	for i := range t.Needs {
		n := &t.Needs[i]
		if s.holds(n) {
			continue
		}
		c := s.collectionLocked(n.Collection)
		return s.restsOn(c, n.Key, c.tip.get(n.Key)), &TxnError{NeedPart, i, ErrStale}
	}
	for i := range t.Guards {
		n := &t.Guards[i]
		if last := s.guards.last(n.Name); last > n.Seen {
			err := &TxnError{GuardPart, i, ErrStale}
			if last <= s.Any().revision {
				return nil, err
			}
			return s.pendingAt(last), err
		}
	}
	return nil, nil
}

// restsOn returns the group that made the tip's version of an object, nil when it is
// published.
func (s *Store) restsOn(c *collection, key string, tip *Object) *group {
	if tip == s.Any().root(c).get(key) {
		return nil
	}
	return s.pending(tip)
}

// proposal makes the changes of a transaction in the tip. The caller holds s.mu.
func (s *Store) proposal(t *Txn, drafts []draft) *proposal {
	p := &proposal{needs: t.Needs, guards: t.Guards, deleting: true}
	p.writes = p.first[:0]
	for i := range t.Writes {
		w := &t.Writes[i]
		c := s.collectionLocked(w.Collection)
		before := c.tip.get(w.Key)
		s.last++
		made := proposed{collection: c, key: w.Key, condition: w.If, next: w.Next, deleting: w.Deleting || w.Value == nil}
		if w.Value != nil {
			o := drafts[i].object(s.last)
			o.Created = s.last
			if before != nil {
				o.Created, o.Key = before.Created, before.Key
			} else {
				o.Key = strings.Clone(w.Key)
			}
			made.object, made.key = o, o.Key
		}
		made.change = &Change{Revision: s.last, Before: before, After: made.object}
		if w.Origin != nil {
			from := *w.Origin
			if from.Actor != nil {
				from.Actor, made.actorBytes = s.actors.share(from.Actor)
			}
			made.change.origin = from
		}
		p.deleting = p.deleting && made.deleting
		p.writes = append(p.writes, made)
		s.apply(&made)
	}
	s.guards.claim(p.guards, s.last, s.Any().revision)
	return p
}

// pending returns the group that made the tip's version of an object; for an absent
// object, the newest group.
func (s *Store) pending(o *Object) *group {
	if o == nil {
		return s.pendingAt(s.last)
	}
	return s.pendingAt(o.Modified)
}

// pendingAt returns the group that a revision belongs to, which is not published.
func (s *Store) pendingAt(r Revision) *group {
	if s.open == nil || s.inFlight != nil && r <= s.sealed.revision {
		return s.inFlight
	}
	return s.open
}

// apply makes the change in the tip.
func (s *Store) apply(p *proposed) {
	s.bytes += objectBytes(p.object) - s.owned(p.change.Before)
	c := p.collection
	if p.change.Before.isUnreadable() {
		delete(s.standIns, p.change.Before)
	}
	if p.object.isUnreadable() {
		if s.standIns == nil {
			s.standIns = map[*Object]*collection{}
		}
		s.standIns[p.object] = c
	}
	if !c.touched {
		c.touched = true
		s.touched = append(s.touched, c)
	}
	if p.object != nil {
		c.tip, _ = s.edit.put(c.tip, p.object)
	} else {
		c.tip, _ = s.edit.remove(c.tip, p.key)
	}
}

// seal closes the open group and makes the state after its writes.
func (s *Store) seal(g *group) {
	s.open, s.inFlight = nil, g
	s.sealState(g)
}

func (s *Store) sealState(g *group) {
	last := Revision(0)
	for _, p := range g.proposals {
		if p.err == nil {
			last = p.writes[len(p.writes)-1].change.Revision
		}
	}
	s.sealAt(g, last)
}

// sealAt makes the state of a group at a revision; zero: all of the group failed.
func (s *Store) sealAt(g *group, r Revision) {
	g.token, g.retired = s.edit.token, s.edit.retired
	g.state = nil
	if r != 0 {
		g.state = &State{revision: r, indexes: *s.indexes.Load(), bytes: s.bytes}
		g.state.roots = s.sealed.roots.with(s.touched)
		s.sealed = g.state
		g.keep = s.history.wantsKept(g.writes)
	}
	kept := s.edit.kept
	if g.keep {
		kept = g.token
	}
	s.newEdit(kept)
}

func (s *Store) newEdit(kept uint64) {
	s.edit = edit{token: s.edit.token + 1, kept: kept}
	for _, c := range s.touched {
		c.touched = false
	}
	s.touched = s.touched[:0]
}

// outcome is the result of a transaction of a group that is done.
func (g *group) outcome(t *Txn, p *proposal) ([]*Object, error) {
	if t.Times != nil && g.times != nil {
		*t.Times = *g.times
	}
	switch {
	case g.err != nil:
		return nil, g.err
	case p.err != nil:
		return nil, p.err
	}
	made := make([]*Object, len(p.writes))
	for i := range p.writes {
		if w := &p.writes[i]; w.object != nil {
			made[i] = w.object
		} else {
			made[i] = w.change.Gone()
		}
	}
	return made, nil
}

// follow waits until the group is done, and leads it if it gets the lead.
func (s *Store) follow(ctx context.Context, g *group, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-g.lead:
		s.lead(g)
		return nil
	case <-ctx.Done():
		// The lead may be handed over later, and a goroutine has to take it.
		go func() {
			select {
			case <-done:
			case <-g.lead:
				s.lead(g)
			}
		}()
		return fmt.Errorf("the write may still happen: %w", ctx.Err())
	}
}

func (s *Store) lead(g *group) {
	s.mu.Lock()
	s.seal(g)
	s.mu.Unlock()
	s.leadSealed(g)
}

// leadSealed appends a sealed group to the log and publishes it, then hands the lead
// over.
func (s *Store) leadSealed(g *group) {
	defer s.finish(g) // also when OnFatal panics
	if err := s.append(g); err != nil {
		s.fail(g, err)
	} else if g.state != nil {
		s.publish(g)
		s.looping.Do(s.startLoop)
		if floor := s.log.Floor(); uint64(floor) > s.floor.Load() {
			s.raiseFloor(floor) // Append raised it to this group
			s.trim(floor)
		}
	}
}

func (s *Store) finish(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = nil
	g.over = true
	if g.done != nil {
		close(g.done)
	}
	if s.open != nil {
		s.open.lead <- struct{}{}
	} else {
		s.leading = false
	}
}

// fail ends all writing: the log cannot be trusted any more.
func (s *Store) fail(g *group, err error) {
	s.mu.Lock()
	first := s.failure == nil
	if first {
		s.failure = fmt.Errorf("the log failed: %w", err)
	}
	if g != nil {
		g.err = s.failure
	}
	s.mu.Unlock()
	if first {
		s.fatal(s.failure)
	}
}

func (s *Store) fatal(err error) {
	if s.o.OnFatal == nil {
		panic(fmt.Sprintf("store: %v", err))
	}
	s.o.OnFatal(err)
}

// publish makes the group readable: it updates the history and the state, then wakes the
// readers that wait.
func (s *Store) publish(g *group) {
	s.history.mu.Lock() // no cursor joins a topic in between: see Cursor
	notified := s.record(g)
	s.published.Store(g.state)
	feeds := s.history.feeds
	s.history.mu.Unlock()
	s.announce(notified, feeds, g.state)
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

// close refuses further writes and waits for those under way.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for c.inFlight != nil || c.open != nil {
		g := c.open
		if g == nil {
			g = c.inFlight
		}
		done := g.wait()
		c.mu.Unlock()
		<-done
		c.mu.Lock()
	}
}
