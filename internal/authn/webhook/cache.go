package webhook

import (
	"container/list"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	// cacheBytes is the maximum memory of the cached results, enough for about 50,000 usual ones.
	cacheBytes = 32 << 20
	// entryBytes and stringBytes are the approximate memory of a result and of each of its strings, without their text.
	entryBytes, stringBytes = 512, 48
)

// cache keeps results for a time. If they take too much memory, it drops the least recently used ones. It is safe for
// concurrent use.
type cache struct {
	now func() time.Time

	mu      sync.Mutex // guards the following
	entries map[webhook.Key]*list.Element
	order   list.List // of *entry, the last used one first
	bytes   int       // of all entries
}

type entry struct {
	key    webhook.Key
	result *result
	bytes  int
	expire time.Time
}

func newCache(now func() time.Time) *cache {
	return &cache{now: now, entries: map[webhook.Key]*list.Element{}}
}

// get returns the result for a key, nil if there is none.
func (c *cache) get(k webhook.Key) *result {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[k]
	if e == nil {
		return nil
	}
	one := e.Value.(*entry)
	if !now.Before(one.expire) {
		c.remove(e)
		return nil
	}
	c.order.MoveToFront(e)
	return one.result
}

// put replaces the result for a key. One that is the service's error, or alone takes more than an eighth of the memory, is
// not kept.
func (c *cache) put(k webhook.Key, r *result, ttl time.Duration) {
	one := &entry{key: k, result: r, bytes: r.size(), expire: c.now().Add(ttl)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[k]; e != nil {
		c.remove(e)
	}
	if r.err != nil || one.bytes > cacheBytes/8 || ttl <= 0 {
		return
	}
	for c.bytes+one.bytes > cacheBytes {
		c.remove(c.order.Back())
	}
	c.entries[k] = c.order.PushFront(one)
	c.bytes += one.bytes
}

// remove removes an entry. c.mu is held.
func (c *cache) remove(e *list.Element) {
	one := c.order.Remove(e).(*entry)
	delete(c.entries, one.key)
	c.bytes -= one.bytes
}

// size returns the approximate memory of a result.
func (r *result) size() int {
	n := entryBytes + sizeOf(r.good)
	if u := r.user; u != nil {
		n += len(u.Name) + len(u.UID) + sizeOf(u.Groups)
		for name, values := range u.Extra {
			n += 2*stringBytes + len(name) + sizeOf(values)
		}
	}
	return n
}

func sizeOf(all []string) int {
	n := stringBytes * len(all)
	for _, s := range all {
		n += len(s)
	}
	return n
}
