package pebblelog

import "github.com/tidemark-dev/tidemark/internal/store"

// SetReach makes definitions of actors serve fewer revisions.
func (o *Options) SetReach(n store.Revision) { o.reach = n }

// CacheBytes is the size of the blocks in Pebble's cache.
func (l *Log) CacheBytes() int64 { return l.db.Metrics().BlockCache.Size }
