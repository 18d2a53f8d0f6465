package controller

import (
	"context"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestRewrittenEvent: an event that is written again and again needs the memory of
// one event, and one that is deleted none.
func TestRewrittenEvent(t *testing.T) {
	q := newQueue("event-ttl", 1, func(context.Context, item) error { return nil }, slog.New(slog.DiscardHandler))
	defer q.close()
	e := newEvents(&Loops{c: Config{EventTTL: time.Hour, Now: time.Now}}, q)
	const writes = 100_000
	before := inUse()
	o := &store.Object{Key: "n/e"}
	for i := range writes {
		e.observe(&store.CollectionChange{Collection: eventCollection, Change: &store.Change{Revision: store.Revision(i + 1), Before: o, After: o}})
	}
	if more := inUse() - before; more > writes {
		t.Errorf("%d writes of an event cost %d bytes", writes, more)
	}
	before = inUse()
	for i := range writes / 2 {
		o := &store.Object{Key: "n/" + time.Duration(i).String()}
		e.observe(&store.CollectionChange{Collection: eventCollection, Change: &store.Change{Revision: store.Revision(2 * i), After: o}})
		e.observe(&store.CollectionChange{Collection: eventCollection, Change: &store.Change{Revision: store.Revision(2*i + 1), Before: o}})
	}
	if more := inUse() - before; more > writes {
		t.Errorf("%d events that were made and deleted cost %d bytes", writes/2, more)
	}
	runtime.KeepAlive(e)
}

// inUse is how many bytes are in use.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
