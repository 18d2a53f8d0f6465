package datadir_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestReplaceCopyKilled: if the process ends while a new copy takes the place of an old one, the directory has one of
// both afterwards.
func TestReplaceCopyKilled(t *testing.T) {
	d := written(t)
	old := backedUp(t, d)
	restored := &datadir.Dir{Path: filepath.Join(t.TempDir(), "new")}
	if _, err := restored.Restore(t.Context(), bytes.NewReader(old), datadir.RestoreOptions{KeepHistory: true}); err != nil {
		t.Fatal(err)
	}
	log := mustOpen(t, restored.Path)
	if err := log.Append(t.Context(), []store.Entry{{Collection: "c", Key: "new", Revision: 21, Object: &store.Object{Key: "new", Held: []byte("1"), Created: 21, Modified: 21}}}, nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)
	if err := os.RemoveAll(filepath.Join(restored.Path, "forks")); err != nil { // which the new copy does not have
		t.Fatal(err)
	}

	move := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Rename(filepath.Join(dir, "copy.new", name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	steps := []func(t *testing.T, dir string){
		remove("FORMAT"), remove("log"), remove("forks"), remove("pki"),
		func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "copy.new", "PLACED"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		move("log"), move("pki"), move("FORMAT"), remove("copy.new"),
	}
	for killed := -1; killed <= len(steps); killed++ { // -1: before the new copy is whole
		for _, follows := range []string{"https://server", ""} { // it is promoted without
			c := &datadir.Dir{Path: filepath.Join(t.TempDir(), "copy"), Follows: "https://server"}
			if _, err := c.MakeCopy(t.Context(), bytes.NewReader(old)); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(c.Path, "copy.new"), os.DirFS(restored.Path)); err != nil {
				t.Fatal(err)
			}
			if killed < 0 {
				remove("copy.new/FORMAT")(t, c.Path)
			}
			for i := range max(killed, 0) {
				steps[i](t, c.Path)
			}
			c = &datadir.Dir{Path: c.Path, Follows: follows}
			log, err := c.OpenLog(t.Context())
			if err != nil {
				t.Fatalf("after step %d: %v", killed, err)
			}
			o, err := log.Current("c", "new")
			if err != nil || (o != nil) != (killed >= 0) {
				t.Errorf("after step %d, the new object is %v, %v", killed, o, err)
			}
			if names, err := c.Forks().List(); err != nil || (len(names) == 0) != (killed >= 0) {
				t.Errorf("after step %d, there are the forks %v, %v", killed, names, err)
			}
			mustClose(t, log)
			if key, err := os.ReadFile(filepath.Join(c.Path, "pki", "ca.pem")); err != nil || string(key) != "a key" {
				t.Errorf("after step %d, the key is %q, %v", killed, key, err)
			}
			if _, err := os.Stat(filepath.Join(c.Path, "copy.new")); !os.IsNotExist(err) {
				t.Errorf("after step %d, the directory of the new copy stays: %v", killed, err)
			}
		}
	}
}
