package pebblelog_test

import (
	"path"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestSuite runs what every log passes, in memory and, but for -short, on the disk.
func TestSuite(t *testing.T) {
	t.Run("Memory", func(t *testing.T) {
		storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
			return opener(pebblelog.Options{Dir: "/log", FS: vfs.NewMem()})
		})
	})
	if testing.Short() {
		return
	}
	t.Run("Disk", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) func(testing.TB) store.Log {
			return opener(pebblelog.Options{Dir: path.Join(t.TempDir(), "log")})
		})
	})
}

// TestForks forks stores on the disk into memory.
func TestForks(t *testing.T) {
	storetest.Forks(t, func(testing.TB) func(testing.TB) store.Log {
		return opener(pebblelog.Options{Dir: "/log", FS: vfs.NewMem()})
	}, func(state *store.State, after store.Revision, changes []store.Entry) store.Log {
		return memlog.FromHistory(state, after, changes)
	})
}

func opener(o pebblelog.Options) func(testing.TB) store.Log {
	return func(t testing.TB) store.Log {
		log, err := pebblelog.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
}
