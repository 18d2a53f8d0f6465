package pebblelog_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// TestCheckpoint copies a log while it is written to and compacted. Each copy has all earlier writes, is
// consistent and can be written to, and the log itself is as good as before: also as a power cut leaves it.
func TestCheckpoint(t *testing.T) {
	const copies = 3
	each := sample(t, 600, 150)
	dir := t.TempDir()
	o := pebblelog.Options{Dir: filepath.Join(dir, "log")}
	l, err := pebblelog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	value := make([]byte, 2000)
	current := map[string]*store.Object{}
	revision := store.Revision(0)
	write := func() {
		revision++
		key := fmt.Sprintf("k%03d", revision%200)
		before := current[key]
		after := &store.Object{Key: key, Held: value, Created: revision, Modified: revision}
		if before != nil {
			after.Created = before.Created
		}
		current[key] = after
		if err := l.Append(t.Context(), []store.Entry{{Collection: "c", Key: key, Revision: revision, Object: after, Before: before}}, nil); err != nil {
			t.Error(err)
		}
	}
	type made struct {
		dir string
		pebblelog.Summary
		least store.Revision
	}
	var all []made
	for n := range copies {
		for range each / 2 {
			write()
		}
		done := make(chan made)
		least := revision
		go func() {
			m := made{dir: filepath.Join(dir, fmt.Sprint("copy", n)), least: least}
			s, err := l.Checkpoint(t.Context(), m.dir)
			if err != nil {
				t.Error(err)
			}
			m.Summary = s
			done <- m
		}()
		for range each / 2 {
			write()
		}
		all = append(all, <-done)
		if err := l.Compact(t.Context(), revision-100); err != nil {
			t.Error(err)
		}
	}
	write()
	killed := filepath.Join(dir, "killed")
	if err := os.CopyFS(killed, os.DirFS(o.Dir)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	all = append(all, made{dir: killed, Summary: pebblelog.Summary{Revision: revision, Objects: 200}}, made{dir: o.Dir, Summary: pebblelog.Summary{Revision: revision, Objects: 200}})
	for _, m := range all {
		c, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: m.dir})
		if err != nil {
			t.Errorf("%s: %v", m.dir, err)
			continue
		}
		if err := c.Check(t.Context()); err != nil {
			t.Errorf("%s: %v", m.dir, err)
		}
		if got := c.Summary(); got.Revision != m.Revision || got.Revision < m.least || got.Objects != m.Objects {
			t.Errorf("%s: %+v, and the copy was said to have %+v, of revision %d or later", m.dir, got, m.Summary, m.least)
		}
		next := &store.Object{Key: "new", Held: value, Created: m.Revision + 1, Modified: m.Revision + 1}
		if err := c.Append(t.Context(), []store.Entry{{Collection: "c", Key: "new", Revision: m.Revision + 1, Object: next}}, nil); err != nil {
			t.Errorf("%s: %v", m.dir, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", m.dir, err)
		}
	}
}
