package etcdlog

import (
	"context"
	"errors"
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
//	revisions   0           4096        8192        12288       13000 (asked for)
//	            [  block    ][ block                 ][ block   ]
//
// A block begins at a multiple of blockRevisions, or where another one ends. It ends where the next one begins, where the
// reader's range ends, or when it is large.

const (
	// Blocks begin at multiples of blockRevisions, so that readers that are a few revisions apart share them.
	blockRevisions = 4096
	// A block ends with mostBlockBytes, or with the revision that exceeds them. All together have at most
	// mostBlocksBytes, apart from those that are read. The bytes are those of objects, and entryBytes for each
	// change and each block.
	mostBlockBytes, mostBlocksBytes, entryBytes = 2 << 20, 32 << 20, 256
	// mostReads limits the blocks that are read at a time: a reader may give up, and its block is read nevertheless.
	mostReads = 32
	// blockLife is how long a block stays after its last use.
	blockLife = 30 * time.Second
)

// block has the changes of a collection with after < revision <= through.
type block struct {
	after, end int64         // through is not above the end
	done       chan struct{} // closed when the rest is set

	through int64
	entries []store.Entry // in order
	bytes   int64
	err     error

	used time.Time // guarded by blocks.mu
}

// blocks are those that were read, by collection.
type blocks struct {
	reads chan struct{} // has a value for each block that is being read

	mu    sync.Mutex
	all   map[string][]*block
	bytes int64
}

// from returns the entries after a revision.
func (b *block) from(after int64) []store.Entry {
	return b.entries[sort.Search(len(b.entries), func(i int) bool { return int64(b.entries[i].Revision) > after }):]
}

// block returns a block that was begun at or before a revision. Its changes behind the revision are the next ones; it may
// have none. It reads the block if no other reader has done so.
func (l *Log) block(ctx context.Context, collection string, after, upTo int64) (*block, error) {
	c := &l.blocks
	c.mu.Lock()
	b := c.find(collection, after)
	if b == nil {
		b = c.plan(collection, after, upTo, int64(l.floor()))
		if c.all == nil {
			c.all = map[string][]*block{}
		}
		c.all[collection] = append(c.all[collection], b)
		l.work.Go(func() { l.readBlock(collection, b) })
	}
	b.used = time.Now()
	c.mu.Unlock()
	select {
	case <-b.done:
		return b, b.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find returns a block that has the change behind a revision, or may have it when it is read. The caller holds mu.
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
	if b.read() {
		return b.through
	}
	return b.end
}

// read reports whether the block was read.
func (b *block) read() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// plan returns a block that is not above upTo and can have the change behind a revision. The floor is the oldest revision
// that can be read. The caller holds mu.
func (c *blocks) plan(collection string, after, upTo, floor int64) *block {
	b := &block{after: max(after/blockRevisions*blockRevisions, floor), end: upTo, done: make(chan struct{}), bytes: entryBytes}
	for _, other := range c.all[collection] {
		if other.after <= after {
			b.after = max(b.after, other.reaches())
		} else {
			b.end = min(b.end, other.after)
		}
	}
	b.after = min(b.after, after)
	return b
}

// readBlock reads the changes of a block, and keeps it if that succeeds.
func (l *Log) readBlock(collection string, b *block) {
	l.blocks.reads <- struct{}{}
	defer func() { <-l.blocks.reads }()
	b.through = b.end
	b.err = l.eachChange(l.ctx, collection, b.after, b.end, func(e store.Entry) bool {
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
	close(b.done)
	c.bytes += b.bytes
	if b.err != nil {
		c.remove(collection, b)
	}
	c.shrink(mostBlocksBytes, time.Time{})
}

// remove forgets a block that was read. The caller holds mu.
func (c *blocks) remove(collection string, b *block) {
	c.bytes -= b.bytes
	kept := c.all[collection][:0:0]
	for _, other := range c.all[collection] {
		if other != b {
			kept = append(kept, other)
		}
	}
	if c.all[collection] = kept; len(kept) == 0 {
		delete(c.all, collection)
	}
}

// shrink forgets the blocks that were used last before a time, and more, until the rest has at most so many bytes. The
// caller holds mu.
func (c *blocks) shrink(most int64, before time.Time) {
	for {
		var oldest *block
		var of string
		for collection, all := range c.all {
			for _, b := range all {
				if b.read() && (oldest == nil || b.used.Before(oldest.used)) {
					oldest, of = b, collection
				}
			}
		}
		if oldest == nil || c.bytes <= most && !oldest.used.Before(before) {
			return
		}
		c.remove(of, oldest)
	}
}

// age forgets the blocks that were not used for a while.
func (c *blocks) age() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shrink(mostBlocksBytes, time.Now().Add(-blockLife))
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
