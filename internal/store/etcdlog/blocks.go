package etcdlog

import (
	"context"
	"errors"
	"slices"
	"sort"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Blocks of the past
//
// A read of the past is a watch of etcd, which costs 50 to 100 ms, and etcd reads all changes up to the present
// for it, however few are wanted. When a server was started again, each of its clients continues its watches, and reads
// the same changes in pieces. So changes of a collection are read in blocks, which readers share for a while:
//
//	revisions       1000        5000        7000     8000 (requested)
//	first reader                [ block 1  ][ block 2 ]
//	second reader   [ block 3  ][ block 1  ][ block 2 ]
//
// A block begins at the position of the reader for which it is read. It ends where the next one begins, at the end of the
// reader's range, or when it is large. A block that has no reader any more before it is complete is given up.

const (
	// mostBlockBytes ends a block after the revision that reaches it. mostBlocksBytes is the limit of all blocks
	// together, not counting reads in progress. The bytes are those of objects, entryBytes for each change, and
	// blockBytes for each block.
	mostBlockBytes, mostBlocksBytes = 2 << 20, 32 << 20
	entryBytes, blockBytes          = 256, 16 << 10
	// blockLife is how long a block stays after its last use.
	blockLife = 30 * time.Second
)

// block has the changes of a collection with after < revision <= through.
type block struct {
	after, end int64 // through is not above the end
	cancel     context.CancelFunc
	done       chan struct{} // closed when the next four are set

	through int64
	entries []store.Entry // in order
	bytes   int64
	err     error

	used    time.Time // guarded by blocks.mu, as the next one
	readers int       // that wait for it, or return its changes
}

// blocks are those that are complete or being read, by collection.
type blocks struct {
	mu    sync.Mutex
	all   map[string][]*block
	bytes int64       // of those that are complete
	aging *time.Timer // nil: there are no blocks to age
}

// from returns the entries after a revision.
func (b *block) from(after int64) []store.Entry {
	return b.entries[sort.Search(len(b.entries), func(i int) bool { return int64(b.entries[i].Revision) > after }):]
}

// block returns the block that covers the changes after a revision, and reads it if necessary. The block may end before
// the revision. The caller calls leave when it does not need the block any more.
func (l *Log) block(ctx context.Context, collection string, after, upTo int64) (b *block, leave func(), err error) {
	c := &l.blocks
	c.mu.Lock()
	if b = c.find(collection, after); b == nil {
		var reading context.Context
		b = c.plan(collection, after, upTo)
		reading, b.cancel = context.WithCancel(l.ctx)
		l.work.Go(func() { l.readBlock(reading, collection, b) })
	}
	b.readers++
	c.mu.Unlock()
	leave = func() { c.leave(collection, b) }
	select {
	case <-b.done:
		err = b.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return b, leave, nil
}

// find returns the block that covers the change after a revision, or nil. The caller holds mu.
func (c *blocks) find(collection string, after int64) *block {
	for _, b := range c.all[collection] {
		if b.after <= after && after < b.reaches() {
			return b
		}
	}
	return nil
}

// reaches returns the revision that the block ends with, or may end with.
func (b *block) reaches() int64 {
	if b.complete() {
		return b.through
	}
	return b.end
}

func (b *block) complete() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// plan adds a block that begins after a revision. The caller holds mu.
func (c *blocks) plan(collection string, after, upTo int64) *block {
	b := &block{after: after, end: upTo, done: make(chan struct{}), bytes: blockBytes}
	for _, other := range c.all[collection] {
		if other.after > after {
			b.end = min(b.end, other.after)
		}
	}
	if c.all == nil {
		c.all = map[string][]*block{}
	}
	c.all[collection] = append(c.all[collection], b)
	return b
}

// leave ends the use of a block by a reader.
func (c *blocks) leave(collection string, b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.used = time.Now()
	if b.readers--; b.readers > 0 {
		return
	}
	if !b.complete() {
		b.cancel()
		c.remove(collection, b)
	}
	c.shrink(mostBlocksBytes, time.Time{})
}

// readBlock reads the changes of a block.
func (l *Log) readBlock(ctx context.Context, collection string, b *block) {
	defer b.cancel()
	b.through = b.end
	b.err = l.eachChange(ctx, collection, b.after, b.end, func(e store.Entry) bool {
		if n := len(b.entries); n > 0 && b.bytes >= mostBlockBytes && e.Revision != b.entries[n-1].Revision {
			b.through = int64(b.entries[n-1].Revision)
			return false
		}
		b.entries = append(b.entries, e)
		b.bytes += entryBytes
		for _, o := range []*store.Object{e.Object, e.Before} {
			if o != nil {
				b.bytes += int64(len(o.Held))
			}
		}
		return true
	})
	c := &l.blocks
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := slices.Contains(c.all[collection], b)
	if kept && b.err != nil {
		c.remove(collection, b)
		kept = false
	}
	if close(b.done); !kept {
		return
	}
	c.bytes += b.bytes
	if c.aging == nil {
		c.aging = time.AfterFunc(blockLife, c.age)
	}
}

// remove forgets a block. The caller holds mu.
func (c *blocks) remove(collection string, b *block) {
	if b.complete() {
		c.bytes -= b.bytes
	}
	c.all[collection] = slices.DeleteFunc(c.all[collection], func(other *block) bool { return other == b })
	if len(c.all[collection]) == 0 {
		delete(c.all, collection)
	}
}

// shrink evicts the blocks without readers that were not used since a time, then the least recently used ones, until the
// complete blocks fit into most bytes. It keeps the last used one, whatever its size: a revision can be larger than most,
// and a reader takes it in many pieces. The caller holds mu.
func (c *blocks) shrink(most int64, since time.Time) {
	for {
		var oldest *block
		var of string
		idle := 0
		for collection, all := range c.all {
			for _, b := range all {
				if b.readers > 0 || !b.complete() {
					continue
				}
				if idle++; oldest == nil || b.used.Before(oldest.used) {
					oldest, of = b, collection
				}
			}
		}
		fits := c.bytes <= most || idle == 1
		if oldest == nil || fits && !oldest.used.Before(since) {
			return
		}
		c.remove(of, oldest)
	}
}

// age evicts the blocks that were not used for blockLife, and looks again later while there are others.
func (c *blocks) age() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shrink(mostBlocksBytes, time.Now().Add(-blockLife))
	c.aging = nil
	if len(c.all) > 0 {
		c.aging = time.AfterFunc(blockLife, c.age)
	}
}

// eachChange calls a function for the changes of a collection, or of all if the name is empty, in order, until it
// returns false.
func (l *Log) eachChange(ctx context.Context, collection string, after, upTo int64, f func(store.Entry) bool) error {
	base := l.o.Prefix + "/"
	if collection != "" {
		var err error
		if base, err = l.etcdKey(collection, ""); err != nil {
			return err
		}
	}
	r := scanRange{key: base, end: rangeEnd(base), after: after, upTo: upTo, before: true}
	err := l.scan(ctx, r, func(e *mvccpb.Event) error {
		of, key, ok := l.place(string(e.Kv.Key))
		if !ok || collection != "" && of != collection {
			return nil
		}
		entry, err := l.entry(ctx, e, of, key)
		if err != nil {
			return err
		}
		if err := l.before(ctx, &entry, e); err != nil {
			return err
		}
		if !f(entry) {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}
