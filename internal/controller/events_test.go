package controller

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestRewrittenEvent: an event that is written again and again has one entry, and one that is deleted none.
func TestRewrittenEvent(t *testing.T) {
	q := newQueue("event-ttl", 1, func(context.Context, item) error { return nil }, slog.New(slog.DiscardHandler))
	defer q.close()
	e := newEvents(&Loops{c: Config{EventTTL: time.Hour, Now: time.Now}}, q).(*events)
	const writes = 10_000
	want := func(what string, entries int) {
		t.Helper()
		ring := 0
		for x := e.list.ring.next; x != &e.list.ring; x = x.next {
			ring++
		}
		if len(e.list.of) != entries || ring != entries {
			t.Errorf("after %s: %d entries, %d in the ring; want %d", what, len(e.list.of), ring, entries)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if n := len(q.at) + len(q.waiting) + len(q.working); n > 1 || len(q.later) > 1 {
			t.Errorf("after %s: the queue has %d items, %d of them later; want one", what, n, len(q.later))
		}
	}
	o := &store.Object{Key: "n/e"}
	for i := range writes {
		e.observe(&store.CollectionChange{Collection: eventCollection, Change: &store.Change{Revision: store.Revision(i + 1), Before: o, After: o}})
	}
	want("writes of an event", 1)
	for i := range writes {
		o := &store.Object{Key: "n/" + time.Duration(i).String()}
		e.observe(&store.CollectionChange{Collection: eventCollection, Change: &store.Change{Revision: store.Revision(2 * i), After: o}})
		e.observe(&store.CollectionChange{Collection: eventCollection, Change: &store.Change{Revision: store.Revision(2*i + 1), Before: o}})
	}
	want("events that were made and deleted", 1)
}
