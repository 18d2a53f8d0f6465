package datadir_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/etcdsnapshot"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/migrate"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// source is a log with a history, and the writes that made it.
type source struct {
	t       *testing.T
	log     store.Log
	head    store.Revision
	current map[[2]string]*store.Object
	entries []store.Entry
}

func newSource(t *testing.T) *source {
	log, err := pebblelog.Open(t.Context(), pebblelog.Options{Dir: "/log", FS: vfs.NewMem()}) // a disk would sync each entry
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return &source{t: t, log: log, current: map[[2]string]*store.Object{}}
}

// put writes a version with the JSON behind its metadata; empty: it deletes the object.
func (s *source) put(collection, key, kind, rest string) {
	s.t.Helper()
	s.head += 3
	at := [2]string{collection, key}
	e := store.Entry{Collection: collection, Key: key, Revision: s.head, Before: s.current[at]}
	if rest != "" {
		namespace, name, _ := strings.Cut(key, "/")
		head := fmt.Sprintf(`{%s,"metadata":{"name":%q,"namespace":%q,"uid":"u","resourceVersion":"`, kind, name, namespace)
		e.Object = &store.Object{Key: key, Held: fmt.Appendf(nil, `%s%d","creationTimestamp":"2026-01-01T00:00:00Z"}%s}`, head, s.head, rest), Created: s.head, Modified: s.head, RevisionAt: int32(len(head))}
		if e.Before != nil {
			e.Object.Created = e.Before.Created
		}
		s.current[at] = e.Object
	} else {
		delete(s.current, at)
	}
	if err := s.log.Append(s.t.Context(), []store.Entry{e}, nil); err != nil {
		s.t.Fatal(err)
	}
	s.entries = append(s.entries, e)
}

const (
	configMap = `"kind":"ConfigMap","apiVersion":"v1"`
	widget    = `"kind":"Widget","apiVersion":"example.com/v1"`
)

func (s *source) migration() *migrate.Snapshot {
	return &migrate.Snapshot{Log: s.log, Codec: &etcdvalue.Codec{}, TTL: func(collection string) time.Duration {
		if collection == "events" {
			return time.Hour
		}
		return 0
	}}
}

// random makes a history of n changes.
func (s *source) random(n int) {
	r := testrand.New(s.t)
	for i := range n {
		collection, kind, rest := "configmaps", configMap, fmt.Sprintf(`,"data":{"v":"\u003c%d"}`, i)
		if r.IntN(2) == 0 {
			collection, kind, rest = "widgets.example.com", widget, fmt.Sprintf(`,"z":{"b":[%d],"a":"&"}`, i)
		}
		key := fmt.Sprintf("ns%d/n%d", r.IntN(2), r.IntN(10))
		if s.current[[2]string{collection, key}] != nil && r.IntN(4) == 0 {
			rest = ""
		}
		s.put(collection, key, kind, rest)
	}
}

// TestMigrateSnapshot: the file has each version since the floor, with its revisions and its content.
func TestMigrateSnapshot(t *testing.T) {
	for _, noHistory := range []bool{false, true} {
		s := newSource(t)
		s.random(300)
		floor := s.head / 2
		if err := s.log.Compact(t.Context(), floor); err != nil {
			t.Fatal(err)
		}
		m := s.migration()
		if m.NoHistory = noHistory; noHistory {
			floor = s.head
		}
		report, err := m.Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "s.db")
		if _, err := m.Write(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
		want := s.visible(floor)
		total := report.Total()
		if total.Objects != len(s.current) || total.Versions+total.Deletions != len(want) || total.Verified != len(want) || report.Head != uint64(s.head) || report.Floor != uint64(floor) {
			t.Errorf("the report: %+v of %d to %d, want %d objects and %d changes of %d to %d", total, report.Floor, report.Head, len(s.current), len(want), floor, s.head)
		}
		hasVersions(t, path, want)
	}
}

// TestMigrateSharedRevision: a log that was filled from etcd has objects of one transaction, with one revision. Their later
// versions continue them.
func TestMigrateSharedRevision(t *testing.T) {
	o := pebblelog.Options{Dir: "/log", FS: vfs.NewMem()}
	var objects []*store.Object
	for _, name := range []string{"a", "b", "c"} {
		head := fmt.Sprintf(`{%s,"metadata":{"name":%q,"namespace":"ns","uid":"u","resourceVersion":"`, configMap, name)
		objects = append(objects, &store.Object{Key: "ns/" + name, Held: fmt.Appendf(nil, `%s%d","creationTimestamp":"2026-01-01T00:00:00Z"}}`, head, 194), Created: 194, Modified: 194, RevisionAt: int32(len(head))})
	}
	err := pebblelog.Fill(t.Context(), o, 200, time.Time{}, func(yield func(string, *store.Object) bool) {
		for _, o := range objects {
			if !yield("configmaps", o) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	log, err := pebblelog.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := &source{t: t, log: log, head: 200, current: map[[2]string]*store.Object{}}
	for _, o := range objects {
		s.current[[2]string{"configmaps", o.Key}] = o
		s.entries = append(s.entries, store.Entry{Collection: "configmaps", Key: o.Key, Revision: o.Modified, Object: o})
	}
	s.put("configmaps", "ns/b", configMap, `,"data":{"v":"2"}`)
	s.put("configmaps", "ns/c", configMap, "")
	m := s.migration()
	if _, err := m.Survey(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.db")
	if _, err := m.Write(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	hasVersions(t, path, s.entries)
}

// visible returns the changes that can be seen at a revision or later.
func (s *source) visible(floor store.Revision) (all []store.Entry) {
	last := map[[2]string]store.Entry{}
	for _, e := range s.entries {
		if e.Revision > floor {
			all = append(all, e)
			continue
		}
		last[[2]string{e.Collection, e.Key}] = e
	}
	for _, e := range last {
		if e.Object != nil {
			all = append(all, e)
		}
	}
	return all
}

func hasVersions(t *testing.T, path string, want []store.Entry) {
	t.Helper()
	r, err := etcdsnapshot.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var codec etcdvalue.Codec
	for _, e := range want {
		v, found, err := r.At(int64(e.Revision), codec.Keys.Of(e.Collection, e.Key))
		if err != nil || !found || (e.Object == nil) != (v.Value == nil) {
			t.Fatalf("%s %s at %d: %+v, %v, %v", e.Collection, e.Key, e.Revision, v, found, err)
		}
		if e.Object == nil {
			continue
		}
		d, err := codec.Decode(e.Collection, v.Value)
		if err != nil {
			t.Fatal(err)
		}
		if o := d.Object(e.Key, store.Revision(v.Created), e.Revision); o.Created != e.Object.Created || e.Collection == "configmaps" && !bytes.Equal(o.Bytes(), e.Object.Bytes()) {
			t.Errorf("%s %s at %d:\n%s\nwant\n%s", e.Collection, e.Key, e.Revision, o.Bytes(), e.Object.Bytes())
		}
	}
	if r.Count() != len(want) {
		t.Errorf("%d versions, want %d", r.Count(), len(want))
	}
}

// TestMigrateProblems checks that objects that etcd cannot hold are named, and that there is no
// file.
func TestMigrateProblems(t *testing.T) {
	for _, row := range []struct {
		what, collection, key, kind, rest, says string
		accepted                                bool
	}{
		{"no key", "pods", "a/b/c", configMap, `,"x":1`, "pods a/b/c at 6 has no key in etcd", false},
		{"another kind", "configmaps", "ns/b", `"kind":"ConfigMap","apiVersion":"v1"`, `,"data":7`, "configmaps ns/b at 6", false},
		{"a field that protobuf does not have", "configmaps", "ns/b", configMap, `,"data":{"v":"1"},"fresh":true`, "configmaps ns/b at 6 differs", true},
	} {
		s := newSource(t)
		s.put("configmaps", "ns/a", configMap, `,"data":{"v":"1"}`)
		s.put(row.collection, row.key, row.kind, row.rest)
		path := filepath.Join(t.TempDir(), "s.db")
		for _, accept := range []bool{false, true} {
			m := s.migration()
			report, err := m.Survey(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.Convert(t.Context()); err != nil || report.Err() == nil || !strings.Contains(report.Err().Error(), row.says) {
				t.Errorf("%s: the dry run reports %v, %v", row.what, err, report.Err())
			}
			if report, err = m.Survey(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, err = m.Write(t.Context(), path, accept)
			if accept && row.accepted {
				if err != nil || report.ProblemCount != 1 {
					t.Errorf("%s, accepted: %v, %d problems", row.what, err, report.ProblemCount)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("%s: %v", row.what, err)
			}
			empty(t, filepath.Dir(path))
		}
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestMigrateInterrupted ends the context in each step: nothing stays behind.
func TestMigrateInterrupted(t *testing.T) {
	s := newSource(t)
	s.random(50)
	for _, step := range []string{"writing", "verifying"} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		m := s.migration()
		if _, err := m.Survey(ctx); err != nil {
			t.Fatal(err)
		}
		reached := false
		m.Progress = func(at string, done, all int) {
			if at == step && done == all/2 {
				reached = true
				cancel()
			}
		}
		if _, err := m.Write(ctx, filepath.Join(dir, "s.db"), false); !errors.Is(err, context.Canceled) || !reached {
			t.Errorf("%s: %v, reached: %v", step, err, reached)
		}
		empty(t, dir)
		cancel()
	}
}

// BenchmarkSnapshot migrates 20,000 ConfigMaps of 1 KiB, a tenth of them twice.
func BenchmarkSnapshot(b *testing.B) {
	t := new(testing.T)
	log, err := (&datadir.Dir{Path: filepath.Join(b.TempDir(), "data")}).OpenLog(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	s := &source{t: t, log: log, current: map[[2]string]*store.Object{}}
	for i := range 22_000 {
		s.put("configmaps", fmt.Sprintf("ns/n%d", i%20_000), configMap, `,"data":{"v":"`+strings.Repeat("x", 1024)+`"}`)
	}
	for b.Loop() {
		m := s.migration()
		if _, err := m.Survey(b.Context()); err != nil {
			b.Fatal(err)
		}
		size, err := m.Write(b.Context(), filepath.Join(b.TempDir(), "s.db"), false)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(size)/(1<<20), "MiB")
	}
	if err := log.Close(); err != nil {
		b.Error(err)
	}
}

// copyOf returns a log with the entries of the source so far.
func (s *source) copyOf() *source {
	s.t.Helper()
	c := newSource(s.t)
	for _, e := range s.entries {
		if err := c.log.Append(s.t.Context(), []store.Entry{e}, nil); err != nil {
			s.t.Fatal(err)
		}
	}
	c.head, c.entries = s.head, slices.Clone(s.entries)
	return c
}

// clone returns a copy with other content in the version at an index or before it.
func (s *source) clone(i int) *source {
	s.t.Helper()
	c := newSource(s.t)
	c.head = s.head
	for s.entries[i].Object == nil {
		i--
	}
	for n, e := range s.entries {
		if n == i {
			o := e.Object
			e.Object = &store.Object{Key: o.Key, Held: bytes.Replace(o.Held, []byte(`"uid":"u"`), []byte(`"uid":"v"`), 1), Created: o.Created, Modified: o.Modified, RevisionAt: o.RevisionAt}
		}
		if before := c.current[[2]string{e.Collection, e.Key}]; before != nil {
			e.Before = before
		}
		if err := c.log.Append(s.t.Context(), []store.Entry{e}, nil); err != nil {
			s.t.Fatal(err)
		}
		c.current[[2]string{e.Collection, e.Key}] = e.Object
	}
	return c
}

// TestMigrateLive checks that the file has the final state of the source, although it was begun
// from a copy.
func TestMigrateLive(t *testing.T) {
	s := newSource(t)
	s.random(200)
	begun := s.copyOf()
	if err := begun.log.Compact(t.Context(), begun.head/3); err != nil {
		t.Fatal(err)
	}
	m := begun.migration()
	report, err := m.Survey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s.db")
	_, err = m.WriteLive(t.Context(), path, false, func() (store.Log, error) {
		s.random(150)
		return s.log, s.log.Compact(t.Context(), begun.head/2)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := s.visible(begun.head / 3)
	if total := report.Total(); total.Objects != len(s.current) || total.Versions+total.Deletions != len(want) || total.Verified != len(want) || report.Head != uint64(s.head) {
		t.Errorf("the report: %+v up to %d, want %d objects and %d changes up to %d", total, report.Head, len(s.current), len(want), s.head)
	}
	hasVersions(t, path, want)

	other := newSource(t)
	other.random(250)
	short := newSource(t)
	short.random(10)
	late := s.copyOf()
	if err := late.log.Compact(t.Context(), begun.head+3); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	// A clone has the same keys and revisions, and other content: of an object, and of a version in the history.
	object, version := begun.clone(len(begun.entries)-1), begun.clone(len(begun.entries)/2)
	for says, stopped := range map[string]func() (store.Log, error){
		"the copy is not one of this directory": func() (store.Log, error) { return other.log, nil },
		"is not in the copy: the copy":          func() (store.Log, error) { return object.log, nil },
		"is not in the copy: the copy is not":   func() (store.Log, error) { return version.log, nil },
		"and that of the copy is":               func() (store.Log, error) { return short.log, nil },
		"start the migration again":             func() (store.Log, error) { return late.log, nil },
		"failed":                                func() (store.Log, error) { return nil, failed },
	} {
		m := begun.migration()
		if _, err := m.Survey(t.Context()); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := m.WriteLive(t.Context(), filepath.Join(dir, "s.db"), false, stopped); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q in it", err, says)
		}
		empty(t, dir)
	}
}
