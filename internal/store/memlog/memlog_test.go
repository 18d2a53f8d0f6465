package memlog_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

func TestSuite(t *testing.T) {
	storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
		log := memlog.New()
		return func(testing.TB) store.Log { return log }
	})
}

func TestForks(t *testing.T) {
	storetest.Forks(t, func(testing.TB) func(testing.TB) store.Log {
		return func(testing.TB) store.Log { return memlog.New() }
	}, func(state *store.State, after store.Revision, changes []store.Entry) store.Log {
		return memlog.FromHistory(state, after, changes)
	})
}

// TestReplayFork: a log that begins with a state is replayed with the state's objects, apart from those
// that were written since.
func TestReplayFork(t *testing.T) {
	parent := storetest.Open(t, store.Options{Log: memlog.New()})
	write := func(s *store.Store, key string, current store.Revision) *store.Object {
		t.Helper()
		o, err := s.Commit(t.Context(), store.Write{Collection: "pods", Key: key, Value: []byte(`""`), RevisionAt: 1, If: current})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	kept, changed, deleted := write(parent, "kept", 0), write(parent, "changed", 0), write(parent, "deleted", 0)
	log := memlog.From(parent.Any())
	fork, err := stores.Fork(parent, parent.Any(), store.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	changed = write(fork, "changed", changed.Modified)
	if _, err := fork.Commit(t.Context(), store.Write{Collection: "pods", Key: "deleted", If: deleted.Modified}); err != nil {
		t.Fatal(err)
	}
	storetest.Close(t, fork)
	again := storetest.Open(t, store.Options{Log: log}).Any()
	for key, want := range map[string]*store.Object{"kept": kept, "changed": changed, "deleted": nil} {
		if got := again.Get("pods", key); got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
}
