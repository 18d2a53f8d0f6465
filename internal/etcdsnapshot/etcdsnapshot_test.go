package etcdsnapshot_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-dev/tidemark/internal/etcdsnapshot"
)

// write writes a file with versions. A Version without a Value deletes.
func write(t *testing.T, path string, floor int64, versions []etcdsnapshot.Version, before []int64) {
	t.Helper()
	w, err := etcdsnapshot.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i, v := range versions {
		if err := w.Put(v, before[i]); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.Finish(floor)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
}

var some = []etcdsnapshot.Version{
	{Key: []byte("/registry/b"), Value: []byte("b7"), Revision: 7, Created: 3},
	{Key: []byte("/registry/a"), Value: []byte("a5"), Revision: 5, Created: 5},
	{Key: []byte("/registry/a"), Value: []byte("a9"), Revision: 9, Created: 5},
	{Key: []byte("/registry/c"), Value: []byte("c9"), Revision: 9, Created: 9},
	{Key: []byte("/registry/d"), Revision: 9},
	{Key: []byte("/registry/c"), Value: []byte("c10"), Revision: 10, Created: 9},
	{Key: []byte("/registry/b"), Revision: 1_800_000_000_000_000},
	{Key: []byte("/registry/a"), Value: []byte{}, Revision: 1_800_000_000_000_001, Created: 5},
}

var someBefore = []int64{0, 0, 5, 0, 6, 9, 7, 9}

// TestFile reads a file back, and looks at its database with bbolt.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	write(t, path, 8, some, someBefore)
	r, err := etcdsnapshot.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if head, floor, err := r.Bounds(); head != 1_800_000_000_000_001 || floor != 8 || err != nil {
		t.Errorf("bounds: %d, %d, %v", head, floor, err)
	}
	if n := r.Count(); n != len(some) {
		t.Errorf("%d versions, want %d", n, len(some))
	}
	counts := []int64{2, 1, 2, 1, 0, 2, 0, 3} // of the first one it is not known
	for i, want := range some {
		got, found, err := r.At(want.Revision, string(want.Key))
		if err != nil || !found || !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) || (got.Value == nil) != (want.Value == nil) ||
			got.Created != want.Created || got.Revision != want.Revision || got.Count != counts[i] {
			t.Errorf("at %d: %+v, %v, %v", want.Revision, got, found, err)
		}
	}
	if _, found, err := r.At(6, "/registry/a"); found || err != nil {
		t.Errorf("at 6: %v, %v", found, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || r.Size() != info.Size() {
		t.Errorf("the file: %v, %v", info, err)
	}
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(tx.Bucket([]byte("key")).Get([]byte("\x00\x00\x00\x00\x00\x00\x00\x09_\x00\x00\x00\x00\x00\x00\x00\x00")), &kv); err != nil {
			return err
		}
		if string(kv.Key) != "/registry/a" || string(kv.Value) != "a9" || kv.ModRevision != 9 || kv.CreateRevision != 5 || kv.Version != 2 {
			t.Errorf("revision 9: %v", &kv)
		}
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMany writes more than one batch, in no order, and more keys with a lease than one lease may have.
func TestMany(t *testing.T) {
	const n = 25_000
	path := filepath.Join(t.TempDir(), "s.db")
	w, err := etcdsnapshot.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range int64(n) {
		revision := i*7919%n + 1 // each once
		v := etcdsnapshot.Version{Key: fmt.Appendf(nil, "k%d", revision), Value: []byte("v"), Revision: revision, Created: revision, Lease: w.Lease(time.Hour)}
		if err := w.Put(v, 0); err != nil {
			t.Fatal(err)
		}
	}
	r, err := w.Finish(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Count() != n || r.Leases() != n/1000 {
		t.Errorf("%d versions, %d leases", r.Count(), r.Leases())
	}
	for i := range int64(n) {
		if v, found, err := r.At(i+1, fmt.Sprint("k", i+1)); err != nil || !found || v.Lease < 1 || v.Lease > n/1000 {
			t.Fatalf("at %d: %+v, %v, %v", i+1, v, found, err)
		}
	}
}

// TestTwice: two changes of a key at a revision, and a revision of none, are refused.
func TestTwice(t *testing.T) {
	w, err := etcdsnapshot.Create(filepath.Join(t.TempDir(), "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Put(etcdsnapshot.Version{Key: []byte("a"), Value: []byte("1")}, 0); err == nil {
		t.Error("a version without a revision")
	}
	for _, v := range []etcdsnapshot.Version{{Key: []byte("a"), Value: []byte("1"), Revision: 194}, {Key: []byte("b"), Revision: 194}, {Key: []byte("a"), Revision: 194}} {
		if err := w.Put(v, 2); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(0); err == nil || !strings.Contains(err.Error(), `two changes of "a" at revision 194`) {
		t.Errorf("two changes of a key: %v", err)
	}
}

// TestUnfinished: until Commit there is no file, and Close leaves nothing.
func TestUnfinished(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s.db")
	w, err := etcdsnapshot.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Put(some[0], 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := etcdsnapshot.Create(path); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a file that exists: %v", err)
	}
}

// TestDamaged: files that are cut off, changed, or no snapshots.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	write(t, path, 0, some, someBefore)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Clone(good)
	changed[len(changed)/2] ^= 1
	for what, content := range map[string][]byte{
		"empty":            {},
		"cut off":          good[:len(good)-1],
		"half":             good[:len(good)/2],
		"a page is absent": good[4096:],
		"without the sum":  good[:len(good)-32],
		"changed":          changed,
		"text":             bytes.Repeat([]byte("text"), 136),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := etcdsnapshot.Open(path)
		if err == nil {
			t.Errorf("%s: it was opened", what)
			r.Close()
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error does not name the file: %v", what, err)
		}
	}
	if _, err := etcdsnapshot.Open(path + ".none"); err == nil {
		t.Error("a file that does not exist was opened")
	}
}
