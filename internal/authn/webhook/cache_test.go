package webhook

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// TestCacheBytes checks that the memory of the cache is bounded, and that it evicts the least
// recently used entries.
func TestCacheBytes(t *testing.T) {
	now := time.Now()
	c := newCache(func() time.Time { return now })
	key := func(n int) (k webhook.Key) {
		binary.BigEndian.PutUint64(k[:], uint64(n))
		return k
	}
	groups := strings.Split(strings.Repeat("g,", 1<<16), ",") // many short ones need the most memory for their text
	large := &result{user: &authn.User{Name: "ann", Groups: groups}}
	if large.size() < 3<<20 {
		t.Fatalf("%d groups count as %d bytes", len(groups), large.size())
	}
	for n := range 100 {
		c.put(key(n), large, time.Minute)
		c.put(key(n), large, time.Minute) // it counts once
		c.get(key(0))
		if c.bytes > cacheBytes || c.bytes != len(c.entries)*large.size() || c.order.Len() != len(c.entries) {
			t.Fatalf("%d entries have %d bytes", len(c.entries), c.bytes)
		}
	}
	if most := cacheBytes / large.size(); len(c.entries) != most || c.get(key(0)) == nil || c.get(key(1)) != nil || c.get(key(99)) == nil {
		t.Errorf("%d entries, want %d, with the first one, which was used", len(c.entries), most)
	}
	c.put(key(200), large, time.Minute)
	c.put(key(200), &result{user: &authn.User{Name: strings.Repeat("x", cacheBytes/8)}}, time.Minute)
	if c.get(key(200)) != nil {
		t.Error("a result took more than an eighth of the cache, or left an earlier one there")
	}
	now = now.Add(time.Minute)
	if c.get(key(0)) != nil {
		t.Error("a result was kept after its time")
	}
}
