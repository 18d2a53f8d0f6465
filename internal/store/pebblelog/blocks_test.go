package pebblelog_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestCacheSize: the cache of blocks is large while the history is read, and small when it has not been read for a minute.
func TestCacheSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const small = 2 << 20
		fs := vfs.NewMem()
		log := mustOpen(t, fs)
		var head store.Revision
		var group []store.Entry
		for head < 3000 {
			head++
			o := object(fmt.Sprint(head), head, nil, 2<<10)
			group = append(group, store.Entry{Collection: "pods", Key: o.Key, Revision: head, Object: o})
		}
		if err := log.Append(t.Context(), group, nil); err != nil {
			t.Fatal(err)
		}
		mustClose(t, log)
		log = mustOpen(t, fs) // the objects are in tables now
		defer mustClose(t, log)
		read := func() {
			t.Helper()
			for _, err := range log.ObjectsAt(t.Context(), "pods", head, "", "") {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if size := log.CacheBytes(); size > small {
			t.Errorf("before a read the cache has %d bytes", size)
		}
		read()
		if size := log.CacheBytes(); size <= small {
			t.Errorf("after a read the cache has %d bytes", size)
		}
		time.Sleep(59 * time.Second)
		read()
		time.Sleep(59 * time.Second)
		if size := log.CacheBytes(); size <= small {
			t.Errorf("59 seconds after a read the cache has %d bytes", size)
		}
		time.Sleep(2 * time.Second)
		if size := log.CacheBytes(); size > small {
			t.Errorf("61 seconds after a read the cache has %d bytes", size)
		}
	})
}
