package store

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// # Cursors
//
// A cursor is a revision and a topic: the keys it selects. Cursors of the same
// keys share the topic. A topic knows the last change that it selects, so a
// cursor that has seen it needs to look at nothing: it is as far as the published
// state, whatever was written elsewhere.
//
// No wakeup is lost, and no change is passed over:
//
//	publisher   record the change; topic.last = r; published = state; wake
//	cursor      P = published; last = topic.last;
//	            last <= position: nothing selected up to P is left, position = P
//	            else: read the records in (position, P]
//
// If the cursor saw a P with the change in it, then topic.last was set before. If
// it did not, the wake comes after its look, and finds it waiting, or about to look
// once more. A cursor joins its topic before the change is recorded, or after it is
// published, never in between: the publisher would not know that it has to be woken.
//
// A topic knows the change before its last one, too. A cursor that has seen that
// goes to the last one straight, past all that was written elsewhere meanwhile.
//
// # Rounds
//
// A topic wakes its cursors in rounds. What is published while some of those that were
// woken have not run yet wakes nobody: the last one to run begins the next round. So
// under load each cursor runs once for several changes, where it would run once for
// each, and waking costs a writer nothing. A round lasts as long as it takes to run who
// is woken (and, of a bundle, to deliver), not to send what they read: a slow client holds
// nobody up. Rounds of many
// keep a distance of up to two milliseconds, too; the first change after a quiet moment
// waits for nothing, nor does any where few wait. A cursor that was not called, because
// its reader was at work, looks for itself when that comes back, unless a round is to come
// anyway: then it takes what the others take, in one go.
//
// # Bundles
//
// Readers that write to the same place, the watches of one connection, may share it: a
// round then wakes one of those of a bundle that wait, and that one, its leader, delivers
// to the others what they select while they sleep on, and flushes once for all of them.
// To wake a goroutine, and to have it wait again, costs as much as all else that an event
// does to a watch. A reader that the leader cannot serve (there is no room for what it
// selects, it ends, it has to read the log) is woken, and goes on by itself:
//
//	round       waiting -> called: the leader is woken, the others are lent to it
//	leader      Deliver for itself and each that is lent: waiting again, or shaken
//	            the round is over for all of them; Flush
//
// A leader whose place is full leaves the rest to the next one, and flushes.

// topic is a set of keys that cursors select. A topic without cursors is
// forgotten.
type topic struct {
	prefix string
	// last is the newest change that the topic selects, or a revision above it.
	last atomic.Uint64
	// previous is the one before last, or a revision above it. It is set before
	// last, and read after it: together with a last that is older, it can only be
	// too new.
	previous atomic.Uint64
	marked   bool // is among those to wake; used by the leader alone

	// running is how many cursors of the round were woken and did not run yet, and one
	// while they are being woken.
	running atomic.Int32
	again   atomic.Bool // there is something to wake for since the round began

	mu       sync.Mutex
	cursors  []*Cursor
	bundles  map[any]*bundle // nil until there is one
	leaders  []*Cursor       // of the round that is beginning
	earliest time.Time       // for the next round; zero: at once
	pause    *time.Timer     // until then; nil: there was none yet
}

// bundle is the cursors of a topic that one of them may be read for. The topic's lock
// guards it, and while a round is under way its leader alone has what is lent.
type bundle struct {
	with   any       // its name
	size   int       // its cursors
	leader *Cursor   // of the round that is beginning
	lent   []*Cursor // those of the round that its leader has not served yet
}

// Changes that many wait for are worth gathering: a round that wakes gatherFrom cursors
// or more begins gatherEach for each of them behind the one before, gatherMost at most.
// With a change every millisecond, an event for each of 100 or 1,000 watches costs a
// tenth less CPU with two milliseconds than with none, and comes no later.
const (
	gatherFrom = 32
	gatherEach = 20 * time.Microsecond
	gatherMost = 2 * time.Millisecond
)

// selects tells whether the topic has the key.
func (t *topic) selects(key string) bool {
	switch {
	case t.prefix == "":
		return true
	case t.prefix[len(t.prefix)-1] == '/':
		return strings.HasPrefix(key, t.prefix)
	}
	return key == t.prefix
}

// note takes a change that the topic selects.
func (t *topic) note(r Revision) {
	t.previous.Store(t.last.Load())
	t.last.Store(uint64(r))
}

// wake begins a round, or has another one follow the one that is under way: whoever ends
// it looks at again after running is zero, and here it is the other way round.
func (t *topic) wake() {
	t.marked = false
	t.again.Store(true)
	t.next()
}

// ran ends a cursor's part in the round.
func (t *topic) ran() {
	if t.running.Add(-1) == 0 {
		t.next()
	}
}

// next begins a round if there is something to wake for, and none is under way.
func (t *topic) next() {
	for t.again.Load() && t.running.Load() == 0 {
		t.mu.Lock()
		if t.again.Load() && t.running.Load() == 0 && !t.paused() {
			t.round()
		}
		t.mu.Unlock()
	}
}

// paused has the next round wait if it is too early for it. The lock is held.
func (t *topic) paused() bool {
	if t.earliest.IsZero() {
		return false
	}
	left := time.Until(t.earliest)
	if left <= 0 {
		return false
	}
	t.running.Store(1) // until then
	if t.pause == nil {
		t.pause = time.AfterFunc(left, t.ran)
	} else {
		t.pause.Reset(left)
	}
	return true
}

// round wakes those that wait. The lock is held.
func (t *topic) round() {
	t.running.Store(1)
	t.again.Store(false)
	woken := 0
	for _, c := range t.cursors {
		if !c.state.CompareAndSwap(waiting, called) {
			continue
		}
		woken++
		switch b := c.bundle; {
		case b == nil:
			t.call(c)
		case b.leader == nil:
			b.leader = c
			t.leaders = append(t.leaders, c)
		default:
			b.lent = append(b.lent, c)
		}
	}
	for _, c := range t.leaders {
		c.bundle.leader = nil
		t.call(c)
	}
	clear(t.leaders)
	t.leaders = t.leaders[:0]
	t.earliest = time.Time{}
	if woken >= gatherFrom {
		t.earliest = time.Now().Add(min(gatherMost, time.Duration(woken)*gatherEach))
	}
	t.running.Add(-1)
}

// call wakes one that a round has called, and will run.
func (t *topic) call(c *Cursor) {
	t.running.Add(1)
	c.ready <- struct{}{}
}

// Reader is who reads a cursor that shares where its changes go.
type Reader interface {
	// Deliver reads the cursor with TryRecent, on behalf of the goroutine that waits for
	// it, and passes on what there is. It does not wait, and does not panic: all readers
	// of the topic depend on it.
	Deliver() Delivery
	// Flush has what was delivered to the readers of a bundle leave. It may wait.
	Flush()
}

// Delivery is what became of a Deliver.
type Delivery int

const (
	Delivered Delivery = iota // nothing is left
	Full                      // nothing is left, and it is time for Flush
	Declined                  // the goroutine that waits has to look
)

// Cursor is a place in the shared history. It holds no queue and no copy: a
// reader that lags costs nobody anything, until what it has not read falls out
// of the history. One goroutine uses a cursor; while that is in Wait, a leader may use it
// through its Reader.
type Cursor struct {
	store      *Store
	collection *collection
	topic      *topic // nil once closed
	state      atomic.Int32
	nudged     atomic.Bool   // by Wake
	ready      chan struct{} // gets a value when the state is no longer waiting
	position   Revision      // all that it selects up to here was read
	place      int           // in topic.cursors
	reader     Reader        // nil: it is of no bundle; set by Share, as the bundle is
	bundle     *bundle
}

// The state of a cursor.
const (
	awake   int32 = iota // it looks for itself before it waits
	waiting              // until a round, or Wake
	called               // by a round, of which it is; its leader may be reading it
	shaken               // by Wake
)

// Watch starts a cursor at a place in the log: its first change is the first one
// after the revision. A revision below the history is *ExpiredError; one that is
// not reached yet is allowed, the cursor then waits for it. Prefix selects keys:
// "" all of them, "namespace/" one namespace, "namespace/name" or "name" that one
// object; the cursor wakes for nothing else.
func (s *Store) Watch(collection, prefix string, after Revision) (*Cursor, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if floor := Revision(s.floor.Load()); after < floor {
		return nil, &ExpiredError{Revision: after, Floor: floor}
	}
	c := &Cursor{store: s, collection: s.collection(collection), position: after, ready: make(chan struct{}, 1)}
	s.history.mu.Lock()
	c.collection.join(c, prefix)
	s.history.mu.Unlock()
	if s.closed.Load() { // Close may have missed it
		c.Wake()
	}
	return c, nil
}

// join adds the cursor to its topic.
func (c *recent) join(cursor *Cursor, prefix string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[prefix]
	if t == nil {
		t = &topic{prefix: strings.Clone(prefix)}
		// Which change was its last, nobody knows.
		t.last.Store(uint64(c.newest))
		t.previous.Store(uint64(c.newest))
		if c.topics == nil {
			c.topics = map[string]*topic{}
		}
		c.topics[t.prefix] = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	cursor.topic, cursor.place = t, len(t.cursors)
	t.cursors = append(t.cursors, cursor)
}

// leave takes the cursor out of its topic.
func (c *recent) leave(cursor *Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := cursor.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	end := len(t.cursors) - 1
	moved := t.cursors[end]
	t.cursors[cursor.place], moved.place = moved, cursor.place
	t.cursors[end] = nil
	t.cursors = t.cursors[:end]
	if end == 0 {
		delete(c.topics, t.prefix)
	}
	if b := cursor.bundle; b != nil {
		if b.size--; b.size == 0 {
			delete(t.bundles, b.with)
		}
	}
}

// wakeAll wakes every cursor of the collection.
func (c *recent) wakeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.topics {
		t.mu.Lock()
		for _, cursor := range t.cursors {
			cursor.Wake()
		}
		t.mu.Unlock()
	}
}

// Wake has the cursors of a collection look again, though nothing changed in it: those
// who wait find out what else concerns them.
func (s *Store) Wake(collection string) {
	if c := (*s.names.Load())[collection]; c != nil {
		c.wakeAll()
	}
}

// Wake has Wait return, the one under way or else the next one: the reader waits for
// something else, too. It is safe for concurrent use, also after Close.
func (c *Cursor) Wake() {
	c.nudged.Store(true)
	if c.state.CompareAndSwap(waiting, shaken) {
		c.ready <- struct{}{}
	}
}

// Share has the cursors of a topic that are shared with the same thing be read for each
// other: see Bundles. It is called once, before the first Wait.
func (c *Cursor) Share(with any, r Reader) {
	t := c.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bundles[with]
	if b == nil {
		if t.bundles == nil {
			t.bundles = map[any]*bundle{}
		}
		b = &bundle{with: with}
		t.bundles[with] = b
	}
	b.size++
	c.bundle, c.reader = b, r
}

// Wait waits until there may be something for TryNext, or for Wake. It may return for
// nothing. Meanwhile others may read the cursor for its Reader, if it has one.
func (c *Cursor) Wait() {
	for c.topic != nil {
		position := c.position // from now on others may read on
		c.state.Store(waiting)
		// What a round is to come for can wait for it: that finds the cursor waiting.
		if (c.nudged.Load() || c.behind(position) && !c.topic.again.Load()) && c.state.CompareAndSwap(waiting, awake) {
			c.nudged.Store(false)
			return
		}
		<-c.ready
		nudged := c.nudged.Swap(false)
		switch {
		case c.state.Swap(awake) != called:
			return
		case c.bundle == nil:
			c.topic.ran()
			return
		case !c.lead() || nudged: // one that was called to lead may have been nudged before
			return
		}
	}
}

// lead does a leader's part in a round, and tells whether it has nothing else to do.
func (c *Cursor) lead() (done bool) {
	b := c.bundle
	d := c.reader.Deliver()
	done = d != Declined
	for d != Full && len(b.lent) > 0 {
		other := b.take()
		d = other.reader.Deliver()
		other.served(d)
	}
	if len(b.lent) > 0 {
		c.topic.call(b.take())
	}
	c.topic.ran()
	c.reader.Flush()
	return done
}

// take takes one of those that are lent.
func (b *bundle) take() *Cursor {
	end := len(b.lent) - 1
	c := b.lent[end]
	b.lent[end] = nil
	b.lent = b.lent[:end]
	return c
}

// served has a cursor that was lent wait again, or wakes it.
func (c *Cursor) served(d Delivery) {
	if d == Declined {
		c.state.Store(shaken)
		c.ready <- struct{}{}
		return
	}
	c.state.Store(waiting)
	if c.nudged.Load() && c.state.CompareAndSwap(waiting, shaken) { // it was not waiting when it was
		c.ready <- struct{}{}
	}
}

// Ready tells whether there may be something for TryNext: Wait would return at once, or
// with the next round.
func (c *Cursor) Ready() bool {
	return c.topic == nil || c.nudged.Load() || c.behind(c.position)
}

// behind tells whether something may be left to read for a cursor that has read up to a
// revision.
func (c *Cursor) behind(position Revision) bool {
	return c.store.Any().revision > position && Revision(c.topic.last.Load()) > position
}

// Next fills buf with the changes that follow, at least one, and waits for them
// until the context ends. It returns how many there are. *ExpiredError: the
// reader was too slow, and the history went on without it; ErrClosed: the store
// was closed. Changes that are no longer in memory are read back from the log.
func (c *Cursor) Next(ctx context.Context, buf []*Change) (int, error) {
	defer context.AfterFunc(ctx, c.Wake)()
	for {
		n, err := c.TryNext(ctx, buf)
		if n > 0 || err != nil || len(buf) == 0 {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		c.Wait()
	}
}

// TryNext is Next without waiting: zero when there is nothing. The context bounds
// what is read back from the log.
func (c *Cursor) TryNext(ctx context.Context, buf []*Change) (int, error) {
	for {
		if c.topic == nil || c.store.closed.Load() {
			return 0, ErrClosed
		}
		if n, ok := c.TryRecent(buf); ok {
			return n, nil
		}
		n, more, err := c.readBack(ctx, buf)
		if n > 0 || err != nil {
			return n, err
		}
		if more {
			c.Wake() // there is more to look at, after others had their turn
			return 0, nil
		}
	}
}

// TryRecent is TryNext for what is in memory. When it is not ok, TryNext has to look.
func (c *Cursor) TryRecent(buf []*Change) (n int, ok bool) {
	for {
		upTo, pending := c.pending()
		if !pending || len(buf) == 0 {
			return 0, true
		}
		n, found := c.collection.read(c, upTo, buf)
		if n > 0 || !found {
			return n, found
		}
	}
}

// pending tells whether something that the cursor selects may be left to read,
// up to a revision. If not, the cursor goes on to the published revision.
func (c *Cursor) pending() (upTo Revision, pending bool) {
	upTo = c.store.Any().revision // before the look at last
	if upTo <= c.position {
		return upTo, false
	}
	if Revision(c.topic.last.Load()) <= c.position {
		c.position = upTo
		return upTo, false
	}
	return upTo, true
}

// read fills buf from memory, and moves the cursor; false when memory does not
// have all that follows.
func (c *recent) read(cursor *Cursor, upTo Revision, buf []*Change) (n int, found bool) {
	prefix := cursor.topic.prefix
	var namespace, key uint32
	switch {
	case prefix == "":
	case prefix[len(prefix)-1] == '/':
		namespace = hash(prefix)
	default:
		key = hash(prefix)
	}
	from := cursor.position
	if last := Revision(cursor.topic.last.Load()); last > from && Revision(cursor.topic.previous.Load()) <= from {
		from = min(last-1, upTo)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if from < c.trimmed {
		return 0, false
	}
	for i := c.after(from); i < c.records.len() && n < len(buf); i++ {
		r := c.records.at(i)
		if r.revision > upTo {
			break
		}
		if namespace == r.namespace && prefix != "" && key == 0 || key == r.key && key != 0 || prefix == "" {
			if cursor.topic.selects(r.change.key()) {
				buf[n] = r.change
				n++
			}
		}
		cursor.position = r.revision
	}
	if n < len(buf) {
		cursor.position = upTo
	}
	return n, true
}

// readBack fills buf from the log, with changes that left memory. It looks at
// one batch of the collection's changes at most; more tells that there may be more.
func (c *Cursor) readBack(ctx context.Context, buf []*Change) (n int, more bool, err error) {
	s := c.store
	c.collection.mu.RLock()
	upTo := c.collection.trimmed
	c.collection.mu.RUnlock()
	after, seen := c.position, 0
	err = s.batch(ctx, true, func(ctx context.Context) error {
		if floor := Revision(s.floor.Load()); after < floor {
			return &ExpiredError{Revision: after, Floor: floor}
		}
		for e, err := range s.log.Changes(ctx, c.collection.name, after, upTo) {
			if err != nil {
				return s.readError(err)
			}
			seen++
			if c.topic.selects(e.Key) {
				buf[n] = &Change{Revision: e.Revision, Before: e.Before, After: e.Object}
				n++
			}
			c.position = e.Revision
			if n == len(buf) || seen == oldBatch*16 {
				more = true
				return nil
			}
		}
		c.position = upTo
		return nil
	})
	if n > 0 {
		err = nil // what was read is delivered; the error comes again
	}
	return n, more, err
}

// Revision is how far the cursor has seen: no change that it selects at or
// below this revision is left to read. It grows with writes to other collections
// too, so a bookmark can say it. It never passes what is durable.
func (c *Cursor) Revision() Revision {
	if c.topic == nil {
		return c.position
	}
	upTo, _ := c.pending()
	return min(c.position, upTo)
}

// Close releases the cursor. It is idempotent.
func (c *Cursor) Close() {
	if c.topic != nil {
		c.collection.leave(c)
		c.topic = nil
	}
}
