package pebblelog_test

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// objects yields n objects of a collection, of 1 KiB each, modified at the revisions 1 to n.
func objects(n int) iter.Seq2[string, *store.Object] {
	return func(yield func(string, *store.Object) bool) {
		for i := range n {
			r := store.Revision(i + 1)
			if !yield("c", &store.Object{Key: fmt.Sprintf("k%05d", i), Held: []byte(strings.Repeat("x", 1<<10)), Created: r, Modified: r}) {
				return
			}
		}
	}
}

// TestFill: a log that was filled begins with the state, goes on, and is consistent.
func TestFill(t *testing.T) {
	const n, head = 5000, 10_000
	newest := time.Unix(1_790_000_000, 0).UTC()
	o := pebblelog.Options{Dir: t.TempDir()}
	if err := pebblelog.Fill(t.Context(), o, head, newest, objects(n)); err != nil {
		t.Fatal(err)
	}
	l, err := pebblelog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	loaded := make(chan *store.Object, n)
	b, err := l.Replay(t.Context(), func(_ string, o *store.Object) error { loaded <- o; return nil })
	if err != nil || len(loaded) != n || b.Head != head || b.Floor != head || !b.Time.Equal(newest) {
		t.Errorf("%d objects, %+v, %v", len(loaded), b, err)
	}
	before, err := l.Current("c", "k00007")
	if err != nil || before == nil || before.Modified != 8 {
		t.Fatal(before, err)
	}
	after := &store.Object{Key: before.Key, Held: []byte("y"), Created: before.Created, Modified: head + 1}
	if err := l.Append(t.Context(), []store.Entry{{Collection: "c", Key: before.Key, Revision: head + 1, Object: after, Before: before}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Error(err)
	}
	for o, err := range l.ObjectsAt(t.Context(), "c", head, "k00007", "") {
		if err != nil || o.Modified != 8 {
			t.Error(o, err)
		}
	}
	if err := l.Compact(t.Context(), head+1); err != nil {
		t.Error(err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Fill(t.Context(), head+2, newest, objects(1)); err == nil {
		t.Error("a log that is in use was filled")
	}
}

// TestFillRefuses: no log begins with an object that could not be read back.
func TestFillRefuses(t *testing.T) {
	if err := pebblelog.Fill(t.Context(), pebblelog.Options{Dir: t.TempDir()}, 1, time.Time{}, objects(2)); err == nil {
		t.Error("an object newer than the state is accepted")
	}
}
