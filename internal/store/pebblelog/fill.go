package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// fillBytes is about the size of a batch of Fill.
const fillBytes = 1 << 20

// Fill writes the objects of a state into a new log, which then begins with it: the revision is the head and the
// floor. The time is that of the newest change, zero if it is unknown. The sequence yields collections and
// objects, none modified after the revision, in any order. When Fill returns nil, all are durable. After an error
// the log is of no use. Nothing else uses the log meanwhile.
func (l *Log) Fill(ctx context.Context, at store.Revision, newest time.Time, objects iter.Seq2[string, *store.Object]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.head.Load()
	if next.revision != 0 || next.objects != 0 {
		return fmt.Errorf("log %s: it is not new", l.o.Dir)
	}
	batch := l.db.NewBatch()
	defer func() { batch.Close() }()
	for collection, o := range objects {
		if err := l.fill(batch, &next, at, collection, o); err != nil {
			return fmt.Errorf("log %s: %s %s: %w", l.o.Dir, collection, o.Key, err)
		}
		if batch.Len() < fillBytes {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		// The sync of the last batch is one of all.
		if err := l.fillBatch(batch, next, pebble.NoSync); err != nil {
			return err
		}
		next = *l.head.Load()
		batch.Reset()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	next.revision, next.floor, next.cut = at, at, at
	if !newest.IsZero() {
		next.time = newest.UnixMicro()
	}
	return l.fillBatch(batch, next, pebble.Sync)
}

// fill adds one object. The caller holds mu.
func (l *Log) fill(batch *pebble.Batch, next *head, at store.Revision, collection string, o *store.Object) error {
	if err := checkPlace(collection, o.Key); err != nil {
		return err
	}
	if o.Modified == 0 || o.Modified > at {
		return fmt.Errorf("it was modified at revision %d, and the state is of %d", o.Modified, at)
	}
	if err := checkRevisionAt(o); err != nil {
		return err
	}
	key := appendCurrentKey(nil, collection, o.Key)
	sum := l.hash.version(key[1:], o)
	op := batch.SetDeferred(len(key), currentFixed+o.Len())
	copy(op.Key, key)
	putCurrent(op.Value, sum, o)
	next.objects++
	next.sum += sum
	return op.Finish()
}

// fillBatch writes a batch if there is space for it. The caller holds mu.
func (l *Log) fillBatch(batch *pebble.Batch, next head, how *pebble.WriteOptions) error {
	if _, err := l.space.admit(false, batch.Len()); err != nil {
		return err
	}
	return l.commit(batch, next, how)
}

// Fill makes a log in a directory, fills it (see Log.Fill) and closes it.
func Fill(ctx context.Context, o Options, at store.Revision, newest time.Time, objects iter.Seq2[string, *store.Object]) error {
	l, err := Open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(l.Fill(ctx, at, newest, objects), l.Close())
}
