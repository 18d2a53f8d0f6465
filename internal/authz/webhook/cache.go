package webhook

import (
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"

	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// cache keeps decisions for a time. It is safe for concurrent use.
type cache struct{ entries *utilcache.LRUExpireCache }

// clock implements the clock of LRUExpireCache.
type clock func() time.Time

// Now returns the time.
func (c clock) Now() time.Time { return c() }

func newCache(size int, now func() time.Time) *cache {
	return &cache{utilcache.NewLRUExpireCacheWithClock(size, clock(now))}
}

func (c *cache) get(k webhook.Key) (status, bool) {
	if s, ok := c.entries.Get(k); ok {
		return s.(status), true
	}
	return status{}, false
}

func (c *cache) put(k webhook.Key, s status, ttl time.Duration) {
	if ttl > 0 {
		c.entries.Add(k, s, ttl)
	}
}

func (c *cache) remove(k webhook.Key) { c.entries.Remove(k) }
