package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// TestSuite runs the suite of all logs, in memory and on the disk.
func TestSuite(t *testing.T) {
	t.Run("Memory", func(t *testing.T) {
		storetest.Run(t, func(testing.TB) func(testing.TB) store.Log {
			return opener(pebblelog.Options{Dir: "/log", FS: vfs.NewMem()})
		})
	})
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

// TestForkCopies: a fork of an old state counts the objects that it has alone. Others are those of its parent.
func TestForkCopies(t *testing.T) {
	const objects, size = 100, 1000
	s := storetest.Open(t, store.Options{Log: opener(pebblelog.Options{Dir: "/log", FS: vfs.NewMem()})(t), MaxMemory: 1})
	write := func(key string, current store.Revision) *store.Object {
		t.Helper()
		o, err := s.Commit(t.Context(), store.Write{Collection: "pods", Key: key, Value: []byte(`"` + strings.Repeat(" ", size) + `"`), RevisionAt: 1, If: current})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	var old []*store.Object
	for i := range objects {
		old = append(old, write(fmt.Sprintf("ns/%03d", i), 0))
	}
	then := s.Any().Revision()
	for i := range objects / 2 {
		write(old[i].Key, old[i].Modified)
	}

	b := store.NewBudget(1 << 20)
	account := func(most int64) *store.Account {
		t.Helper()
		a, err := b.Open(most)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	small := account(objects * size / 4)
	var full *store.CopyError
	if _, err := s.StateAt(t.Context(), then, small); !errors.As(err, &full) {
		t.Errorf("a fork whose memory is too small for the copies: %v", err)
	}
	if small.Close(); b.Used() != 0 {
		t.Errorf("a fork that was not made uses %d bytes", b.Used())
	}
	a := account(objects * size)
	state, err := s.StateAt(t.Context(), then, a)
	if err != nil {
		t.Fatal(err)
	}
	f, err := stores.Fork(s, state, store.Options{Log: memlog.From(state), Account: a})
	if err != nil {
		t.Fatal(err)
	}
	defer storetest.Close(t, f)
	if got := f.Any().Bytes(); got < objects/2*size || got > objects*size || b.Used() != got {
		t.Errorf("a fork of a state with %d replaced objects takes %d bytes, and uses %d", objects/2, got, b.Used())
	}
	for i, o := range old {
		got := f.Any().Get("pods", o.Key)
		if got == nil || got.Modified != o.Modified || !bytes.Equal(got.Bytes(), o.Bytes()) {
			t.Fatalf("object %d of the fork is another one", i)
		}
		if current := s.Any().Get("pods", o.Key); (got == current) != (i >= objects/2) {
			t.Errorf("object %d is a copy: %v", i, got != current)
		}
	}
	f.SetQuota(f.Any().Bytes() + 2*size)
	for i := range 2 {
		_, err = f.Commit(t.Context(), store.Write{Collection: "pods", Key: fmt.Sprint("ns/new", i), Value: []byte(`"` + strings.Repeat(" ", size) + `"`), RevisionAt: 1})
	}
	if !errors.As(err, new(*store.QuotaError)) {
		t.Errorf("a fork with as many copies as its quota allows: %v", err)
	}
	spent := store.NewBudget(objects * size / 4)
	if a, err = spent.Open(objects * size); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := s.StateAt(t.Context(), then, a); !errors.As(err, &full) {
		t.Errorf("a fork whose copies exceed the memory of all forks: %v", err)
	}
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
