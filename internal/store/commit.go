package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
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

// A group is bounded, so that memory and the time of one sync are. A writer that
// finds the open group full waits for the next.
const (
	maxGroupWrites = 4096
	maxGroupBytes  = 4 << 20 // as the log writes them: what is replaced, too
)

// committer is the part of the store that writes.
type committer struct {
	mu       sync.Mutex
	closing  bool
	failure  error // the log failed; nothing can be written any more
	leading  bool  // somebody leads, or was given the lead
	last     Revision
	sealed   *State // the newest sealed state: what the open group is based on
	edit     edit   // of the open group
	bytes    int64  // State.bytes of the tip
	touched  []*collection
	open     *group // nil when empty
	inFlight *group // sealed, not yet published

	// compacting is held to compact, so that one at a time does.
	compacting sync.Mutex
	compacted  Revision // the floor of the log; guarded by compacting
	// entries is scratch of the leader; written are the bytes that it appended
	// since it had the size of the log looked at.
	entries []Entry
	written int64
}

func (c *committer) start(s *State) {
	c.sealed, c.last, c.bytes = s, s.revision, s.bytes
	c.edit.token = 1
}

// group is a run of writes that become durable together. Guarded by
// committer.mu until it is sealed, then owned by its leader.
type group struct {
	proposals []*proposal
	first     [1]*proposal // room for a writer that comes alone
	bytes     int
	state     *State // the state with these writes; nil until sealed, or when all failed
	keep      bool   // history keeps the state
	token     uint64 // of the edit that made the state
	retired   int64  // edit.retired
	rebased   bool   // some of its writes were checked again, and may have failed
	err       error  // why all failed

	lead chan struct{} // gets a value for the writer that shall lead; nil when the first one led at once
	done chan struct{} // closed when the group is done; nil while nobody waits
	over bool          // the group is done
}

// proposal is a write on its way.
type proposal struct {
	collection *collection
	key        string
	condition  Revision
	object     *Object // the next version; nil of a deletion
	deleting   bool    // Write.Deleting, or a deletion
	change     *Change
	err        error
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

// draft is the copy of the bytes of a write, with room for the digits of its
// revision. Its length is guessed before the revision is known.
type draft struct {
	value  []byte
	at     int
	digits int
	packed []byte // nil: it is not packed
}

func newDraft(value []byte, at int, next Revision) draft {
	d := draft{at: at, digits: digits(next)}
	d.value = make([]byte, len(value)+d.digits)
	copy(d.value, value[:at])
	copy(d.value[at+d.digits:], value[at:])
	return d
}

// object is the version with the revision.
func (d *draft) object(r Revision) *Object {
	o := &Object{Modified: r, RevisionAt: int32(d.at), Held: d.splice(r)}
	if d.packed != nil {
		fresh.add(o, o.Held)
		o.setPacked(d.packed)
	}
	return o
}

// held is how many bytes the object will hold.
func (d *draft) held() int {
	if d.packed != nil {
		return len(d.packed)
	}
	return len(d.value)
}

// splice puts the revision in.
func (d *draft) splice(r Revision) []byte {
	if n := digits(r); n != d.digits {
		value := make([]byte, len(d.value)-d.digits+n)
		copy(value, d.value[:d.at])
		copy(value[d.at+n:], d.value[d.at+d.digits:])
		d.value, d.digits = value, n
	}
	strconv.AppendUint(d.value[d.at:d.at], uint64(r), 10)
	return d.value
}

// Commit makes one change and returns when it is durable and readable. The
// result is the new version; of a deletion, the last state as of the revision of
// the deletion (Object.At). With Write.If zero an existing object is
// ErrExists; otherwise an absent one is ErrNotFound, and one whose Modified is
// not If is ErrConflict. When the context ends early the write may still happen;
// the error says so by wrapping ctx.Err().
func (s *Store) Commit(ctx context.Context, w Write) (*Object, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	o, err := s.commit(ctx, w)
	if errors.Is(err, ErrNoSpace) && s.awaitRoom(ctx) {
		o, err = s.commit(ctx, w)
	}
	return o, err
}

// commit is one try of Commit.
func (s *Store) commit(ctx context.Context, w Write) (*Object, error) {
	var d, then draft
	if w.Value != nil {
		d = newDraft(w.Value, w.RevisionAt, s.Any().revision+1)
		if s.o.packs(w.Collection, len(w.Value)) {
			d.packed = pack(w.Value)
		}
	}
	if w.Then != nil {
		then = newDraft(w.Then.Value, w.Then.RevisionAt, s.Any().revision+2)
		if s.o.packs(w.Collection, len(w.Then.Value)) {
			then.packed = pack(w.Then.Value)
		}
	}
	for {
		s.mu.Lock()
		g, p, err := s.propose(&w, &d, &then)
		if p != nil && w.Then != nil {
			s.follows(g, p, &then)
		}
		if p != nil && !s.leading {
			s.leading = true
			s.seal(g)
			s.mu.Unlock()
			s.leadSealed(g)
			return g.outcome(p)
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
			return g.outcome(p)
		}
		// What was found rests on the group g, or g is full.
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

// What every log can keep, in bytes. The log does not check these again: a violation
// there is fatal.
const (
	// MaxKey bounds a collection's name, and the key of a new object.
	MaxKey = 4 << 10
	// MaxValue bounds the value of an object. It is far above what a request can bring,
	// and far below the 4 GiB that a batch of Pebble holds.
	MaxValue = 64 << 20
)

// Check returns an error when no log can keep the write: an *UnfitError for what can
// follow from what a client sent, another error for a mistake of the caller. Commit
// begins with it, before the write joins a group; a dry-run calls it alone.
func (w *Write) Check() error {
	switch {
	case w.Collection == "":
		return errors.New("a write needs a collection")
	case w.Value == nil && w.If == 0:
		return errors.New("a deletion needs the revision of what it deletes")
	case w.Value == nil && w.Then != nil:
		return errors.New("nothing follows a deletion")
	case w.Key == "":
		return w.unfit("a key is not empty", false)
	case strings.IndexByte(w.Key, 0) >= 0:
		return w.unfit("a key has no zero byte", false)
	case strings.IndexByte(w.Collection, 0) >= 0 || len(w.Collection) > MaxKey:
		return w.unfit(fmt.Sprintf("the collection's name has a zero byte or more than %d bytes", MaxKey), false)
	case len(w.Key) > MaxKey && w.If == 0: // what is there was written before there was a bound
		return w.unfit(fmt.Sprintf("a key has at most %d bytes", MaxKey), false)
	}
	if err := w.checkValue(w.Value, w.RevisionAt); err != nil || w.Then == nil {
		return err
	}
	return w.checkValue(w.Then.Value, w.Then.RevisionAt)
}

func (w *Write) checkValue(value []byte, at int) error {
	switch {
	case len(value) > MaxValue:
		return w.unfit(fmt.Sprintf("a value has at most %d bytes", MaxValue), true)
	case value != nil && (at < 0 || at > len(value)):
		return fmt.Errorf("RevisionAt is %d in a value of %d bytes", at, len(value))
	}
	return nil
}

func (w *Write) unfit(why string, size bool) error {
	const shown = 64 // bytes
	return &UnfitError{Key: w.Key[:min(len(w.Key), shown)], Why: why, Size: size}
}

// propose checks the write and joins the open group. Without a proposal: when
// there is an error, it rests on the group, if there is one; when there is none,
// the group is full. Then is what follows. The caller holds s.mu.
func (s *Store) propose(w *Write, d, then *draft) (*group, *proposal, error) {
	switch {
	case s.failure != nil:
		return nil, nil, s.failure
	case s.closing:
		return nil, nil, ErrClosed
	}
	c := s.collectionLocked(w.Collection)
	before := c.tip.get(w.Key)
	size := len(d.value) + len(then.value)
	if before != nil {
		size += before.Len()
	}
	if g := s.open; g != nil && (len(g.proposals) >= maxGroupWrites || g.bytes+size > maxGroupBytes) {
		return g, nil, nil
	}
	if err := check(before, w.If); err != nil {
		if before == s.Any().root(c).get(w.Key) {
			return nil, nil, err
		}
		return s.pending(before), nil, err
	}
	last := d
	if w.Then != nil {
		last = then
	}
	if err := s.fits(w, before, last); err != nil {
		return s.pending(nil), nil, err
	}
	s.last++
	p := &proposal{collection: c, key: w.Key, condition: w.If, deleting: w.Deleting || w.Value == nil}
	if w.Value != nil {
		p.object = d.object(s.last)
		p.object.Created = s.last
		if before != nil {
			p.object.Created, p.object.Key = before.Created, before.Key
		} else {
			p.object.Key = strings.Clone(w.Key)
		}
		p.key = p.object.Key
	}
	p.change = &Change{Revision: s.last, Before: before, After: p.object}
	g := s.open
	if g == nil {
		g = new(group)
		g.proposals = g.first[:0]
		s.open = g
	}
	if s.leading && g.lead == nil {
		g.lead = make(chan struct{}, 1)
	}
	g.proposals = append(g.proposals, p)
	g.bytes += size
	s.apply(p)
	return g, p, nil
}

// follows adds what follows a proposal, on which it rests, to its group. The caller
// holds s.mu.
func (s *Store) follows(g *group, first *proposal, d *draft) {
	s.last++
	before := first.object
	p := &proposal{collection: first.collection, key: first.key, condition: before.Modified}
	p.object = d.object(s.last)
	p.object.Key, p.object.Created = before.Key, before.Created
	p.change = &Change{Revision: s.last, Before: before, After: p.object}
	g.proposals = append(g.proposals, p)
	g.bytes += before.Len()
	s.apply(p)
}

// check compares the condition of a write with what is there.
func check(before *Object, condition Revision) error {
	switch {
	case condition == 0 && before != nil:
		return ErrExists
	case condition != 0 && before == nil:
		return ErrNotFound
	case condition != 0 && before.Modified != condition:
		return ErrConflict
	}
	return nil
}

// pending returns the group that the tip's version of an object comes from; of
// an absent object, the newest.
func (s *Store) pending(o *Object) *group {
	if s.open == nil || s.inFlight != nil && o != nil && o.Modified <= s.sealed.revision {
		return s.inFlight
	}
	return s.open
}

// apply makes the change in the tip.
func (s *Store) apply(p *proposal) {
	s.bytes += objectBytes(p.object) - objectBytes(p.change.Before)
	c := p.collection
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

// seal closes the open group, and makes the state that its writes lead to.
func (s *Store) seal(g *group) {
	s.open, s.inFlight = nil, g
	s.sealState(g)
}

func (s *Store) sealState(g *group) {
	g.token, g.retired = s.edit.token, s.edit.retired
	g.state = nil
	for _, p := range g.proposals {
		if p.err == nil {
			g.state = &State{revision: p.change.Revision, collections: *s.names.Load(), bytes: s.bytes}
		}
	}
	if g.state != nil {
		g.state.roots = s.sealed.roots.with(s.touched)
		s.sealed = g.state
		g.keep = s.history.wantsKept(len(g.proposals))
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

// outcome is the answer to one write of a group that is done.
func (g *group) outcome(p *proposal) (*Object, error) {
	switch {
	case g.err != nil:
		return nil, g.err
	case p.err != nil:
		return nil, p.err
	case p.object != nil:
		return p.object, nil
	}
	return p.change.Gone(), nil
}

// follow waits until the group is done, and leads it if it is told to.
func (s *Store) follow(ctx context.Context, g *group, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-g.lead:
		s.lead(g)
		return nil
	case <-ctx.Done():
		// Somebody has to be there when the lead is handed over.
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

// leadSealed takes a sealed group through the log and publishes it, then hands
// the lead over.
func (s *Store) leadSealed(g *group) {
	defer s.finish(g) // also when OnFatal panics
	if err := s.append(g); err != nil {
		s.fail(g, err)
	} else if g.state != nil {
		s.publish(g)
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
		s.fatal(err)
	}
}

func (s *Store) fatal(err error) {
	if s.o.OnFatal == nil {
		panic(fmt.Sprintf("store: the log failed: %v", err))
	}
	s.o.OnFatal(err)
}

// publish makes the group readable: history, state, then the readers who wait.
func (s *Store) publish(g *group) {
	s.history.mu.Lock() // nobody joins in between: see Cursor
	woken := s.record(g)
	s.published.Store(g.state)
	feeds := s.history.feeds
	s.history.mu.Unlock()
	s.arrival.announce()
	for _, t := range woken {
		t.wake()
	}
	for _, f := range feeds {
		f.wake()
	}
	clear(woken)
	s.history.woken = woken[:0]
	s.trim(0)
	s.watchQuota(g.state.bytes)
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
