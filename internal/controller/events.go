package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const eventCollection = "events"

// events deletes events a while after their last write. While the server runs, that is the
// time of the write. The store does not keep it, so for events written before the start it
// is the newest time in the event itself: creation, last occurrence, last change of its
// managed fields.
//
// All events live equally long, so they expire in the order of their writes: a write moves
// the event to the end of a list.
type events struct {
	l     *Loops
	queue *queue

	mu   sync.Mutex
	list *expiries
}

// expiries is the list of events in the order of their expiry. It is a ring, so that
// removing an entry is cheap.
type expiries struct {
	ring expiry // before the first and after the last
	of   map[string]*expiry
}

// expiry is an entry, for exactly the version that was written.
type expiry struct {
	key          string
	revision     store.Revision
	due          int64 // Unix time in nanoseconds
	before, next *expiry
}

func newExpiries() *expiries {
	x := &expiries{of: map[string]*expiry{}}
	x.ring.before, x.ring.next = &x.ring, &x.ring
	return x
}

// first returns the entry that expires first; nil when there is none.
func (x *expiries) first() *expiry {
	if len(x.of) == 0 {
		return nil
	}
	return x.ring.next
}

// put moves or adds an event to the end: no other expires later.
func (x *expiries) put(key string, revision store.Revision, due int64) {
	x.remove(key)
	if last := x.ring.before; last != &x.ring { // the wall clock may have gone back
		due = max(due, last.due)
	}
	e := &expiry{key, revision, due, x.ring.before, &x.ring}
	e.before.next, e.next.before = e, e
	x.of[key] = e
}

// remove removes the entry of an event.
func (x *expiries) remove(key string) {
	if e := x.of[key]; e != nil {
		e.before.next, e.next.before = e.next, e.before
		delete(x.of, key)
	}
}

// lull is the least time between two looks at the list, so that a stream of events is not a
// stream of timers.
const lull = time.Second

// expireItem is the item for a look at the list.
var expireItem = item{object: object{collection: eventCollection}}

func newEvents(l *Loops, q *queue) loop { return &events{l: l, queue: q, list: newExpiries()} }

func (e *events) begin(s *store.State) {
	now := e.l.now()
	var all []expiry
	for o := range s.Snapshot(eventCollection).Scan("", "") {
		written := lastWrite(o)
		if written.IsZero() || written.After(now) {
			written = now
		}
		all = append(all, expiry{key: o.Key, revision: o.Modified, due: written.Add(e.l.c.EventTTL).UnixNano()})
	}
	slices.SortFunc(all, func(a, b expiry) int { return cmp.Compare(a.due, b.due) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = newExpiries()
	for _, x := range all {
		e.list.put(x.key, x.revision, x.due)
	}
	e.plan(now, 0)
}

// lastWrite returns the newest time in an event, zero when it has none.
func lastWrite(o *store.Object) time.Time {
	e, err := registry.Decode[corev1.Event](o)
	if err != nil {
		return time.Time{}
	}
	newest := e.CreationTimestamp.Time
	later := func(t time.Time) {
		if t.After(newest) {
			newest = t
		}
	}
	later(e.FirstTimestamp.Time)
	later(e.LastTimestamp.Time)
	later(e.EventTime.Time)
	if e.Series != nil {
		later(e.Series.LastObservedTime.Time)
	}
	for _, f := range e.ManagedFields {
		if f.Time != nil {
			later(f.Time.Time)
		}
	}
	return newest
}

func (e *events) observe(c *store.CollectionChange) {
	if c.Collection != eventCollection {
		return
	}
	now := e.l.now()
	written := now
	if e.l.c.Clock != nil && c.After != nil { // it may have moved since the write
		if at := lastWrite(c.After); !at.IsZero() && at.Before(now) {
			written = at
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.After == nil {
		e.list.remove(c.Key())
		return
	}
	idle := e.list.first() == nil
	e.list.put(c.After.Key, c.Revision, written.Add(e.l.c.EventTTL).UnixNano())
	if idle {
		e.plan(now, 0)
	}
}

// plan sets the time of the next look. The caller holds mu.
func (e *events) plan(now time.Time, least time.Duration) {
	first := e.list.first()
	if first == nil {
		e.list = newExpiries() // maps do not become smaller by themselves
		return
	}
	if due := time.Unix(0, first.due); due.After(now.Add(least)) {
		e.l.addAt(e.queue, expireItem, due)
	} else {
		e.queue.addAfter(expireItem, max(least, due.Sub(now)), false)
	}
}

// sync looks at the list, or deletes one event.
func (e *events) sync(ctx context.Context, i item) error {
	if i == expireItem {
		e.expire()
		return nil
	}
	o := e.l.store.Any().Get(i.collection, i.key)
	if o == nil || o.Modified != i.revision {
		return nil
	}
	err := e.l.remove(ctx, i.object, o, metav1.DeletePropagationBackground)
	if apierrors.IsConflict(err) { // it was written again
		return nil
	}
	return err
}

// expire queues the expired events.
func (e *events) expire() {
	now := e.l.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for x := e.list.first(); x != nil && x.due <= now.UnixNano(); x = e.list.first() {
		e.list.remove(x.key)
		// An event that was deleted or written again needs no item.
		if o := e.l.store.Any().Get(eventCollection, x.key); o != nil && o.Modified == x.revision && !registry.MetadataOf(o).Deleting {
			e.queue.add(item{object{eventCollection, x.key}, x.revision})
		}
	}
	e.plan(now, lull)
}
