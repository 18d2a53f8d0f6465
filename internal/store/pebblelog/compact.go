package pebblelog

import (
	"context"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// compactBatch is how many changes a compaction forgets in one batch. Writers
// wait for one batch at most: a few milliseconds.
const compactBatch = 1024

// Compact implements store.Log.
//
// The floor is made durable and published first; no read below it begins from
// then on. Then it walks the headers up to the floor, oldest first. A header
// names the version that its change replaced or deleted, which no read at the
// floor or above can see. Both are removed, a batch at a time, and each batch moves the
// cut in the head: the last revision whose header is gone. After a crash the next
// compaction continues at the cut.
//
// Compact may run concurrently with Append, which it delays by one batch at most.
func (l *Log) Compact(ctx context.Context, floor store.Revision) error {
	if !l.readers.acquire() {
		return store.ErrClosed
	}
	defer l.readers.release()
	l.compacting.Lock()
	defer l.compacting.Unlock()
	if err := l.Usable(); err != nil {
		return err
	}
	if l.o.ReadOnly {
		return errReadOnly
	}
	floor = min(floor, l.head.Load().revision)
	if err := l.space.admitCompaction(); err != nil {
		return err
	}
	if floor > l.head.Load().floor {
		if err := l.raiseFloor(ctx, floor); err != nil {
			return err
		}
	}
	for {
		h := *l.head.Load()
		if h.cut >= h.floor {
			return nil
		}
		if err := l.space.admitCompaction(); err != nil {
			return err
		}
		if err := l.compactSome(ctx, h); err != nil {
			return err
		}
	}
}

// raiseFloor makes the floor durable, and forgets the marks below it.
func (l *Log) raiseFloor(ctx context.Context, floor store.Revision) error {
	marks, err := l.marks(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := l.db.NewBatch()
	defer batch.Close()
	// The newest mark always stays: the running time continues from it.
	for i := 0; i+1 < len(marks) && marks[i].Revision < floor; i++ {
		if err := batch.Delete(appendMarkKey(nil, marks[i].Revision), nil); err != nil {
			return err
		}
	}
	next := *l.head.Load()
	next.floor = max(next.floor, floor) // a deletion on a full disk may have raised it
	return l.commit(batch, next, pebble.Sync)
}

// compactSome removes the oldest changes up to the floor, at most compactBatch
// of them.
func (l *Log) compactSome(ctx context.Context, h head) error {
	batch := l.db.NewBatch()
	defer batch.Close()
	cut, chain, freed, err := l.oldest(ctx, h, batch)
	if err != nil {
		return err
	}
	if err := batch.DeleteRange(appendHeaderKey(nil, h.cut+1), appendHeaderKey(nil, cut+1), nil); err != nil {
		return err
	}
	if err := l.forgetActors(batch, h.cut, cut); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.head.Load()
	next.cut, next.cutChain = cut, chain
	next.historyBytes -= min(freed, next.historyBytes)
	if cut == next.revision {
		// No replaced version is left. One tombstone for all lets Pebble drop whole tables,
		// which takes no space.
		lower, upper := spaceBounds(spaceReplaced)
		if err := batch.DeleteRange(lower, upper, nil); err != nil {
			return err
		}
	}
	// No sync: a removal that a crash undoes is made again.
	return l.commit(batch, next, pebble.NoSync)
}

// oldest adds to the batch the removal of the versions that the oldest changes
// replaced. It returns up to where it came, the chain value there, and the bytes
// that go.
func (l *Log) oldest(ctx context.Context, h head, batch *pebble.Batch) (cut store.Revision, chain, freed uint64, err error) {
	v := &view{log: l, snap: l.db.NewSnapshot()}
	defer v.snap.Close()
	cut, chain = h.cut, h.cutChain
	n := 0
	err = v.headers(ctx, h.cut, h.floor, func(r store.Revision, hd header) error {
		if n == compactBatch {
			return errStop
		}
		n++
		cut, chain = r, hd.chain
		defined, err := v.defines(r, hd)
		if err != nil {
			return l.damaged(fmt.Sprintf("the actor of revision %d", r), err)
		}
		freed += hd.size() + defined + uint64(hd.beforeBytes)
		if hd.before == 0 {
			return nil
		}
		key := append([]byte{spaceReplaced}, hd.place...)
		key = be.AppendUint64(key, uint64(hd.before))
		if int(hd.beforeBytes) < len(key) {
			return l.damaged(fmt.Sprintf("the header of revision %d", r), errShort)
		}
		return batch.DeleteSized(key, hd.beforeBytes-uint32(len(key)), nil)
	})
	switch {
	case err == errStop:
		err = nil
	case err == nil && n < compactBatch:
		cut = h.floor // revisions without a change, up to the floor, are through as well
	}
	return cut, chain, freed, err
}

// Reclaim implements store.Log: it makes Pebble rewrite the tables that hold deleted data.
// Otherwise Pebble removes that data when it next compacts, which may be never. Pebble removes the old tables in the background, so
// Reclaim waits for that, for reclaimWait at most: a read under way may hold some.
//
// The history comes first, because all of it may be gone, and that takes no space.
func (l *Log) Reclaim(ctx context.Context) error {
	if !l.readers.acquire() {
		return store.ErrClosed
	}
	defer l.readers.release()
	l.compacting.Lock()
	defer l.compacting.Unlock()
	if err := l.Usable(); err != nil {
		return err
	}
	for _, space := range []byte{spaceReplaced, spaceHeader, spaceActor, spaceCurrent} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.space.admitCompaction(); err != nil {
			return err
		}
		lower, upper := spaceBounds(space)
		if err := l.compactTables(ctx, lower, upper); err != nil {
			return err
		}
	}
	return l.awaitRemovals(ctx)
}

const (
	reclaimWait = 2 * time.Second
	reclaimPoll = 10 * time.Millisecond
)

// awaitRemovals waits until Pebble has removed the tables that it does not need.
func (l *Log) awaitRemovals(ctx context.Context) error {
	for waited := time.Duration(0); waited < reclaimWait; waited += reclaimPoll {
		if m := l.db.Metrics(); m.Table.ObsoleteSize == 0 && m.Table.ZombieSize == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(reclaimPoll):
		}
	}
	return nil
}
