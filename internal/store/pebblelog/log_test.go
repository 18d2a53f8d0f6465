package pebblelog_test

import (
	"errors"
	"iter"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

func lastError[T any](seq iter.Seq2[T, error]) error {
	var last error
	for _, err := range seq {
		last = err
	}
	return last
}

// TestOutside reads revisions that the log does not have.
func TestOutside(t *testing.T) {
	rng := testrand.New(t)
	log := mustOpen(t, vfs.NewMem())
	m := &model{}
	for m.head() < 20 {
		g := m.group(rng)
		if err := log.Append(t.Context(), g, nil); err != nil {
			t.Fatal(err)
		}
		m.add(g, nil)
	}
	if err := log.Compact(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	var expired *store.ExpiredError
	if err := lastError(log.ObjectsAt(t.Context(), "pods", 9, "", "")); !errors.As(err, &expired) || expired.Floor != 10 {
		t.Errorf("objects below the floor: got %v, want expired", err)
	}
	if err := lastError(log.Changes(t.Context(), "", 9, 20)); !errors.As(err, &expired) {
		t.Errorf("changes below the floor: got %v, want expired", err)
	}
	var large *store.TooLargeError
	if err := lastError(log.ObjectsAt(t.Context(), "pods", m.head()+1, "", "")); !errors.As(err, &large) {
		t.Errorf("objects in the future: got %v, want too large", err)
	}
	if err := lastError(log.Changes(t.Context(), "", 1<<64-1, 1<<64-1)); err != nil {
		t.Errorf("no changes: %v", err)
	}
	usage := log.Usage()
	if usage.HistoryBytes <= 0 || usage.TotalBytes <= 0 {
		t.Errorf("usage: %+v", usage)
	}
	if err := log.Compact(t.Context(), 1<<64-1); err != nil {
		t.Fatal(err)
	}
	if got := log.Usage().HistoryBytes; got != 0 {
		t.Errorf("after everything was compacted the history has %d bytes", got)
	}
	if err := log.Check(t.Context()); err != nil {
		t.Error(err)
	}
	mustClose(t, log)
	if err := lastError(log.Changes(t.Context(), "", 20, 20)); !errors.Is(err, store.ErrClosed) {
		t.Errorf("changes of a closed log: got %v, want closed", err)
	}
	if _, err := log.Replay(t.Context(), nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("replay of a closed log: got %v, want closed", err)
	}
}

// TestCloseEndsReads closes a log in the middle of a read.
func TestCloseEndsReads(t *testing.T) {
	rng := testrand.New(t)
	log := mustOpen(t, vfs.NewMem())
	m := &model{}
	for len(m.entries) < 50 {
		g := m.group(rng)
		if err := log.Append(t.Context(), g, nil); err != nil {
			t.Fatal(err)
		}
		m.add(g, nil)
	}
	closed := make(chan error)
	var last error
	for _, err := range log.Changes(t.Context(), "", 0, m.head()) {
		if last = err; err == nil && closed != nil {
			go func(c chan error) { c <- log.Close() }(closed)
			// Close refuses new reads before it waits for this one.
			for lastError(log.Changes(t.Context(), "", 0, 1)) == nil {
			}
			defer func(c chan error) {
				if err := <-c; err != nil {
					t.Error(err)
				}
			}(closed)
			closed = nil
		}
	}
	if !errors.Is(last, store.ErrClosed) {
		t.Errorf("the read ended with %v, want closed", last)
	}
}

// TestRefusedEntries: an entry that could not be read back is not stored, and fails the
// log, because the store is wrong.
func TestRefusedEntries(t *testing.T) {
	o := object("k", 2, nil, 0)
	for name, e := range map[string]store.Entry{
		"no collection":         {Key: "k", Revision: 2, Object: o},
		"no key":                {Collection: "c", Revision: 2, Object: o},
		"zero byte":             {Collection: "c", Key: "k\x00", Revision: 2, Object: o},
		"old revision":          {Collection: "c", Key: "k", Revision: 1, Object: object("k", 1, nil, 0)},
		"other revision":        {Collection: "c", Key: "k", Revision: 3, Object: o},
		"nothing":               {Collection: "c", Key: "k", Revision: 2},
		"revision out of place": {Collection: "c", Key: "k", Revision: 2, Object: &store.Object{Key: "k", Modified: 2, RevisionAt: 1}},
	} {
		log := mustOpen(t, vfs.NewMem())
		first := store.Entry{Collection: "c", Key: "first", Revision: 1, Object: object("first", 1, nil, 0)}
		if err := log.Append(t.Context(), []store.Entry{first}, nil); err != nil {
			t.Fatal(err)
		}
		if err := log.Append(t.Context(), []store.Entry{e}, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
		if err := log.Close(); err == nil {
			t.Errorf("%s: the log goes on", name)
		}
	}
}
