package datadir_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// written makes a directory with some changes, a fork and a key, and returns it open.
func written(t testing.TB) *datadir.Dir {
	t.Helper()
	d := &datadir.Dir{Path: filepath.Join(t.TempDir(), "data")}
	log, err := d.OpenLog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	one := func(yield func(string, *store.Object) bool) {
		yield("c", &store.Object{Key: "f", Held: []byte("1 in the fork"), Created: 1, Modified: 1})
	}
	if err := d.Forks().Create(t.Context(), "try", []byte("{}"), store.Beginning{Revision: 1, Objects: iter.Seq2[string, *store.Object](one)}); err != nil {
		t.Fatal(err)
	}
	for r := store.Revision(1); r <= 20; r++ {
		o := &store.Object{Key: fmt.Sprint("k", r), Held: fmt.Appendf(nil, "%d %01000d", r, 0), Created: r, Modified: r}
		if err := log.Append(t.Context(), []store.Entry{{Collection: "c", Key: o.Key, Revision: r, Object: o}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(d.Path, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.Path, "pki", "ca.pem"), []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

// backedUp returns a backup of an open directory.
func backedUp(t testing.TB, d *datadir.Dir) []byte {
	t.Helper()
	b, err := d.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := errors.Join(b.Write(t.Context(), &archive), b.Close()); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// unchanged wants the directory to be absent or empty, so that it can be restored to again.
func unchanged(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", e.Name())
	}
}

// TestBackup restores a backup of a directory in use: the copy has all, and so has a backup of a restored directory.
func TestBackup(t *testing.T) {
	d := written(t)
	archive := backedUp(t, d)
	if _, err := os.Stat(filepath.Join(d.Path, ".backup")); !os.IsNotExist(err) {
		t.Errorf("the files of the backup are left: %v", err)
	}
	for range 2 {
		r := &datadir.Dir{Path: filepath.Join(t.TempDir(), "restored")}
		c, err := r.Restore(t.Context(), bytes.NewReader(archive), datadir.RestoreOptions{KeepHistory: true})
		if err != nil {
			t.Fatal(err)
		}
		if c.Log.ResourceVersion != 20 || c.Log.Objects != 20 || len(c.Forks) != 1 || c.Forks["try"].Objects != 1 || c.Created.IsZero() {
			t.Errorf("the backup has %+v", c)
		}
		if b, err := os.ReadFile(filepath.Join(r.Path, "pki", "ca.pem")); string(b) != "a key" {
			t.Errorf("the key is %q, %v", b, err)
		}
		if _, err := r.Restore(t.Context(), bytes.NewReader(archive), datadir.RestoreOptions{KeepHistory: true}); err == nil || !strings.Contains(err.Error(), "it is not empty") {
			t.Errorf("restored over a directory: %v", err)
		}
		if c, err = r.Check(t.Context()); err != nil || c.Log.Objects != 20 || c.Forks["try"].ResourceVersion != 1 {
			t.Errorf("the check found %+v, %v", c, err)
		}
		log, err := r.OpenLog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if _, err := r.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "in use by process") {
			t.Errorf("checked a directory in use: %v", err)
		}
		if o, err := log.Current("c", "k7"); err != nil || o == nil || o.Modified != 7 {
			t.Errorf("an object is %v, %v", o, err)
		}
		f, err := r.Forks().Open(t.Context(), "try")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		archive = backedUp(t, r) // the fork is open
	}
}

// TestRestoreAdvances: no resource version after the backup is used again, and none before can be read. A second restore
// of the backup uses none that was used after the first.
func TestRestoreAdvances(t *testing.T) {
	archive := backedUp(t, written(t))
	last := store.Revision(20)
	for range 2 {
		d := &datadir.Dir{Path: filepath.Join(t.TempDir(), "restored")}
		if _, err := d.Restore(t.Context(), bytes.NewReader(archive), datadir.RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		c, err := d.Check(t.Context())
		if err != nil || c.Log.ResourceVersion != c.Log.OldestResourceVersion || c.Log.Objects != 20 || c.Forks["try"].ResourceVersion <= uint64(last) {
			t.Errorf("the check found %+v, %v", c, err)
		}
		s := storetest.Open(t, store.Options{Log: mustOpen(t, d.Path)})
		if _, err := s.Exact(t.Context(), "c", last+1, 0); !errors.As(err, new(*store.ExpiredError)) {
			t.Errorf("a read at a resource version after the backup: %v", err)
		}
		for i := range 3 {
			o, err := s.Commit(t.Context(), store.Write{Collection: "c", Key: fmt.Sprint("new", i), Value: []byte(`""`), RevisionAt: 1})
			if err != nil || o.Modified <= last {
				t.Fatalf("a change is %v, %v, and the last one was at %d", o, err, last)
			}
			last = o.Modified
		}
		if err := s.Check(t.Context()); err != nil {
			t.Error(err)
		}
		storetest.Close(t, s)
	}
}

// TestBackupErrors: one backup at a time, only of an open directory, and a fork that is damaged is left out.
func TestBackupErrors(t *testing.T) {
	d := written(t)
	first, err := d.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Backup(t.Context()); !errors.Is(err, store.ErrBackupRunning) {
		t.Errorf("a second backup: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Write(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled backup: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(filepath.Join(d.Path, "forks", "try", "log", "HEAD"), 10); err != nil {
		t.Fatal(err)
	}
	c, err := datadir.VerifyBackup(t.Context(), bytes.NewReader(backedUp(t, d)))
	if err != nil || len(c.Forks) != 0 || !strings.Contains(c.Skipped["try"], "HEAD is damaged") {
		t.Errorf("a backup with a damaged fork has %+v, %v", c, err)
	}
	if _, err := (&datadir.Dir{Path: d.Path}).Backup(t.Context()); err == nil || !strings.Contains(err.Error(), "is not open") {
		t.Errorf("a backup of a directory that is not open: %v", err)
	}
}

// looking is a context that calls look whenever it is asked for its end.
type looking struct {
	context.Context
	look func()
}

func (l looking) Err() error {
	l.look()
	return l.Context.Err()
}

// TestRestoreKilled checks that no server starts on the remains of a killed restore: it may be
// damaged, and its resource versions may be those that clients have seen for other changes.
func TestRestoreKilled(t *testing.T) {
	archive := backedUp(t, written(t))
	for _, keep := range []bool{true, false} {
		d := &datadir.Dir{Path: filepath.Join(t.TempDir(), "restored")}
		looks := 0
		ctx := looking{t.Context(), func() {
			looks++
			if _, err := os.Lstat(filepath.Join(d.Path, "FORMAT")); err == nil {
				t.Fatalf("with KeepHistory=%v there is a FORMAT before the restore is done", keep)
			}
			if _, err := os.Lstat(filepath.Join(d.Path, "pki")); err == nil {
				if _, err := (&datadir.Dir{Path: d.Path}).OpenLog(context.Background()); err == nil {
					t.Fatalf("with KeepHistory=%v a directory opens that is not restored yet", keep)
				}
			}
		}}
		if _, err := d.Restore(ctx, bytes.NewReader(archive), datadir.RestoreOptions{KeepHistory: keep}); err != nil {
			t.Fatal(err)
		}
		if looks < 10 {
			t.Errorf("the restore looked at its context only %d times", looks)
		}
		if _, err := d.Check(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRestoreEnds: a restore ends with its context in the middle of a file, and so does the writing of a backup. A
// directory that the restore made is gone, one that was there before is empty.
func TestRestoreEnds(t *testing.T) {
	d := written(t)
	archive := backedUp(t, d)
	for _, there := range []bool{true, false} {
		path := filepath.Join(t.TempDir(), "restored")
		if there {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		one := iotest.OneByteReader(bytes.NewReader(archive))
		read := 0
		counted := readerFunc(func(p []byte) (int, error) {
			if read++; read == len(archive)/2 {
				cancel()
			}
			return one.Read(p)
		})
		if _, err := (&datadir.Dir{Path: path}).Restore(ctx, counted, datadir.RestoreOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("the restore: %v", err)
		}
		if read > len(archive)/2 {
			t.Errorf("the restore has read %d bytes after its end", read-len(archive)/2)
		}
		unchanged(t, path)
		if _, err := os.Stat(path); there != (err == nil) {
			t.Errorf("there before: %v; after: %v", there, err)
		}
	}
	b, err := d.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	parts := 0
	if err := b.Write(ctx, writerFunc(func(p []byte) (int, error) { parts++; cancel(); return len(p), nil })); !errors.Is(err, context.Canceled) || parts != 1 {
		t.Errorf("after its end, the backup wrote %d parts: %v", parts-1, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestBackupLocksOneFork: while a fork is copied, others can be opened.
func TestBackupLocksOneFork(t *testing.T) {
	d := written(t)
	empty := store.Beginning{Revision: 1, Objects: func(func(string, *store.Object) bool) {}}
	if err := d.Forks().Create(t.Context(), "zeta", []byte("{}"), empty); err != nil {
		t.Fatal(err)
	}
	var other store.Log
	ctx := looking{t.Context(), func() {
		if _, err := os.Stat(filepath.Join(d.Path, ".backup", "forks", "try")); err != nil || other != nil {
			return
		}
		opened := make(chan error, 1)
		go func() {
			var err error
			other, err = d.Forks().Open(context.Background(), "zeta")
			opened <- err
		}()
		if err := await.Value(t, "a fork to open while another one is copied", opened); err != nil {
			t.Error(err)
		}
	}}
	b, err := d.Backup(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if other == nil {
		t.Fatal("the copy of a fork looked at no context")
	}
	if err := errors.Join(b.Close(), other.Close()); err != nil {
		t.Error(err)
	}
}

// TestBackupOutlivesLog: a backup may end after its log, and after the next one was opened with the same Dir.
func TestBackupOutlivesLog(t *testing.T) {
	d := &datadir.Dir{Path: filepath.Join(t.TempDir(), "data")}
	open := func() store.Log {
		log, err := d.OpenLog(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	log := open()
	old, err := d.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	defer open().Close()
	b, err := d.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
	var archive bytes.Buffer
	if err := errors.Join(b.Write(t.Context(), &archive), b.Close()); err != nil {
		t.Error(err)
	}
	if _, err := datadir.VerifyBackup(t.Context(), &archive); err != nil {
		t.Error(err)
	}
}

// TestForkExists: a fork is never made in place of another one.
func TestForkExists(t *testing.T) {
	d := written(t)
	begin := store.Beginning{Revision: 1, Objects: func(func(string, *store.Object) bool) {}}
	if err := d.Forks().Create(t.Context(), "try", []byte("{}"), begin); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a second fork of the name: %v", err)
	}
	f, err := d.Forks().Open(t.Context(), "try")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if o, err := f.Current("c", "f"); err != nil || o == nil {
		t.Errorf("the object of the fork is %v, %v", o, err)
	}
}

// TestRestoreCutOff: a backup that lacks its end is refused wherever it ends, and nothing is left of it.
func TestRestoreCutOff(t *testing.T) {
	archive := backedUp(t, written(t))
	path := filepath.Join(t.TempDir(), "restored")
	for at := 0; at < len(archive)-1024; at += 512 * 7 {
		_, err := (&datadir.Dir{Path: path}).Restore(t.Context(), bytes.NewReader(archive[:at]), datadir.RestoreOptions{})
		if err == nil {
			t.Fatalf("a backup of %d bytes that ends at %d is restored", len(archive), at)
		}
		if unchanged(t, path); t.Failed() {
			t.Fatalf("after the end at %d: %v", at, err)
		}
	}
}

// TestRestoreDamaged: a backup is refused if any byte of a file changed.
func TestRestoreDamaged(t *testing.T) {
	archive := backedUp(t, written(t))
	path := filepath.Join(t.TempDir(), "restored")
	r := tar.NewReader(bytes.NewReader(archive))
	for at := 0; ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) == 0 {
			continue
		}
		i := bytes.Index(archive[at:], content)
		at += i
		damaged := slices.Clone(archive)
		damaged[at+len(content)/2] ^= 0x10
		if _, err := (&datadir.Dir{Path: path}).Restore(t.Context(), bytes.NewReader(damaged), datadir.RestoreOptions{}); err == nil {
			t.Fatalf("restored with a damaged %s", h.Name)
		}
		unchanged(t, path)
		at += len(content)
	}
}

// entry is a file of an archive.
type entry struct {
	tar.Header
	content string
}

func archiveOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size, e.Mode = int64(len(e.content)), 0o600
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// signed adds the checksums of entries.
func signed(entries ...entry) []entry {
	var sums strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(e.content)), e.Name)
	}
	return append(entries, entry{tar.Header{Name: "SHA256SUMS"}, sums.String()})
}

// TestRestoreRefuses: archives of others write nothing outside the directory, and get clear errors.
func TestRestoreRefuses(t *testing.T) {
	about := entry{tar.Header{Name: "BACKUP"}, `{"format":1}`}
	for _, c := range []struct {
		says    string
		entries []entry
	}{
		{"it is not a backup", nil},
		{"it is not a backup", []entry{{tar.Header{Name: "FORMAT"}, "x"}}},
		{"has format 9", []entry{{tar.Header{Name: "BACKUP"}, `{"format":9}`}}},
		{"has format 0", []entry{{tar.Header{Name: "BACKUP"}, `{}`}}},
		{"it has no SHA256SUMS", []entry{about}},
		{"there is no checksum of BACKUP", []entry{about, {tar.Header{Name: "SHA256SUMS"}, ""}}},
		{"lacks the file", []entry{about, {tar.Header{Name: "SHA256SUMS"}, "00  x\n"}}},
		{"no data directory has", []entry{about, {tar.Header{Name: "../evil"}, "x"}}},
		{"no data directory has", []entry{about, {tar.Header{Name: "/evil"}, "x"}}},
		{"no data directory has", []entry{about, {tar.Header{Name: "pki/.."}, "x"}}},
		{"no data directory has", []entry{about, {tar.Header{Name: "pki/a/../../../evil"}, "x"}}},
		{"no data directory has", []entry{about, {tar.Header{Name: "LOCK"}, "x"}}},
		{"not a regular file", []entry{about, {tar.Header{Name: "pki/link", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, ""}}},
		{"of format 99", signed(about, entry{tar.Header{Name: "FORMAT"}, "tidemark data directory, format 99\n"})},
		{"twice", []entry{about, {tar.Header{Name: "FORMAT"}, "x"}, {tar.Header{Name: "FORMAT"}, "x"}}},
	} {
		path := filepath.Join(t.TempDir(), "restored")
		_, err := (&datadir.Dir{Path: path}).Restore(t.Context(), bytes.NewReader(archiveOf(t, c.entries...)), datadir.RestoreOptions{})
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q", c.entries, err, c.says)
		}
		unchanged(t, path)
		if _, err := os.Lstat(filepath.Join(filepath.Dir(path), "evil")); err == nil {
			t.Errorf("%v wrote outside", c.entries)
		}
	}
}

// FuzzVerifyBackup reads archives of anybody.
func FuzzVerifyBackup(f *testing.F) {
	f.Add(backedUp(f, written(f)))
	f.Add(archiveOf(f, entry{tar.Header{Name: "BACKUP"}, `{"format":1}`}, entry{tar.Header{Name: "SHA256SUMS"}, ""}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		if c, err := datadir.VerifyBackup(t.Context(), bytes.NewReader(archive)); err == nil && c.Format != datadir.BackupVersion {
			t.Errorf("a backup of format %d is good", c.Format)
		}
	})
}
