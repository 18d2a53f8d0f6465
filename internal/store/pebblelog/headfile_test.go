package pebblelog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestHeadIsDurable renews HEAD right after a compaction, whose batches are not
// synced, and cuts the power: HEAD must not name a lost revision.
func TestHeadIsDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	l, err := Open(t.Context(), Options{Dir: "/log", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	var before *store.Object
	for r := store.Revision(1); r < 5; r++ {
		o := &store.Object{Key: "k", Held: []byte{'0' + byte(r)}, Created: 1, Modified: r}
		e := store.Entry{Collection: "c", Key: "k", Revision: r, Object: o, Before: before}
		if err := l.Append(t.Context(), []store.Entry{e}, nil); err != nil {
			t.Fatal(err)
		}
		before = o
	}
	if err := l.Compact(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	// As after a flush; the second value is taken when the first was seen to.
	l.copyHead <- struct{}{}
	l.copyHead <- struct{}{}
	l.copyHead <- struct{}{}
	cut := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = Open(t.Context(), Options{Dir: "/log", FS: cut})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
