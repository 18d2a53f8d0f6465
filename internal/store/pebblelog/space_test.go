package pebblelog_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

const mib = 1 << 20

// meteredFS reports the free space that the test sets. The reserve file counts.
type meteredFS struct {
	*vfs.MemFS
	free    atomic.Uint64
	reserve uint64
}

func (fs *meteredFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := fs.free.Load()
	if _, err := fs.Stat("/log/RESERVE"); err != nil {
		free += fs.reserve
	}
	return vfs.DiskUsage{AvailBytes: free}, nil
}

func (fs *meteredFS) reserved() bool {
	_, err := fs.Stat("/log/RESERVE")
	return err == nil
}

// TestNoSpace goes through the watermarks.
func TestNoSpace(t *testing.T) {
	rng := testrand.New(t)
	fs := &meteredFS{MemFS: vfs.NewMem(), reserve: 4 * mib}
	fs.free.Store(100 * mib)
	log, err := pebblelog.Open(t.Context(), pebblelog.Options{
		Dir: "/log", FS: fs, MinFreeBytes: 16 * mib, ReserveBytes: fs.reserve,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, log)
	m := &model{}
	write := func() error {
		g := m.group(rng)
		for !slices.ContainsFunc(g, func(e store.Entry) bool { return e.Object != nil }) {
			g = m.group(rng) // a group of deletions alone is another case
		}
		err := log.Append(t.Context(), g, nil)
		if err == nil {
			m.add(g, nil)
		}
		return err
	}
	remove := func() error {
		g := m.deletion()
		err := log.Append(t.Context(), g, nil)
		if err == nil {
			m.add(g, nil)
		}
		if free, _ := fs.GetDiskUsage(""); err == nil && free.AvailBytes < 16*mib {
			m.compact(m.head()) // history is not worth the space
		}
		return err
	}
	for range 30 {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		free             uint64 // MiB, with the reserve taken
		write, remove    error
		reservedAfterAll bool
	}{
		{free: 100, reservedAfterAll: true},
		{free: 17, reservedAfterAll: true},
		{free: 15, write: store.ErrNoSpace, reservedAfterAll: true},
		{free: 7, write: store.ErrNoSpace, reservedAfterAll: false},
		{free: 1, write: store.ErrNoSpace, reservedAfterAll: false}, // 5 with the reserve
		{free: 14, reservedAfterAll: false},                         // 18 with it
		{free: 21, reservedAfterAll: true},                          // 25 before it is taken
	} {
		fs.free.Store(step.free * mib)
		if err := write(); !errors.Is(err, step.write) {
			t.Errorf("%d MiB free: a write: got %v, want %v", step.free, err, step.write)
		}
		if err := remove(); !errors.Is(err, step.remove) {
			t.Errorf("%d MiB free: a deletion: got %v, want %v", step.free, err, step.remove)
		}
		if fs.reserved() != step.reservedAfterAll {
			t.Errorf("%d MiB free: the reserve is there: %v, want %v", step.free, fs.reserved(), step.reservedAfterAll)
		}
		if err := log.Compact(t.Context(), m.head()-3); err != nil {
			t.Errorf("%d MiB free: a compaction: %v", step.free, err)
		}
		m.compact(m.head() - 3)
		if err := m.verify(log, rng, 3); err != nil {
			t.Errorf("%d MiB free: %v", step.free, err)
		}
	}
	// A deletion writes the deleted object. This one is larger than the free space.
	big := object("~", m.head()+1, nil, 0)
	big.Held = append(big.Bytes(), make([]byte, 3*mib)...)
	small := object("small", m.head()+2, nil, 0)
	put := []store.Entry{
		{Collection: "pods", Key: "~", Revision: m.head() + 1, Object: big},
		{Collection: "pods", Key: "small", Revision: m.head() + 2, Object: small},
	}
	if err := log.Append(t.Context(), put, nil); err != nil {
		t.Fatal(err)
	}
	m.add(put, nil)
	fs.reserve = 0
	fs.free.Store(4 * mib)
	err = log.Append(t.Context(), []store.Entry{{Collection: "pods", Key: "~", Revision: m.head() + 1, Before: big}}, nil)
	if !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("a deletion of 3 MiB with 4 MiB free: got %v, want %v", err, store.ErrNoSpace)
	}
	gone := []store.Entry{{Collection: "pods", Key: "small", Revision: m.head() + 1, Before: small}}
	if err := log.Append(t.Context(), gone, nil); err != nil {
		t.Fatalf("a small deletion with 4 MiB free: %v", err)
	}
	m.add(gone, nil)
	m.compact(m.head())
	fs.free.Store(mib / 2)
	if err := remove(); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("a deletion at the very end: got %v, want %v", err, store.ErrNoSpace)
	}
	if err := log.Compact(t.Context(), m.head()); !errors.Is(err, store.ErrNoSpace) {
		t.Errorf("a compaction at the very end: got %v, want %v", err, store.ErrNoSpace)
	}
	if err := m.verify(log, rng, 3); err != nil {
		t.Error(err)
	}
}

// deletion returns a group that deletes some object.
func (m *model) deletion() []store.Entry {
	for _, c := range collections {
		if objects := m.at(c, m.head()); len(objects) > 0 {
			o := objects[0]
			return []store.Entry{{Collection: c, Key: o.Key, Revision: m.head() + 1, Before: o}}
		}
	}
	panic("nothing to delete")
}

// TestFullDisk fills a file system of 64 MiB, much of it with Pebble's write-ahead
// logs. The log refuses writes before Pebble meets the end, reads go on, and
// deletions and a compaction make room again.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Logf("no file system of a limited size here (%v, %s): TestNoSpace alone has to do", err, strings.TrimSpace(string(out)))
		return
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	ctx := context.Background()
	o := pebblelog.Options{Dir: dir + "/log", MinFreeBytes: 20 * mib, ReserveBytes: 4 * mib}
	log, err := pebblelog.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() }) // or a failed test keeps the file system busy
	m := &model{}
	fill(t, log, m)
	t.Logf("full after %d objects, %d bytes on the disk", len(m.entries), log.Usage().TotalBytes)
	if len(m.entries) < 20 {
		t.Fatalf("full after %d objects", len(m.entries))
	}
	if err := m.verifyStart(log); err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)
	fillRest(t, dir+"/foreign")
	if log, err = pebblelog.Open(ctx, o); err != nil {
		t.Fatalf("opening on a disk that another program has filled: %v", err)
	}
	if err := m.verifyStart(log); err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)
	if err := os.Remove(dir + "/foreign"); err != nil {
		t.Fatal(err)
	}
	if log, err = pebblelog.Open(ctx, o); err != nil {
		t.Fatalf("opening on a full disk: %v", err)
	}
	if err := m.verifyStart(log); err != nil {
		t.Fatal(err)
	}
	for len(m.at("pods", m.head())) > 0 {
		g := m.deletion()
		if err := log.Append(ctx, g, nil); err != nil {
			t.Fatalf("a deletion on a full disk: %v", err)
		}
		m.add(g, nil)
		if err := log.Compact(ctx, m.head()); err != nil {
			t.Fatal(err)
		}
		m.compact(m.head())
	}
	if err := m.verify(log, testrand.New(t), 3); err != nil {
		t.Fatal(err)
	}
	// Pebble gives the space back when it gets to it.
	o1 := object("new", m.head()+1, nil, 0)
	g := []store.Entry{{Collection: "pods", Key: "new", Revision: m.head() + 1, Object: o1}}
	await.Nil(t, "space after everything was deleted", func() error {
		err := log.Append(ctx, g, nil)
		if err != nil && !errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("writing after everything was deleted: %v", err)
		}
		return err
	})
	mustClose(t, log)
}

// fillRest takes all the space that is left.
func fillRest(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// fill appends objects that do not compress until there is no space.
func fill(t *testing.T, log store.Log, m *model) {
	t.Helper()
	noise := rand.NewChaCha8([32]byte{})
	for i := range 10_000 {
		r := m.head() + 1
		o := object("a", r, nil, 0)
		o.Key = "ns/" + strings.Repeat("k", i%50) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		padding := make([]byte, 100<<10)
		_, _ = noise.Read(padding)
		o.Held = append(o.Bytes(), padding...)
		g := []store.Entry{{Collection: "pods", Key: o.Key, Revision: r, Object: o}}
		err := log.Append(t.Context(), g, nil)
		if errors.Is(err, store.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatalf("object %d: %v", i, err)
		}
		m.add(g, nil)
	}
	t.Fatal("the disk was not filled")
}
