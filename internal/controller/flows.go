package controller

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// flowPause is the least time between two updates of the same object, so that another program that
// insists on its own version does not make a loop of writes.
const flowPause = 10 * time.Second

// flows restores the FlowSchemas and PriorityLevelConfigurations that every server has, and
// maintains the status of all FlowSchemas.
type flows struct {
	l     *Loops
	queue *queue

	mu sync.Mutex
	// edited has when objects were last changed back; only those of the last flowPause.
	edited map[object]time.Time
}

func newFlows(l *Loops, q *queue) loop { return &flows{l: l, queue: q, edited: map[object]time.Time{}} }

func (f *flows) begin(s *store.State) {
	c := f.l.c.Flows
	for collection, name := range c.Names {
		f.queue.add(item{object: object{collection, name}})
	}
	for _, collection := range []string{c.Schemas(), c.Levels()} {
		for o := range s.Snapshot(collection).Scan("", "") {
			f.queue.add(item{object: object{collection, o.Key}})
		}
	}
}

func (f *flows) observe(c *store.CollectionChange) {
	schemas, levels := f.l.c.Flows.Schemas(), f.l.c.Flows.Levels()
	if c.Collection != schemas && c.Collection != levels {
		return
	}
	f.queue.add(item{object: object{c.Collection, c.Key()}})
	if c.Collection == schemas || c.Before != nil && c.After != nil {
		return
	}
	for o := range f.l.store.Any().Snapshot(schemas).Scan("", "") { // a level exists now, or ceased to
		if level, err := startup.Refers(o); err != nil || level == c.Key() {
			f.queue.add(item{object: object{schemas, o.Key}})
		}
	}
}

func (f *flows) sync(ctx context.Context, i item) error {
	if wait := f.wait(i.object); wait > 0 {
		f.queue.addAfter(i, wait, false)
	} else if err := f.ensure(ctx, i.object); err != nil {
		return err
	}
	if i.collection == f.l.c.Flows.Schemas() {
		return f.l.c.Flows.EnsureStatus(ctx, i.key)
	}
	return nil
}

// ensure restores an object, and notes it if that changed a stored one.
func (f *flows) ensure(ctx context.Context, o object) error {
	before := f.l.store.Any().Get(o.collection, o.key)
	if err := f.l.c.Flows.Ensure(ctx, o.collection, o.key); err != nil {
		return err
	}
	after := f.l.store.Any().Get(o.collection, o.key)
	if before == nil || after == nil || before.Modified == after.Modified {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for other, at := range f.edited {
		if now.Sub(at) > flowPause {
			delete(f.edited, other)
		}
	}
	f.edited[o] = now
	return nil
}

// wait returns how long an object has to wait until it is changed back again. A deleted object does
// not wait.
func (f *flows) wait(o object) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, ok := f.edited[o]
	if !ok || f.l.store.Any().Get(o.collection, o.key) == nil {
		return 0
	}
	return flowPause - time.Since(at)
}
