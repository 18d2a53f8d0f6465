package controller

import (
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

// events lets events vanish a while after their last write. For what is written
// while the server runs, that is the time of the write. The store does not keep it,
// so for what was there before, it is the newest time that the event itself tells
// (creation, last occurrence, last change of its managed fields).
//
// Whatever is written lives equally long, so what is to go stands in a row: an entry
// for each write, in order of time. An entry means the very version that was
// written: what was written again later has a later entry.
type events struct {
	l     *Loops
	queue *queue

	mu  sync.Mutex
	row []expiry // sorted by due
}

type expiry struct {
	key      string
	revision store.Revision
	due      int64 // Unix time in nanoseconds
}

// lull is how long the loop waits at least between two looks at what is due, so
// that a stream of events is not a stream of timers.
const lull = time.Second

// look is the item that stands for a look at the row.
var look = item{object: object{collection: eventCollection}}

func newEvents(l *Loops, q *queue) loop { return &events{l: l, queue: q} }

func (e *events) begin(s *store.State) {
	now := e.l.now()
	var row []expiry
	for o := range s.Snapshot(eventCollection).Scan("", "") {
		written := lastWrite(o)
		if written.IsZero() || written.After(now) {
			written = now
		}
		row = append(row, expiry{o.Key, o.Modified, written.Add(e.l.c.EventTTL).UnixNano()})
	}
	slices.SortFunc(row, func(a, b expiry) int { return int(max(-1, min(1, a.due-b.due))) })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.row = row
	e.plan(now, 0)
}

// lastWrite is the newest time that an event tells, zero when it tells none.
func lastWrite(o *store.Object) time.Time {
	e, err := decode[corev1.Event](o)
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
	if c.Collection != eventCollection || c.After == nil {
		return
	}
	now := e.l.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	due := now.Add(e.l.c.EventTTL).UnixNano()
	if n := len(e.row); n > 0 { // the wall clock may have gone back
		due = max(due, e.row[n-1].due)
	}
	e.row = append(e.row, expiry{c.After.Key, c.Revision, due})
	if len(e.row) == 1 {
		e.plan(now, 0)
	}
}

// plan sets the time of the next look. The caller holds mu.
func (e *events) plan(now time.Time, least time.Duration) {
	if len(e.row) == 0 {
		e.row = nil
		return
	}
	wait := max(least, time.Unix(0, e.row[0].due).Sub(now))
	e.queue.addAt(look, time.Now().Add(wait), false)
}

// sync looks at the row, or deletes one event.
func (e *events) sync(ctx context.Context, i item) error {
	if i == look {
		e.ripe()
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

// ripe puts what is due into the queue.
func (e *events) ripe() {
	now := e.l.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for n < len(e.row) && e.row[n].due <= now.UnixNano() {
		due := e.row[n]
		// What was deleted, or written again, needs no item.
		if o := e.l.store.Any().Get(eventCollection, due.key); o != nil && o.Modified == due.revision && !registry.MetadataOf(o).Deleting {
			e.queue.add(item{object{eventCollection, due.key}, due.revision})
		}
		n++
	}
	e.row = e.row[n:]
	e.plan(now, lull)
}
