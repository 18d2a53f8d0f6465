package eventlimit

import (
	"cmp"
	"container/list"
	"sync"
	"time"
)

// buckets are the token buckets of a limit, as many as its cache holds. Its methods are safe for
// concurrent use.
type buckets struct {
	qps, burst float64
	size       int

	mu    sync.Mutex // guards the following
	byKey map[string]*list.Element
	order *list.List // of *bucket, the last used first
}

type bucket struct {
	key    string
	tokens float64
	at     time.Time // when tokens was right
}

func newBuckets(l Limit) *buckets {
	return &buckets{
		qps: float64(l.QPS), burst: float64(l.Burst), size: max(1, cmp.Or(int(l.CacheSize), defaultCacheSize)),
		byKey: map[string]*list.Element{}, order: list.New(),
	}
}

// take takes a token from the bucket of a key, and reports whether there was one.
func (b *buckets) take(key string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.bucket(key, now)
	if passed := now.Sub(one.at); passed > 0 { // a clock that was set back fills nothing
		one.tokens = min(b.burst, one.tokens+passed.Seconds()*b.qps)
	}
	one.at = now
	if one.tokens < 1 {
		return false
	}
	one.tokens--
	return true
}

// bucket returns the bucket of a key. A new one is full, and may take the place of another.
func (b *buckets) bucket(key string, now time.Time) *bucket {
	if e := b.byKey[key]; e != nil {
		b.order.MoveToFront(e)
		return e.Value.(*bucket)
	}
	if len(b.byKey) >= b.size {
		last := b.order.Back()
		b.order.Remove(last)
		delete(b.byKey, last.Value.(*bucket).key)
	}
	one := &bucket{key: key, tokens: b.burst, at: now}
	b.byKey[key] = b.order.PushFront(one)
	return one
}
