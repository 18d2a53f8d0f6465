package memlog_test

import (
	"flag"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

var _ = flag.Uint64("seed", 0, "seed of the randomized tests; zero takes a fresh one")

func TestSuite(t *testing.T) {
	storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
		log := memlog.New()
		return func(testing.TB) store.Log { return log }
	})
}
