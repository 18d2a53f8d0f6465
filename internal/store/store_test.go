package store_test

import (
	"context"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// durable is a log in memory that passes for one whose history can be read back.
type durable struct{ *memlog.Log }

func (d durable) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	b, err := d.Log.Replay(ctx, load)
	b.InMemory = false
	return b, err
}

func TestSuite(t *testing.T) {
	storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
		log := &memlog.Log{Start: 95} // the digits of revisions grow during the tests
		return func(testing.TB) store.Log { return durable{log} }
	})
}
