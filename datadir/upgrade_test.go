package datadir_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// oldChanges are the changes in testdata/format1.tar.gz: a data directory as the last program wrote it that knew
// format 1 alone, after a restart and a clean stop.
var oldChanges = []string{
	"1 default/a: - one", "2 default/b: - two", "3 default/a: one three",
	"4 default/b: two -", "5 default/a: three four", "6 default/c: - five",
}

// changeTexts returns all changes of a store, with their origins.
func changeTexts(t *testing.T, s *store.Store) (texts []string, origins []store.Origin) {
	t.Helper()
	floor, _ := s.Bounds()
	f, err := s.Feed(floor)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]store.CollectionChange, 100)
	n, err := f.TryNext(t.Context(), buf)
	if err != nil {
		t.Fatal(err)
	}
	text := func(o *store.Object) string {
		if o == nil {
			return "-"
		}
		_, rest, _ := strings.Cut(string(o.Bytes()), `"text":"`)
		word, _, _ := strings.Cut(rest, `"`)
		return word
	}
	for _, ch := range buf[:n] {
		texts = append(texts, fmt.Sprintf("%d %s: %s %s", ch.Revision, ch.Key(), text(ch.Before), text(ch.After)))
		origins = append(origins, ch.Origin())
	}
	return texts, origins
}

// TestFormat1 opens a directory of format 1, also with the oldest form of its HEAD. The history is
// there, without origins. The log goes on in format 2.
func TestFormat1(t *testing.T) {
	for _, head := range []string{"tidehd2\n", "tidehd1\n"} {
		dir := storetest.Unpack(t, "testdata/format1.tar.gz")
		headFile := filepath.Join(dir, "log", "HEAD")
		b, err := os.ReadFile(headFile)
		if err != nil || !bytes.HasPrefix(b, []byte("tidehd2\n")) {
			t.Fatalf("HEAD: %q, %v", b, err)
		}
		if head != "tidehd2\n" { // a head alone
			if err := os.WriteFile(headFile, append([]byte(head), b[8:88]...), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
		open := func() *store.Store {
			t.Helper()
			return storetest.Open(t, store.Options{Log: mustOpen(t, dir), Now: func() time.Time { return now }})
		}
		s := open()
		got, origins := changeTexts(t, s)
		if strings.Join(got, "\n") != strings.Join(oldChanges, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(oldChanges, "\n"))
		}
		for i, o := range origins {
			if o != (store.Origin{}) {
				t.Errorf("%s has the origin %+v", got[i], o)
			}
		}
		text := `{"text":"new","rv":"`
		by := store.Origin{Verb: store.VerbCreate, Actor: &store.Actor{User: "alice"}}
		if _, err := s.Commit(t.Context(), store.Write{Collection: "configmaps", Key: "default/d", Value: []byte(text + `"}`), RevisionAt: len(text), Origin: &by}); err != nil {
			t.Fatal(err)
		}
		storetest.Close(t, s)
		if b, err := os.ReadFile(headFile); err != nil || !bytes.HasPrefix(b, []byte("tidehd3\n")) {
			t.Errorf("HEAD afterwards: %q, %v", b, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "FORMAT")); err != nil || string(b) != "tidemark data directory, format 2\n" {
			t.Errorf("FORMAT afterwards: %q, %v", b, err)
		}

		s = open()
		got, origins = changeTexts(t, s)
		if len(got) != 7 || got[6] != "7 default/d: - new" || origins[5] != (store.Origin{}) {
			t.Fatalf("after the first write of format 2: %q, %+v", got, origins)
		}
		if o := origins[6]; !o.Time.Equal(now) || o.Verb != store.VerbCreate || o.Actor.User != "alice" {
			t.Errorf("the origin of the first write of format 2: %+v", o)
		}
		storetest.Close(t, s)
		log, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: filepath.Join(dir, "log")})
		if err != nil {
			t.Fatal(err)
		}
		if err := log.Check(t.Context()); err != nil {
			t.Error(err)
		}
		mustClose(t, log)
	}
}

// TestFormat1Refused: a directory of format 1 whose log is refused keeps its format, so that the
// program that wrote it can still open it.
func TestFormat1Refused(t *testing.T) {
	dir := storetest.Unpack(t, "testdata/format1.tar.gz")
	if err := os.Remove(filepath.Join(dir, "log", "HEAD")); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, "HEAD")
	if b, err := os.ReadFile(filepath.Join(dir, "FORMAT")); err != nil || string(b) != "tidemark data directory, format 1\n" {
		t.Errorf("FORMAT afterwards: %q, %v", b, err)
	}
}
