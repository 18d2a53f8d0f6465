package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// # Group commit
//
// The committer writes to a log that no one else writes to. So it knows the newest version of each object, decides the
// conditions of transactions itself, and gives the revisions. Transactions that arrive during a sync of the log share the next
// one.
//
// A transaction is checked against the newest state, which has the transactions that are not published yet, and joins the
// open group. One transaction at a time leads: its goroutine seals the open group, appends it to the log, publishes its
// changes and acknowledges its transactions, while the next group fills. Then it hands the lead to a transaction of that
// group. A transaction that arrives alone leads at once, on its own goroutine: no hand-off, no timer.
//
//	request A   check, join, lead: [seal][append, sync......][publish] ack
//	request B          check, join                      wait  lead: [seal][append...
//	request C              check, join                  wait  ................. ack
//
// Invariants, whenever mu is not held:
//
//   - newest state = published state + group in flight + open group. The objects of the two groups are in pending
//   - revisions: published < in flight < open. Each write has one of its own, in the order of joining
//   - at most one group is in flight. Its leader alone appends and publishes
//   - leading is true while a transaction leads, or was given the lead
//   - nothing is published or acknowledged before the log has it
//
// Example: a is at revision 7 and 7 is published. A transaction updates a and leads, with revision 8 in flight. Meanwhile an
// update of a that names 7 fails: it gets ErrConflict when 8 is published, not before, since a power cut can still undo 8.
// An update that names 8 joins the open group as revision 9.
//
// # Errors of the log
//
// ErrNoSpace: the transactions of the group fail, apart from deletions, which are appended once more on their own, since a log
// may have a reserve for them. Transactions that were checked with a failed one (deletions of this group, the open group) are
// checked again: see rebase. The revisions of failed writes stay unused. Each failed transaction then waits for room, if there
// may be some soon, and joins once more: see room.go. The leader does not wait, so deletions go on meanwhile.
//
// Any other error: the log is unusable. OnFatal is called, and no transaction is acknowledged any more.

// These bound a group, and so its memory and the time of one sync. A transaction that finds
// the open group full waits for the next.
const (
	maxGroupWrites = 4096
	maxGroupBytes  = 4 << 20 // as the log writes them: with the replaced versions
)

// committer is the writer of a store that is its log's only writer.
type committer struct {
	store *Store
	log   Log

	mu       sync.Mutex // guards the fields up to bytes
	closing  bool
	failure  error    // of the log; not nil: no write is possible any more
	leading  bool     // a transaction leads, or was given the lead
	last     Revision // of the newest write
	guards   guards
	open     *group // nil when empty
	inFlight *group // sealed, not yet published
	// pending has the newest versions of the objects that the two groups write. It may have some that are published.
	pending map[objectName]version
	bytes   int64 // State.bytes with both groups

	// The fields from here on have no lock.
	compacted Revision // the floor of the log; only the loop uses it
	inMemory  bool     // Bounds.InMemory of the log
	// mostHistory is the current upper limit of Usage.HistoryBytes, in bytes.
	mostHistory atomic.Int64
	room        room
	looping     sync.Once // starts the loop

	// Scratch space of the leader. written counts the bytes that it appended
	// since the size of the log was last checked.
	entries []Entry
	changes []made
	written int64
	// time is the Origin.Time of the newest change that the log has. It never decreases.
	time time.Time
}

// objectName names an object of any collection.
type objectName struct{ collection, key string }

// version is an object as a write has made it.
type version struct {
	object   *Object // nil: it is deleted
	revision Revision
}

func newCommitter(s *Store, log Log, b Bounds) *committer {
	c := &committer{store: s, log: log, last: b.Head, compacted: b.Floor, inMemory: b.InMemory, time: b.Time}
	c.bytes, c.pending = s.Any().bytes, map[objectName]version{}
	c.mostHistory.Store(s.o.MaxDisk)
	return c
}

// object returns the newest version of an object, nil when there is none. The caller holds mu.
func (c *committer) object(collection, key string) *Object {
	if len(c.pending) > 0 {
		if v, ok := c.pending[objectName{collection, key}]; ok {
			return v.object
		}
	}
	return c.store.Any().Get(collection, key)
}

// apply makes a write the newest version of its object. The caller holds mu.
func (c *committer) apply(w *memberWrite) {
	c.pending[objectName{w.collection.name, w.key}] = version{w.object, w.change.Revision}
	c.bytes += objectBytes(w.object) - c.store.owned(w.change.Before)
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
// committer.mu until it is sealed, then owned by its leader.
type group struct {
	members []*member
	first   [1]*member // room for a transaction that comes alone
	writes  int
	bytes   int
	last    Revision  // of the newest write; zero until sealed, or when all failed
	rebased bool      // some of its transactions were checked again, and may have failed
	err     error     // why all failed
	times   *LogTimes // nil: no transaction needs them

	lead chan struct{} // gets a value for the transaction that shall lead; nil when the first one led at once
	done chan struct{} // closed when the group is done; nil while no transaction waits
	over bool          // the group is done
}

// member is a transaction in a group.
type member struct {
	writes   []memberWrite
	first    [1]memberWrite // room for a transaction of one write
	needs    []Need
	guards   []Guard
	deleting bool // all of its writes are steps of deletions
	err      error
}

// memberWrite is a write of a member.
type memberWrite struct {
	made
	key       string
	condition Revision
	next      bool    // Write.Next
	object    *Object // the next version; nil of a deletion
	deleting  bool    // Write.Deleting, or a deletion
}

// finished returns a channel that is closed when the group is done. The caller holds
// committer.mu.
func (g *group) finished() <-chan struct{} {
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
		c.mu.Lock()
		g, p, err := c.join(t, drafts, size)
		if p != nil && !c.leading {
			c.leading = true
			c.seal(g)
			c.mu.Unlock()
			c.leadSealed(g)
			return g.outcome(t, p)
		}
		if g == nil {
			c.mu.Unlock()
			return nil, err
		}
		done := g.finished()
		c.mu.Unlock()
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
			return nil, err
		}
	}
}

// join checks a transaction and adds it to the open group. It returns no member in two
// cases. With an error, the error rests on the returned group, if there is one. Without an
// error, the returned group is full. The caller holds mu.
func (c *committer) join(t *Txn, drafts []draft, size int) (*group, *member, error) {
	switch {
	case c.failure != nil:
		return nil, nil, c.failure
	case c.closing:
		return nil, nil, ErrClosed
	}
	for i := range t.Writes {
		w := &t.Writes[i]
		if before := c.object(w.Collection, w.Key); before != nil {
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
	p := c.change(t, drafts)
	g := c.open
	if g == nil {
		g = new(group)
		g.members = g.first[:0]
		c.open = g
	}
	if c.leading && g.lead == nil {
		g.lead = make(chan struct{}, 1)
	}
	if t.Times != nil && g.times == nil {
		g.times = new(LogTimes)
	}
	g.members = append(g.members, p)
	g.writes += len(t.Writes)
	g.bytes += size
	return g, p, nil
}

// decide checks the conditions of a transaction, and the quota, against the newest state. With an error it returns the group
// that the error rests on, nil if that is published. The caller holds mu.
func (c *committer) decide(t *Txn, drafts []draft) (*group, error) {
	s := c.store
	if err := t.holds(c.object); err != nil {
		return c.failedOn(t, err), err
	}
	if err := s.fits(t, c.bytes, c.object, func(i int) int { return drafts[i].held() }); err != nil {
		return c.pendingAt(c.last), err
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
	if v, ok := c.pending[objectName{collection, key}]; ok && v.revision > c.store.Any().revision {
		return c.pendingAt(v.revision)
	}
	return nil // it is published
}

// change makes the changes of a transaction. The caller holds mu.
func (c *committer) change(t *Txn, drafts []draft) *member {
	s := c.store
	p := &member{needs: t.Needs, guards: t.Guards, deleting: true}
	p.writes = p.first[:0]
	for i := range t.Writes {
		w := &t.Writes[i]
		before := c.object(w.Collection, w.Key)
		c.last++
		next := memberWrite{key: w.Key, condition: w.If, next: w.Next, deleting: w.Deleting || w.Value == nil}
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
		next.made = s.stage(w.Collection, &Change{Revision: c.last, Before: before, After: next.object}, w.Origin)
		p.deleting = p.deleting && next.deleting
		p.writes = append(p.writes, next)
		c.apply(&p.writes[i])
	}
	c.guards.claim(p.guards, c.last, s.Any().revision)
	return p
}

// pendingAt returns the group that a revision belongs to, which is not published.
func (c *committer) pendingAt(r Revision) *group {
	if c.open == nil || c.inFlight != nil && r <= c.inFlight.last {
		return c.inFlight
	}
	return c.open
}

// seal closes the open group. The caller holds mu.
func (c *committer) seal(g *group) {
	c.open, c.inFlight = nil, g
	g.end()
}

// end sets the revision that the group ends with.
func (g *group) end() {
	g.last = 0
	for _, p := range g.members {
		if p.err == nil {
			g.last = p.writes[len(p.writes)-1].change.Revision
		}
	}
}

// outcome is the result of a transaction of a group that is done.
func (g *group) outcome(t *Txn, p *member) ([]*Object, error) {
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
	c.mu.Lock()
	c.seal(g)
	c.mu.Unlock()
	c.leadSealed(g)
}

// leadSealed appends a sealed group to the log and publishes it, then hands the lead
// over.
func (c *committer) leadSealed(g *group) {
	defer c.finish(g) // also when OnFatal panics
	s := c.store
	if err := c.append(g); err != nil {
		failure, first := c.fail(err)
		if g.err = failure; first {
			s.fatal(failure)
		}
	} else if g.last != 0 {
		c.publish(g)
		c.startLoop()
		if floor := c.log.Floor(); uint64(floor) > s.floor.Load() {
			s.raiseFloor(floor) // Append raised it to this group
			s.trim(floor)
		}
	}
}

// fail refuses all writes from now on. It returns the first error of the log, for which the caller calls Store.fatal.
func (c *committer) fail(err error) (failure error, first bool) {
	failure, first = c.store.fail(logFailed(err))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = failure
	return failure, first
}

// publish publishes the writes of a group that the log has.
func (c *committer) publish(g *group) {
	changes := c.changes[:0]
	for _, p := range g.members {
		if p.err != nil {
			continue
		}
		for i := range p.writes {
			changes = append(changes, p.writes[i].made)
		}
	}
	c.store.publish(changes, g.last, c.time)
	clear(changes)
	if cap(changes) <= mostScratch {
		c.changes = changes[:0]
	}
}

// finish ends the part of a leader.
func (c *committer) finish(g *group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight = nil
	c.forget(g)
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

// forget removes the writes of a group from pending: they are published, or have failed. The caller holds mu.
func (c *committer) forget(g *group) {
	if c.open == nil && len(c.pending) > mostScratch {
		c.pending = map[objectName]version{} // a map does not shrink
		return
	}
	for _, p := range g.members {
		for i := range p.writes {
			w := &p.writes[i]
			if name := (objectName{w.collection.name, w.key}); c.pending[name].revision == w.change.Revision {
				delete(c.pending, name)
			}
		}
	}
}

// verify implements writer. Without a group, the newest state is the published one.
func (c *committer) verify() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil || c.open != nil || c.inFlight != nil {
		return nil
	}
	if n := len(c.pending); n > 0 || c.leading {
		return fmt.Errorf("%d objects are pending without a group; leading is %t", n, c.leading)
	}
	if published := c.store.Any(); c.bytes != published.bytes || c.last < published.revision {
		return fmt.Errorf("the newest state has %d bytes at revision %d, and the published one %d bytes at revision %d", c.bytes, c.last, published.bytes, published.revision)
	}
	return nil
}

// close implements writer: it refuses further writes and waits for those under way.
func (c *committer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for c.inFlight != nil || c.open != nil {
		g := c.open
		if g == nil {
			g = c.inFlight
		}
		done := g.finished()
		c.mu.Unlock()
		<-done
		c.mu.Lock()
	}
}
