package store

import (
	"context"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/store/notify"
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
//	publisher   record the change; topic.Note(r); published = state; notify
//	cursor      P = published; last = topic.Last();
//	            last <= position: nothing selected up to P is left, position = P
//	            else: read the records in (position, P]
//
// If the cursor saw a P with the change in it, then the topic had it before. If
// it did not, the notification comes after its look, and finds it parked, or about to
// look once more. A cursor joins its topic before the change is recorded, or after it is
// published, never in between: the publisher would not know that it has to be notified.
//
// A topic also knows the change before its last one. A cursor that has seen that
// one goes to the last one directly, past all that was written elsewhere meanwhile.
//
// Package notify wakes the cursors of a topic.

// Cursor is a position in the shared history. It holds no queue and no copy: a
// reader that lags costs others nothing, until the changes that it has not read fall out
// of the history. One goroutine uses a cursor; while it is in Wait, another one of its
// fanout may use the cursor through its Reader.
//
// Wait, Wake, Ready and Share are those of notify.Waiter: Wait returns when TryNext may have something. Wake may also be called
// after Close.
type Cursor struct {
	notify.Waiter
	store      *Store
	collection *collection
	horizon    horizon  // nil: it reads up to the head
	topic      *topic   // nil once closed
	epoch      uint32   // of the collection, when it began
	position   Revision // position.revision, counting only changes that it selects
	within     int32    // position.within
}

// horizon bounds how far a cursor reads: see Replica.
type horizon interface {
	// Revision is the newest revision that the cursor may read.
	Revision() Revision
	// hides is called when the cursor does not read a change that it selects.
	hides()
	// over reports whether the cursor has ended.
	over() bool
	// leave is called when the cursor is closed.
	leave(*Cursor)
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
	c := &Cursor{store: s, collection: s.collection(collection), position: after}
	notify.Start(&c.Waiter, c)
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
		t.Init(uint64(c.newest))
		if c.topics == nil {
			c.topics = map[string]*topic{}
		}
		c.topics[t.prefix] = t
	}
	cursor.topic = t
	t.Join(&cursor.Waiter)
}

// leave takes the cursor out of its topic.
func (c *recent) leave(cursor *Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := cursor.topic; t.Leave(&cursor.Waiter) {
		delete(c.topics, t.prefix)
	}
}

// Behind reports whether something may be left to read.
func (c *Cursor) Behind() bool {
	return c.head() > c.position && c.last() > c.position
}

// last is the newest change that the topic selects, or a revision above it.
func (c *Cursor) last() Revision { return Revision(c.topic.Last()) }

// head is the revision up to which the cursor may read.
func (c *Cursor) head() Revision {
	if c.horizon != nil {
		return c.horizon.Revision()
	}
	return c.store.Any().revision
}

// ended reports whether the cursor has nothing to read any more.
func (c *Cursor) ended() bool {
	return c.topic == nil || c.store.closed.Load() || c.horizon != nil && c.horizon.over()
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
	if c.horizon != nil && c.last() > upTo {
		c.horizon.hides()
	}
	if upTo <= c.position {
		return upTo, false
	}
	if c.last() <= c.position {
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
	if last := cursor.last(); skip == 0 && last > from && Revision(cursor.topic.Previous()) <= from {
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
			if cursor.topic.selects(r.change.Key()) {
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
	if c.horizon != nil {
		upTo = min(upTo, c.horizon.Revision())
	}
	p := position{c.position, c.within}
	err = s.old.batch(ctx, s.old.batches, func(ctx context.Context) (err error) {
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
		if c.horizon != nil {
			c.horizon.leave(c)
		}
		c.topic = nil
	}
}
