// Package storetest is one suite that every log passes: the contract of
// store.Log itself, and the store on top of it, restarts included.
//
// Randomized tests print their seed, and take it back:
//
//	go test ./internal/store/memlog -run Suite/Model -seed 123
package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var stepsFlag = flag.Int("storetest.steps", 0, "steps of each randomized test; 0 is 3000 in the full tier, 600 in others")

// steps returns how many steps a randomized test makes: those of the flag, unless it is zero.
func steps(t testing.TB, flag, full, others int) int {
	t.Helper()
	switch {
	case flag > 0:
		return flag
	case tier.IsFull(t):
		return full
	}
	return others
}

// Medium makes empty storage for a log, and returns a function that opens the log: first,
// and again after it was closed.
type Medium func(t testing.TB) (open func(t testing.TB) store.Log)

// Run runs the whole suite; each test gets a medium of its own.
func Run(t *testing.T, medium Medium) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Medium)
	}{
		{"Log/Empty", testLogEmpty},
		{"Log/Order", testLogOrder},
		{"Log/Restart", testLogRestart},
		{"Log/Compact", testLogCompact},
		{"Log/Concurrent", testLogConcurrent},
		{"Conditions", testConditions},
		{"Unfit", testUnfit},
		{"Transactions", testTransactions},
		{"Claims", testClaims},
		{"Together", testTogether},
		{"Groups", testGroups},
		{"Exact", testExact},
		{"Cursors", testCursors},
		{"Feed", testFeed},
		{"Replica", testReplica},
		{"Replica/Wakes", testReplicaWakes},
		{"Recall", testRecall},
		{"Origin", testOrigin},
		{"Origin/Limits", testOriginLimits},
		{"Restart", testRestart},
		{"CompactToEmpty", testCompactToEmpty},
		{"Model", testModel},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, medium) })
	}
}

// Open opens a store and checks it when the test ends. OnFatal fails the test, unless it is
// given.
func Open(t testing.TB, o store.Options) *store.Store {
	t.Helper()
	if o.OnFatal == nil {
		o.OnFatal = func(err error) { t.Errorf("the log failed: %v", err) }
	}
	s, err := stores.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { Close(t, s) })
	return s
}

// Close checks the store, and closes it.
func Close(t testing.TB, s *store.Store) {
	t.Helper()
	if err := s.Check(context.Background()); err != nil && !errors.Is(err, store.ErrClosed) {
		t.Errorf("check: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// put returns a write of an object whose value contains the text.
func put(collection, key, text string, condition store.Revision) store.Write {
	head := fmt.Sprintf(`{"text":%q,"rv":"`, text)
	return store.Write{Collection: collection, Key: key, Value: []byte(head + `"}`), RevisionAt: len(head), If: condition}
}

func del(collection, key string, condition store.Revision) store.Write {
	return store.Write{Collection: collection, Key: key, If: condition}
}

// value returns the bytes of the object of put at a revision.
func value(text string, r store.Revision) string {
	return fmt.Sprintf(`{"text":%q,"rv":"%d"}`, text, r)
}

func mustCommit(t testing.TB, s *store.Store, w store.Write) *store.Object {
	t.Helper()
	o, err := s.Commit(t.Context(), w)
	if err != nil {
		t.Fatalf("commit of %s %s: %v", w.Collection, w.Key, err)
	}
	return o
}

// collect turns a scan that may fail into a slice.
func collect(seq iter.Seq2[*store.Object, error]) ([]*store.Object, error) {
	var all []*store.Object
	for o, err := range seq {
		if err != nil {
			return all, err
		}
		all = append(all, o)
	}
	return all, nil
}

// text formats objects so that differences are readable.
func text(objects []*store.Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&b, "%s@%d(%d) %s\n", o.Key, o.Modified, o.Created, o.Bytes())
	}
	return b.String()
}

// exact reads a whole collection at a revision.
func exact(t testing.TB, s *store.Store, collection string, r store.Revision) []*store.Object {
	t.Helper()
	v, err := s.Exact(t.Context(), collection, r, 0)
	if err != nil {
		t.Fatalf("exact %s at %d: %v", collection, r, err)
	}
	defer v.Close()
	all, err := collect(v.Scan("", ""))
	if err != nil {
		t.Fatalf("scan of %s at %d: %v", collection, r, err)
	}
	if n, known := v.Count("", ""); known && n != len(all) {
		t.Fatalf("count of %s at %d: got %d, %v, want %d", collection, r, n, err, len(all))
	}
	return all
}

// drain reads all events of a cursor.
func drain(t testing.TB, c *store.Cursor, buf []*store.Change) []*store.Change {
	t.Helper()
	var all []*store.Change
	for {
		n, err := c.TryNext(t.Context(), buf)
		if err != nil {
			t.Fatalf("next: %v", err)
		}
		if n == 0 {
			if c.Ready() { // it may have looked at a part only
				c.Wait()
				continue
			}
			return all
		}
		all = append(all, slices.Clone(buf[:n])...)
	}
}

// Within fails the test when something takes forever.
func Within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	await.Value(t, what, done)
}

// Next waits until c has changes, at least one, or the context ends, and fills buf with them. It
// returns their number.
func Next(ctx context.Context, c *store.Cursor, buf []*store.Change) (int, error) {
	defer context.AfterFunc(ctx, c.Wake)()
	for {
		n, err := c.TryNext(ctx, buf)
		if n > 0 || err != nil || len(buf) == 0 {
			return n, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		c.Wait()
	}
}
