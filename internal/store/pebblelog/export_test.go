package pebblelog

import "github.com/tidemark-dev/tidemark/internal/store"

// SetReach makes definitions of actors serve fewer revisions.
func (o *Options) SetReach(n store.Revision) { o.reach = n }
