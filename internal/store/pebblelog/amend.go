package pebblelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Amend moves a log that Fill has filled, and that has no history, to a later state: the objects of the entries take
// the place of the current ones, or are deleted, and the revision is the head and the floor. The last of several
// entries of one object counts; Entry.Before does not. Nothing else uses the log meanwhile.
func (l *Log) Amend(ctx context.Context, at store.Revision, entries []store.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.head.Load()
	if next.cut != next.revision {
		return fmt.Errorf("log %s: it has a history from revision %d on", l.o.Dir, next.cut)
	}
	if at < next.revision {
		return fmt.Errorf("log %s: the state of revision %d is older than the one of %d that it has", l.o.Dir, at, next.revision)
	}
	last := make(map[[2]string]int, len(entries))
	for i := range entries {
		last[[2]string{entries[i].Collection, entries[i].Key}] = i
	}
	batch := l.db.NewBatch()
	defer batch.Close()
	for i := range entries {
		e := &entries[i]
		if last[[2]string{e.Collection, e.Key}] != i {
			continue
		}
		if err := l.amend(batch, &next, at, e); err != nil {
			return fmt.Errorf("log %s: %s %s: %w", l.o.Dir, e.Collection, e.Key, err)
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	next.revision, next.floor, next.cut = at, at, at
	return l.fillBatch(batch, next, pebble.Sync)
}

// amend replaces or deletes one object. The caller holds mu.
func (l *Log) amend(batch *pebble.Batch, next *head, at store.Revision, e *store.Entry) error {
	if err := checkPlace(e.Collection, e.Key); err != nil {
		return err
	}
	key := appendCurrentKey(nil, e.Collection, e.Key)
	was, err := getCurrent(l.db, &l.hash, key)
	switch {
	case err == nil:
		next.objects--
		next.sum -= l.hash.version(key[1:], was)
	case !errors.Is(err, errAbsent):
		return err
	}
	if e.Object == nil {
		return batch.Delete(key, nil)
	}
	return l.fill(batch, next, at, e.Collection, e.Object)
}
