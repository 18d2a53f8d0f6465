package pebblelog

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// cacheBytes is the size of Pebble's cache of blocks while the history is not read, in bytes. A start reads each block once.
	cacheBytes = 2 << 20
	// readCacheBytes is its size while the history is read, and until it has not been read for cacheIdle. Pebble's memtables
	// are part of it, usually 8 MiB. Without a cache, each look-up reads the index of each level again, and a page of changes
	// takes six times as long.
	readCacheBytes = 16 << 20
	cacheIdle      = time.Minute
)

// blockCache is Pebble's cache of blocks, which is small unless the history is read.
type blockCache struct {
	*pebble.Cache

	mu      sync.Mutex
	readers int
	idle    *time.Timer // makes the cache small again; nil before the first reader
	grow    func()      // makes the cache large; nil: it is large
	closed  bool
}

func newBlockCache() *blockCache {
	c := &blockCache{Cache: pebble.NewCache(readCacheBytes)}
	c.grow = c.Reserve(readCacheBytes - cacheBytes)
	return c
}

// acquire makes the cache large until release.
func (c *blockCache) acquire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers++
	if c.grow != nil {
		c.grow()
		c.grow = nil
	}
	if c.idle != nil {
		c.idle.Stop()
	}
}

// release makes the cache small after a while, unless another reader is there by then.
func (c *blockCache) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readers--
	switch {
	case c.readers > 0:
	case c.idle == nil:
		c.idle = time.AfterFunc(cacheIdle, c.shrink)
	default:
		c.idle.Reset(cacheIdle)
	}
}

func (c *blockCache) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readers == 0 && c.grow == nil && !c.closed {
		c.grow = c.Reserve(readCacheBytes - cacheBytes)
	}
}

// close frees the cache once Pebble does not use it any more. There are no readers.
func (c *blockCache) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.idle != nil {
		c.idle.Stop()
	}
	c.Unref()
}
