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
// cursor that has seen that change has nothing to read, whatever was written
// elsewhere.
//
// No wakeup is lost, and no change is passed over:
//
//	publisher   record the change; topic.last = r; published = state; notify
//	cursor      P = published; last = topic.last;
//	            last <= position: nothing selected up to P is left, position = P
//	            else: read the records in (position, P]
//
// If the cursor saw a P with the change in it, then topic.last was set before. If
// it did not, the notification comes after its look, and finds it parked, or about to
// look once more. A cursor joins its topic before the change is recorded, or after it is
// published, never in between: the publisher would not know that it has to be notified.
//
// A topic also knows the change before its last one. A cursor that has seen that
// one goes to the last one directly, past all that was written elsewhere meanwhile.
//
// # Batches
//
// A topic notifies its watchers in batches, one batch at a time. A change that is
// published during a batch notifies no one: the end of the batch begins the next one.
// Under load each watcher therefore runs once for several changes, and notifying costs
// a writer nothing. A batch ends when all watchers that it woke have read (and, in a fanout, have
// delivered). They send afterwards, so a slow client delays no batch. A topic with many
// cursors also keeps up to two milliseconds between batches. The first change after a
// quiet moment never waits, and neither does a change with few watchers.
//
// A cursor that was busy when its batch began reads before it waits again, unless
// another batch is due: then it takes part in that one.

// topic is a set of keys that cursors select. A topic without cursors is
// forgotten.
type topic struct {
	prefix string
	// last is the newest change that the topic selects, or a revision above it.
	last atomic.Uint64
	// previous is the change before last, or a revision above it. It is written before
	// last and read after it: next to an older last it can only be too new.
	previous atomic.Uint64
	marked   bool // it is in the list of those to notify; only the committing writer uses it

	// running is how many of those that the batch woke have not read yet, plus one while
	// the batch begins.
	running atomic.Int32
	again   atomic.Bool // something was published since the batch began

	mu       sync.Mutex
	cursors  []*Cursor
	batch    uint64      // the number of the batch
	earliest time.Time   // for the next batch; zero: at once
	pause    *time.Timer // until then; nil: there was none yet
}

// Changes that many watch are worth gathering: where a topic has gatherFrom cursors or
// more, the next batch begins gatherEach for each of them after the one before, gatherMost
// at most. With a change every millisecond, an event for each of 100 or 1,000 watches costs
// a tenth less CPU with two milliseconds than with none, and comes no later.
const (
	gatherFrom = 32
	gatherEach = 20 * time.Microsecond
	gatherMost = 2 * time.Millisecond
)

// selects reports whether the topic has the key.
func (t *topic) selects(key string) bool {
	switch {
	case t.prefix == "":
		return true
	case t.prefix[len(t.prefix)-1] == '/':
		return strings.HasPrefix(key, t.prefix)
	}
	return key == t.prefix
}

// note records a change that the topic selects.
func (t *topic) note(r Revision) {
	if t.last.Load() == uint64(r) {
		return // another change of the revision
	}
	t.previous.Store(t.last.Load())
	t.last.Store(uint64(r))
}

// notify begins a batch. If one is under way, its end begins the next: it looks at again
// after running became zero, so again is set first here.
func (t *topic) notify() {
	t.marked = false
	t.again.Store(true)
	t.next()
}

// done ends one watcher's part in the batch.
func (t *topic) done() {
	if t.running.Add(-1) == 0 {
		t.next()
	}
}

// next begins a batch if there is something new and no batch is under way.
func (t *topic) next() {
	for t.again.Load() && t.running.Load() == 0 {
		t.mu.Lock()
		if t.again.Load() && t.running.Load() == 0 && !t.paused() {
			t.begin()
		}
		t.mu.Unlock()
	}
}

// paused delays the next batch if it is too early for it. The lock is held.
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
		t.pause = time.AfterFunc(left, t.done)
	} else {
		t.pause.Reset(left)
	}
	return true
}

// begin begins a batch: it wakes one cursor of each fanout that waits. The lock is held.
func (t *topic) begin() {
	t.running.Store(1)
	t.batch++
	t.again.Store(false)
	t.earliest = time.Time{}
	for _, c := range t.cursors {
		if c.fanout.Load().wake(t) && len(t.cursors) >= gatherFrom && t.earliest.IsZero() {
			t.earliest = time.Now().Add(min(gatherMost, time.Duration(len(t.cursors))*gatherEach))
		}
	}
	t.running.Add(-1)
}

// Cursor is a position in the shared history. It holds no queue and no copy: a
// reader that lags costs others nothing, until the changes that it has not read fall out
// of the history. One goroutine uses a cursor; while it is in Wait, another one of its
// fanout may use the cursor through its Reader.
type Cursor struct {
	store      *Store
	collection *collection
	replica    *Replica // nil: it reads up to the head
	topic      *topic   // nil once closed
	epoch      uint32   // of the collection, when it began
	position   Revision // position.revision, counting only changes that it selects
	index      int      // in topic.cursors

	fanout  atomic.Pointer[Fanout]
	reader  Reader        // nil: it is alone in its fanout
	woken   atomic.Bool   // by Wake; Wait has not returned since
	within  int32         // position.within
	ready   chan struct{} // gets a value when a parked cursor is not parked any more
	leads   bool          // it then is the leader of its fanout
	wokenBy *topic        // whose batch made it the leader; nil: none
}

// Watch starts a cursor that begins with the first change after the revision. A revision
// below the history is an *ExpiredError. One that is not reached yet is allowed: the
// cursor waits for it. Prefix selects keys: "" all of them, "namespace/" one namespace,
// "namespace/name" or "name" one object. No other change wakes the cursor.
func (s *Store) Watch(collection, prefix string, after Revision) (*Cursor, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if floor := Revision(s.floor.Load()); after < floor {
		return nil, &ExpiredError{Revision: after, Floor: floor}
	}
	c := &Cursor{store: s, collection: s.collection(collection), position: after, ready: make(chan struct{}, 1)}
	c.fanout.Store(new(Fanout))
	s.history.mu.Lock()
	c.epoch = c.collection.epoch.Load()
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
		// Its last change is not known, so take one that cannot be too old.
		t.last.Store(uint64(c.newest))
		t.previous.Store(uint64(c.newest))
		if c.topics == nil {
			c.topics = map[string]*topic{}
		}
		c.topics[t.prefix] = t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	cursor.topic, cursor.index = t, len(t.cursors)
	t.cursors = append(t.cursors, cursor)
}

// changedAfter reports whether the collection has changed after a revision.
func (c *recent) changedAfter(r Revision) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.newest > r
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
	t.cursors[cursor.index], moved.index = moved, cursor.index
	t.cursors[end] = nil
	t.cursors = t.cursors[:end]
	if end == 0 {
		delete(c.topics, t.prefix)
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

// Wake wakes the cursors of a collection although nothing changed in it, so that their
// readers check their other conditions.
func (s *Store) Wake(collection string) {
	if c := (*s.names.Load())[collection]; c != nil {
		c.wakeAll()
	}
}

// Wake makes Wait return: the one under way, or else the next one. It is for readers that
// also wait for something else. It is safe for concurrent use, also after Close.
func (c *Cursor) Wake() {
	c.woken.Store(true)
	c.fanout.Load().release(c)
}

// Share adds the cursor to a fanout, whose readers deliver for each other: see Fanout. It is
// called at most once, before the first Wait.
func (c *Cursor) Share(g *Fanout, r Reader) {
	c.reader = r
	c.fanout.Store(g)
}

// Wait waits until there may be something for TryNext, or for Wake. It may return without
// a reason. Meanwhile others of its fanout may read the cursor through its Reader.
func (c *Cursor) Wait() {
	g := c.fanout.Load()
	for c.topic != nil && g.park(c) {
		<-c.ready
		if !c.leads || !g.lead(c) {
			break
		}
	}
	c.woken.Store(false)
}

// Ready reports whether there may be something for TryNext: Wait would return at once, or
// with the next batch.
func (c *Cursor) Ready() bool { return c.topic == nil || c.woken.Load() || c.behind() }

// due reports whether Wait would return at once.
func (c *Cursor) due() bool { return c.woken.Load() || c.behind() && !c.topic.again.Load() }

// behind reports whether something may be left to read.
func (c *Cursor) behind() bool {
	return c.head() > c.position && Revision(c.topic.last.Load()) > c.position
}

// head is the revision up to which the cursor may read.
func (c *Cursor) head() Revision {
	if c.replica != nil {
		return c.replica.Revision()
	}
	return c.store.Any().revision
}

// ended reports whether the cursor has nothing to read any more.
func (c *Cursor) ended() bool {
	return c.topic == nil || c.store.closed.Load() || c.replica != nil && c.replica.ended.Load()
}

// TryNext fills buf with the changes that follow, and returns their number: zero when
// there is nothing yet, see Wait. It splits a revision only if that does not fit into buf,
// see Whole. An *ExpiredError means that the reader was too slow and the history went on
// without it, ErrClosed that the store was closed. It reads changes that left memory back
// from the log; the context bounds that.
func (c *Cursor) TryNext(ctx context.Context, buf []*Change) (int, error) {
	for {
		if c.ended() {
			return 0, ErrClosed
		}
		if c.epoch != c.collection.epoch.Load() {
			return 0, &ExpiredError{Revision: c.position, Floor: c.head()}
		}
		if n, ok := c.TryRecent(buf); ok {
			return n, nil
		}
		n, more, err := c.readBack(ctx, buf)
		if n > 0 || err != nil {
			return n, err
		}
		if more {
			c.Wake() // there is more to look at, but others come first
			return 0, nil
		}
	}
}

// TryRecent is TryNext for changes that are in memory. If it is not ok, only TryNext can
// tell.
func (c *Cursor) TryRecent(buf []*Change) (n int, ok bool) {
	if c.epoch != c.collection.epoch.Load() {
		return 0, false
	}
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

// pending reports whether something that the cursor selects may be left to read, up to
// a revision. If not, it moves the cursor to the published revision.
func (c *Cursor) pending() (upTo Revision, pending bool) {
	upTo = c.head() // before the look at last
	if c.replica != nil && c.replica.lag.Load() != 0 && Revision(c.topic.last.Load()) > upTo {
		c.replica.late.Add(1)
	}
	if upTo <= c.position {
		return upTo, false
	}
	if Revision(c.topic.last.Load()) <= c.position {
		c.position, c.within = upTo, 0
		return upTo, false
	}
	return upTo, true
}

// read fills buf from memory and moves the cursor. It returns false if some of the changes
// that follow left memory.
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
	from, skip := cursor.position, cursor.within
	if last := Revision(cursor.topic.last.Load()); skip == 0 && last > from && Revision(cursor.topic.previous.Load()) <= from {
		from = min(last-1, upTo)
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	if from < c.trimmed {
		return 0, false
	}
	var at reading
	i := c.after(from)
	for ; i < c.records.len() && n < len(buf); i++ {
		r := c.records.at(i)
		if r.revision > upTo {
			break
		}
		if at.look(r.revision, n); skip > 0 {
			skip--
			continue
		}
		if namespace == r.namespace && prefix != "" && key == 0 || key == r.key && key != 0 || prefix == "" {
			if cursor.topic.selects(r.change.key()) {
				buf[n] = r.change
				n++
			}
		}
	}
	if n < len(buf) {
		cursor.position, cursor.within = upTo, 0
		return n, true
	}
	next := Revision(0)
	if i < c.records.len() {
		next = c.records.at(i).revision
	}
	kept, p := at.stop(next, n)
	clear(buf[kept:n])
	cursor.position, cursor.within = p.revision, p.within
	return kept, true
}

// readBack fills buf from the log with changes that left memory. It looks at a limited
// number of the collection's changes; more reports that there may be others.
func (c *Cursor) readBack(ctx context.Context, buf []*Change) (n int, more bool, err error) {
	s := c.store
	c.collection.mu.RLock()
	upTo := c.collection.trimmed
	c.collection.mu.RUnlock()
	if c.replica != nil {
		upTo = min(upTo, c.replica.Revision())
	}
	p := position{c.position, c.within}
	err = s.batch(ctx, s.old.batches, func(ctx context.Context) (err error) {
		if floor := Revision(s.floor.Load()); p.revision < floor {
			return &ExpiredError{Revision: p.revision, Floor: floor}
		}
		n, more, err = s.readLog(ctx, c.collection.name, &p, upTo, len(buf), oldBatch*16, func(n int, e *Entry) bool {
			if !c.topic.selects(e.Key) {
				return false
			}
			buf[n] = e.change()
			return true
		})
		return err
	})
	c.position, c.within = p.revision, p.within
	if n > 0 {
		err = nil // the caller gets these changes, and the error with the next call
	}
	return n, more, err
}

// Revision is how far the cursor has read: no change that it selects is left at or below
// this revision. It also grows with writes to other collections, so a bookmark can
// report it. It never passes the newest durable revision.
func (c *Cursor) Revision() Revision {
	if c.topic == nil {
		return c.position
	}
	upTo, _ := c.pending()
	return min(c.position, upTo)
}

// Whole reports whether the cursor stands between two revisions. Otherwise the last changes that
// it returned filled the buffer, and others of their revision may follow.
func (c *Cursor) Whole() bool { return c.within == 0 }

// Close releases the cursor. It is idempotent.
func (c *Cursor) Close() {
	if c.topic != nil {
		c.collection.leave(c)
		if c.replica != nil {
			c.replica.leave(c)
		}
		c.topic = nil
	}
}
