// Package stores opens stores: it gives each the writer for its log.
package stores

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/groupcommit"
	"github.com/tidemark-dev/tidemark/internal/store/sharedwriter"
)

// Open replays Options.Log, or loads Options.Shared, and starts the store. The store owns the
// log from the call on, and closes it, also when Open fails.
func Open(ctx context.Context, o store.Options) (*store.Store, error) {
	if o.Shared != nil {
		return sharedwriter.Open(ctx, o)
	}
	return groupcommit.Open(ctx, o)
}

// Fork starts a store at a state of a parent, on a log in memory that has this state and the changes that led
// to it: memlog.From and memlog.FromHistory make one. The log is not replayed. Options are those of Open; see Store.Fork.
func Fork(parent *store.Store, state *store.State, o store.Options) (*store.Store, error) {
	return groupcommit.Fork(parent, state, o)
}
