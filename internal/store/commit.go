package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
)

// # Group commit
//
// A writer checks its condition against the tip and joins the open group, under
// Store.mu. One writer at a time leads: it seals the open group, appends it to
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

// committer is the writer of a store that is its log's only writer. Store.mu guards what has no other comment.
type committer struct {
	store    *Store
	log      Log
	leading  bool     // a writer leads, or was given the lead
	last     Revision // of the tip
	guards   guards
	open     *group // nil when empty
	inFlight *group // sealed, not yet published

	compacted Revision // the floor of the log; only the loop uses it
	inMemory  bool     // Bounds.InMemory of the log
	// mostHistory is what Usage.HistoryBytes may be now, in bytes.
	mostHistory atomic.Int64
	room        room
	looping     sync.Once // starts the loop

	// Scratch space of the leader. written counts the bytes that it appended
	// since the size of the log was last checked.
	entries []Entry
	changes []made
	written int64
}

func newCommitter(s *Store, log Log, b Bounds) *committer {
	c := &committer{store: s, log: log, last: b.Head, compacted: b.Floor, inMemory: b.InMemory}
	c.mostHistory.Store(s.o.MaxDisk)
	return c
}

// mostRecent implements writer: every change that was acknowledged is published.
func (c *committer) mostRecent(context.Context) (*State, error) { return c.store.Any(), nil }

// startLoop starts the loop that compacts, unless it runs.
func (c *committer) startLoop() {
	c.looping.Do(func() {
		c.store.loop.Go(c.compactLoop)
		if f := c.store.o.OnDivergence; f != nil {
			go f()
		}
	})
}

// group is a run of transactions that become durable together. Guarded by
// Store.mu until it is sealed, then owned by its leader.
type group struct {
	proposals []*proposal
	first     [1]*proposal // room for a transaction that comes alone
	writes    int
	bytes     int
	batch               // the state with these writes; none until sealed, or when all failed
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
	made
	key       string
	condition Revision
	next      bool    // Write.Next
	object    *Object // the next version; nil of a deletion
	deleting  bool    // Write.Deleting, or a deletion
}

// wait returns a channel that is closed when the group is done. The caller holds
// Store.mu.
func (g *group) wait() <-chan struct{} {
	if g.done == nil {
		g.done = make(chan struct{})
		if g.over {
			close(g.done)
		}
	}
	return g.done
}

// commit implements writer. A transaction that finds no space waits for room once, if there may be some soon.
func (c *committer) commit(ctx context.Context, t *Txn) ([]*Object, error) {
	made, err := c.commitOnce(ctx, t)
	if errors.Is(err, ErrNoSpace) && c.awaitRoom(ctx) {
		made, err = c.commitOnce(ctx, t)
	}
	return made, err
}

func (c *committer) commitOnce(ctx context.Context, t *Txn) ([]*Object, error) {
	s := c.store
	var one [1]draft
	drafts, size := s.drafts(t, one[:0])
	for {
		s.mu.Lock()
		g, p, err := c.propose(t, drafts, size)
		if p != nil && !c.leading {
			c.leading = true
			c.seal(g)
			s.mu.Unlock()
			c.leadSealed(g)
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
			if err := c.await(ctx, g, done); err != nil {
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
// error, the returned group is full. The caller holds Store.mu.
func (c *committer) propose(t *Txn, drafts []draft, size int) (*group, *proposal, error) {
	s := c.store
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
	if g := c.open; g != nil && (g.writes+len(t.Writes) > maxGroupWrites || g.bytes+size > maxGroupBytes) {
		return g, nil, nil
	}
	if g, err := c.decide(t, drafts); err != nil {
		return g, nil, err
	}
	p := c.proposal(t, drafts)
	g := c.open
	if g == nil {
		g = new(group)
		g.proposals = g.first[:0]
		c.open = g
	}
	if c.leading && g.lead == nil {
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

// decide checks the conditions of a transaction, and the quota, against the tip. With an error it returns the group that
// the error rests on, nil if that is published. The caller holds Store.mu.
func (c *committer) decide(t *Txn, drafts []draft) (*group, error) {
	s := c.store
	if err := t.holds(s.tipObject); err != nil {
		return c.failedOn(t, err), err
	}
	var grown int64
	for i := range t.Writes {
		w := &t.Writes[i]
		before := s.tipObject(w.Collection, w.Key)
		had := s.owned(before)
		if w.Next {
			had = drafts[i-1].takes(w.Key)
		}
		grows := drafts[i].takes(w.Key) - had
		if err := s.fits(w, before != nil || w.Next, grown, grows); err != nil {
			return c.pending(nil), err
		}
		grown += grows
	}
	for i := range t.Guards {
		n := &t.Guards[i]
		if last := c.guards.last(n.Name); last > n.Seen {
			err := &TxnError{GuardPart, i, ErrStale}
			if last <= s.Any().revision {
				return nil, err
			}
			return c.pendingAt(last), err
		}
	}
	return nil, nil
}

// failedOn returns the group that made the object whose condition failed.
func (c *committer) failedOn(t *Txn, err error) *group {
	failed := err.(*TxnError)
	collection, key := "", ""
	if failed.Part == WritePart {
		collection, key = t.Writes[failed.Index].Collection, t.Writes[failed.Index].Key
	} else {
		collection, key = t.Needs[failed.Index].Collection, t.Needs[failed.Index].Key
	}
	return c.restsOn(collection, key, c.store.tipObject(collection, key))
}

// restsOn returns the group that made the tip's version of an object, nil when it is
// published.
func (c *committer) restsOn(collection, key string, tip *Object) *group {
	if tip == c.store.Any().Get(collection, key) {
		return nil
	}
	return c.pending(tip)
}

// proposal makes the changes of a transaction in the tip. The caller holds Store.mu.
func (c *committer) proposal(t *Txn, drafts []draft) *proposal {
	s := c.store
	p := &proposal{needs: t.Needs, guards: t.Guards, deleting: true}
	p.writes = p.first[:0]
	for i := range t.Writes {
		w := &t.Writes[i]
		in := s.collectionLocked(w.Collection)
		before := in.tip.get(w.Key)
		c.last++
		next := proposed{key: w.Key, condition: w.If, next: w.Next, deleting: w.Deleting || w.Value == nil}
		if w.Value != nil {
			o := drafts[i].object(c.last)
			o.Created = c.last
			if before != nil {
				o.Created, o.Key = before.Created, before.Key
			} else {
				o.Key = strings.Clone(w.Key)
			}
			next.object, next.key = o, o.Key
		}
		next.made = made{collection: in, change: &Change{Revision: c.last, Before: before, After: next.object}}
		if w.Origin != nil {
			next.change.origin, next.actorBytes = s.share(w.Origin)
		}
		p.deleting = p.deleting && next.deleting
		p.writes = append(p.writes, next)
		s.apply(in, next.key, before, next.object)
	}
	c.guards.claim(p.guards, c.last, s.Any().revision)
	return p
}

// pending returns the group that made the tip's version of an object; for an absent
// object, the newest group.
func (c *committer) pending(o *Object) *group {
	if o == nil {
		return c.pendingAt(c.last)
	}
	return c.pendingAt(o.Modified)
}

// pendingAt returns the group that a revision belongs to, which is not published.
func (c *committer) pendingAt(r Revision) *group {
	if c.open == nil || c.inFlight != nil && r <= c.store.sealed.revision {
		return c.inFlight
	}
	return c.open
}

// seal closes the open group and makes the state after its writes. The caller holds Store.mu.
func (c *committer) seal(g *group) {
	c.open, c.inFlight = nil, g
	c.sealState(g)
}

func (c *committer) sealState(g *group) {
	last := Revision(0)
	for _, p := range g.proposals {
		if p.err == nil {
			last = p.writes[len(p.writes)-1].change.Revision
		}
	}
	g.batch = c.store.seal(last, g.writes)
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

// await waits until the group is done, and leads it if it gets the lead.
func (c *committer) await(ctx context.Context, g *group, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-g.lead:
		c.lead(g)
		return nil
	case <-ctx.Done():
		// The lead may be handed over later, and a goroutine has to take it.
		go func() {
			select {
			case <-done:
			case <-g.lead:
				c.lead(g)
			}
		}()
		return fmt.Errorf("the write may still happen: %w", ctx.Err())
	}
}

func (c *committer) lead(g *group) {
	c.store.mu.Lock()
	c.seal(g)
	c.store.mu.Unlock()
	c.leadSealed(g)
}

// leadSealed appends a sealed group to the log and publishes it, then hands the lead
// over.
func (c *committer) leadSealed(g *group) {
	defer c.finish(g) // also when OnFatal panics
	s := c.store
	if err := c.append(g); err != nil {
		failure, first := s.setFailure(logFailed(err))
		if g.err = failure; first {
			s.fatal(failure)
		}
	} else if g.state != nil {
		c.publish(g)
		c.startLoop()
		if floor := c.log.Floor(); uint64(floor) > s.floor.Load() {
			s.raiseFloor(floor) // Append raised it to this group
			s.trim(floor)
		}
	}
}

// publish publishes the writes of a group that the log has.
func (c *committer) publish(g *group) {
	g.changes = c.changes[:0]
	for _, p := range g.proposals {
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			g.changes = append(g.changes, p.writes[i].made)
		}
	}
	c.store.publish(&g.batch)
	clear(g.changes)
	if cap(g.changes) <= mostScratch {
		c.changes = g.changes[:0]
	}
	g.changes = nil
}

func (c *committer) finish(g *group) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	c.inFlight = nil
	g.over = true
	if g.done != nil {
		close(g.done)
	}
	if c.open != nil {
		c.open.lead <- struct{}{}
	} else {
		c.leading = false
	}
}

// close implements writer: it refuses further writes and waits for those under way.
func (c *committer) close() {
	s := c.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c.inFlight != nil || c.open != nil {
		g := c.open
		if g == nil {
			g = c.inFlight
		}
		done := g.wait()
		s.mu.Unlock()
		<-done
		s.mu.Lock()
	}
}
