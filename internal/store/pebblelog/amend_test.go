package pebblelog_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestAmend moves a log that was filled to later states, and compares it with a map after each.
func TestAmend(t *testing.T) {
	r := testrand.New(t)
	dir := t.TempDir()
	want := map[string]string{}
	object := func(key string, at store.Revision) *store.Object {
		return &store.Object{Key: key, Held: fmt.Appendf(nil, `{"v":"%d"}`, at), Created: at, Modified: at, RevisionAt: 6}
	}
	at := store.Revision(5)
	begin := func(yield func(string, *store.Object) bool) {
		for i := range 10 {
			o := object(fmt.Sprint("k", i), store.Revision(1+i%5))
			want["c "+o.Key] = string(o.Held)
			if !yield("c", o) {
				return
			}
		}
	}
	if err := pebblelog.Fill(t.Context(), pebblelog.Options{Dir: dir}, at, time.Time{}, begin); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		l, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		var entries []store.Entry
		for range r.IntN(20) {
			at++
			e := store.Entry{Collection: []string{"c", "d"}[r.IntN(2)], Key: fmt.Sprint("k", r.IntN(15)), Revision: at}
			if r.IntN(3) > 0 {
				e.Object = object(e.Key, at)
				want[e.Collection+" "+e.Key] = string(e.Object.Held)
			} else {
				delete(want, e.Collection+" "+e.Key)
			}
			entries = append(entries, e)
		}
		if err := l.Amend(t.Context(), at, entries); err != nil {
			t.Fatal(err)
		}
		if err := l.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := l.Summary(); s.Revision != at || s.Floor != at || s.Objects != uint64(len(want)) {
			t.Fatalf("the log has %+v, want %d objects at %d", s, len(want), at)
		}
		got := map[string]string{}
		for _, collection := range []string{"c", "d"} {
			for o, err := range l.ObjectsAt(t.Context(), collection, at, "", "") {
				if err != nil {
					t.Fatal(err)
				}
				got[collection+" "+o.Key] = string(o.Bytes())
			}
		}
		if !maps.Equal(got, want) {
			t.Fatalf("at %d: %v, want %v", at, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		if err := l.Amend(t.Context(), at-1, nil); err == nil {
			t.Error("a log went back")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Append(t.Context(), []store.Entry{{Collection: "new", Key: "k", Revision: at + 1, Object: object("k", at+1)}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Amend(t.Context(), at+2, nil); err == nil {
		t.Error("a log with a history was amended")
	}
}
