package pebblelog_test

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
)

// secrets writes objects whose values can be found in the files of a log.
type secrets struct {
	t        *testing.T
	o        pebblelog.Options
	log      *pebblelog.Log
	revision store.Revision
	current  map[string]*store.Object
}

// of returns a text that only the version of a revision has.
func (s *secrets) of(r store.Revision) string { return fmt.Sprintf("<secret-%d>", r) }

func (s *secrets) open() {
	s.t.Helper()
	var err error
	if s.log, err = pebblelog.Open(s.t.Context(), s.o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *secrets) close() {
	s.t.Helper()
	if err := s.log.Close(); err != nil {
		s.t.Fatal(err)
	}
}

// write writes an object, or deletes it.
func (s *secrets) write(key string, deletes bool) store.Revision {
	s.t.Helper()
	s.revision++
	e := store.Entry{Collection: "secrets", Key: key, Revision: s.revision, Before: s.current[key]}
	delete(s.current, key)
	if !deletes {
		e.Object = &store.Object{Key: key, Held: append([]byte(s.of(s.revision)), rand.Text()...), Created: s.revision, Modified: s.revision}
		if e.Before != nil {
			e.Object.Created = e.Before.Created
		}
		s.current[key] = e.Object
	}
	if err := s.log.Append(s.t.Context(), []store.Entry{e}, nil); err != nil {
		s.t.Fatal(err)
	}
	return s.revision
}

// reclaim makes Pebble compact, while a reader of the history keeps the old records in the tables.
func (s *secrets) reclaim(floor store.Revision) {
	s.t.Helper()
	for _, err := range s.log.Changes(s.t.Context(), "", s.log.Floor(), s.revision) {
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.log.Compact(s.t.Context(), floor); err != nil {
			s.t.Fatal(err)
		}
		if err := s.log.Reclaim(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		break
	}
}

var secretText = regexp.MustCompile(`<secret-(\d+)>`)

// found returns the revisions whose versions are in some file of the directory.
func found(t *testing.T, dir string) map[store.Revision]bool {
	t.Helper()
	all := map[store.Revision]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, text := range secretText.FindAllSubmatch(content, -1) {
			if r, err := strconv.ParseUint(string(text[1]), 10, 64); err == nil {
				all[store.Revision(r)] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRewrite: after Rewrite, no file has the versions that are gone: replaced and deleted ones, in write-ahead logs and in
// tables of all levels, also those that a reader held up. The rest stays, and the log goes on.
func TestRewrite(t *testing.T) {
	for _, all := range []bool{true, false} {
		t.Run(fmt.Sprint("all=", all), func(t *testing.T) {
			s := &secrets{t: t, o: pebblelog.Options{Dir: filepath.Join(t.TempDir(), "log")}, current: map[string]*store.Object{}}
			s.open()
			round := func() {
				for i := range 40 {
					s.write(fmt.Sprintf("k%02d", i), i%4 == 3 && s.current[fmt.Sprintf("k%02d", i)] != nil)
				}
			}
			round()
			s.reclaim(0)
			round()
			s.reclaim(s.revision - 10)
			s.close()
			s.open()
			round()
			floor := s.revision
			s.reclaim(floor)
			s.write("k00", false)
			s.write("last", false)
			s.write("last", true)
			s.close()
			gone := map[store.Revision]bool{}
			for r := range s.revision {
				gone[r+1] = true
			}
			live := map[string]*store.Object{}
			for key, o := range s.current {
				live[key] = o
				delete(gone, o.Modified)
			}
			if !all { // the versions that the history above the floor has
				for r := range s.revision - floor {
					delete(gone, floor+r+1)
				}
				delete(gone, floor-39) // of k00, which was replaced above the floor
			}
			before := found(t, s.o.Dir)
			kept := 0
			for r := range gone {
				if before[r] {
					kept++
				}
			}
			if kept == 0 {
				t.Error("the files have nothing that is gone: the test shows nothing")
			}
			sum, err := pebblelog.Rewrite(t.Context(), s.o, all)
			if err != nil {
				t.Fatal(err)
			}
			after := found(t, s.o.Dir)
			for r := range gone {
				if after[r] {
					t.Errorf("version %d is gone, and in a file", r)
				}
			}
			if want := map[bool]store.Revision{true: s.revision, false: floor}[all]; sum.Floor != want || sum.Revision != s.revision || sum.Objects != uint64(len(live)) {
				t.Errorf("the log has %+v, want the floor %d, revision %d, %d objects", sum, want, s.revision, len(live))
			}
			s.open()
			defer s.close()
			if err := s.log.Check(t.Context()); err != nil {
				t.Error(err)
			}
			n := 0
			for o, err := range s.log.ObjectsAt(t.Context(), "secrets", s.revision, "", "") {
				if err != nil {
					t.Fatal(err)
				}
				if n++; live[o.Key] == nil || !strings.HasPrefix(string(o.Held), s.of(o.Modified)) {
					t.Errorf("%s is %s", o.Key, o.Held)
				}
			}
			if n != len(live) {
				t.Errorf("%d objects, want %d", n, len(live))
			}
			changes := 0
			for _, err := range s.log.Changes(t.Context(), "", sum.Floor, s.revision) {
				if err != nil {
					t.Fatal(err)
				}
				changes++
			}
			if want := int(s.revision - sum.Floor); changes != want {
				t.Errorf("%d changes, want %d", changes, want)
			}
			s.write("k00", false)
		})
	}
}
