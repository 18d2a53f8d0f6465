package pebblelog

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Advance forgets the history and moves the head by so many revisions, without a change. The log of a restored
// backup needs it: no revision that the lost part of the log used is used again, and reads from one, or from before,
// get an ExpiredError. Nothing else uses the log meanwhile.
func (l *Log) Advance(ctx context.Context, by store.Revision) error {
	if err := l.Compact(ctx, l.head.Load().revision); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.head.Load()
	if next.cut != next.revision {
		return fmt.Errorf("log %s: its history ends at revision %d, and the head is %d", l.o.Dir, next.cut, next.revision)
	}
	if next.revision == 0 {
		return nil // nothing was ever written
	}
	next.revision += by
	next.floor, next.cut = next.revision, next.revision
	batch := l.db.NewBatch()
	defer batch.Close()
	// No change refers to an actor any more.
	lower, upper := spaceBounds(spaceActor)
	if err := batch.DeleteRange(lower, upper, nil); err != nil {
		return err
	}
	clear(l.actors)
	next.historyBytes = 0
	return l.commit(batch, next, pebble.Sync)
}
