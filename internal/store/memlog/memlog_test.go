package memlog_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
		log := memlog.New()
		return func(testing.TB) store.Log { return log }
	})
}
