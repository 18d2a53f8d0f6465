package pebblelog_test

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// diskFS is a file system of limited size. Another program may use a part of it.
type diskFS struct {
	vfs.FS
	size    int64
	foreign atomic.Int64
	mu      sync.Mutex // held while a file grows
}

func (fs *diskFS) free() int64 {
	free := fs.size - fs.foreign.Load()
	for _, dir := range []string{"/log", "/log/pebble"} {
		names, _ := fs.List(dir)
		for _, n := range names {
			if info, err := fs.Stat(path.Join(dir, n)); err == nil && !info.IsDir() {
				free -= info.Size()
			}
		}
	}
	return free
}

func (fs *diskFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: uint64(max(0, fs.free())), TotalBytes: uint64(fs.size)}, nil
}

func (fs *diskFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	return &diskFile{File: f, fs: fs}, err
}

func (fs *diskFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(from, to, c)
	return &diskFile{File: f, fs: fs}, err
}

type diskFile struct {
	vfs.File
	fs *diskFS
	at int64
}

// grow refuses a write that would make the file longer than there is space.
func (f *diskFile) grow(end int64, write func() error) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if more := end - info.Size(); more > 0 && more > f.fs.free() {
		return syscall.ENOSPC
	}
	return write()
}

func (f *diskFile) Write(p []byte) (n int, err error) {
	err = f.grow(f.at+int64(len(p)), func() error {
		n, err = f.File.Write(p)
		return err
	})
	f.at += int64(n)
	return n, err
}

func (f *diskFile) WriteAt(p []byte, at int64) (n int, err error) {
	err = f.grow(at+int64(len(p)), func() error {
		n, err = f.File.WriteAt(p, at)
		return err
	})
	return n, err
}

func (f *diskFile) Preallocate(at, n int64) error {
	_, err := f.WriteAt(make([]byte, n), at)
	return err
}

// TestSmallDisk fills a small disk, then has another program fill it to the last byte
// under the log's feet: nothing that was acknowledged is lost, a start works all the same,
// deletions work from the reserve, and writes go on when there is space.
func TestSmallDisk(t *testing.T) { synctest.Test(t, smallDisk) }

func smallDisk(t *testing.T) {
	rng := testrand.New(t)
	disk := &diskFS{FS: vfs.NewMem(), size: 64 * mib}
	log := mustOpen(t, disk)
	m := &model{}
	fill(t, log, m)
	if n := len(m.entries); n < int(disk.size/mib)*3/2 {
		t.Errorf("full after %d objects of 100 KiB on a disk of %d bytes", n, disk.size)
	}
	synctest.Wait() // until Pebble has given space back
	if u, short := log.Usage(), log.Short(); u.NeededBytes != disk.size/8 || short != max(0, 2*u.NeededBytes-u.FreeBytes) {
		t.Errorf("usage %+v, short of %d", u, short)
	}
	for { // Pebble may still give space back, which the other program takes as well
		disk.foreign.Add(disk.free())
		g := m.group(rng)
		err := log.Append(t.Context(), g, nil)
		if errors.Is(err, store.ErrNoSpace) {
			break
		}
		if err != nil {
			t.Fatalf("a write on a full disk: %v", err)
		}
		m.add(g, nil)
	}
	_ = log.Close() // as it goes: HEAD may not be written

	log = mustOpen(t, disk)
	if err := m.verifyStart(log); err != nil {
		t.Fatalf("after a start on a full disk: %v", err)
	}
	g := m.deletion()
	if err := log.Append(t.Context(), g, nil); err != nil {
		t.Errorf("a deletion on a full disk: %v", err)
	} else {
		m.add(g, nil)
		m.compact(m.head())
	}
	disk.foreign.Store(0)
	// A flush or a compaction takes space until it has ended. The store tries again, too.
	again := func(what string, call func() error) {
		t.Helper()
		for tries := 0; ; tries++ {
			err := call()
			if err == nil {
				return
			}
			if !errors.Is(err, store.ErrNoSpace) || tries > 100 {
				t.Fatalf("%s with %d bytes free: %v", what, log.Usage().FreeBytes, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for len(m.at("pods", m.head())) > 0 {
		g := m.deletion()
		again("a deletion", func() error { return log.Append(t.Context(), g, nil) })
		m.add(g, nil)
	}
	again("a compaction", func() error { return log.Compact(t.Context(), m.head()) })
	m.compact(m.head())
	again("a reclamation", func() error { return log.Reclaim(t.Context()) })
	if u := log.Usage(); u.FreeBytes < disk.size/2 {
		t.Errorf("after everything was deleted and reclaimed: %+v", u)
	}
	g = m.group(rng)
	if err := log.Append(t.Context(), g, nil); err != nil {
		t.Fatal(err)
	}
	m.add(g, nil)
	if err := m.verify(log, rng, 3); err != nil {
		t.Fatal(err)
	}
	mustClose(t, log)
}

// lazyFS pauses before it removes a table.
type lazyFS struct {
	vfs.FS
	pause func()
}

func (fs lazyFS) Remove(name string) error {
	if path.Ext(name) == ".sst" {
		fs.pause()
	}
	return fs.FS.Remove(name)
}

// TestReclaimedIsFree: when Reclaim returns, the space is there.
func TestReclaimedIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := testrand.New(t)
		log := mustOpen(t, lazyFS{vfs.NewMem(), func() { time.Sleep(50 * time.Millisecond) }})
		m := &model{big: true}
		for range 40 {
			g := m.group(rng)
			if err := log.Append(t.Context(), g, nil); err != nil {
				t.Fatal(err)
			}
			m.add(g, nil)
		}
		for len(m.at("pods", m.head())) > 0 {
			g := m.deletion()
			if err := log.Append(t.Context(), g, nil); err != nil {
				t.Fatal(err)
			}
			m.add(g, nil)
		}
		if err := log.Compact(t.Context(), m.head()); err != nil {
			t.Fatal(err)
		}
		if err := log.Reclaim(t.Context()); err != nil {
			t.Fatal(err)
		}
		at := log.Usage().TotalBytes
		time.Sleep(time.Minute)
		synctest.Wait()
		if later := log.Usage().TotalBytes; at > later {
			t.Errorf("%d bytes right after Reclaim, %d a minute later", at, later)
		}
		mustClose(t, log)
	})
}

// noFiles refuses the tables of compactions with an error while it has one.
type noFiles struct {
	vfs.FS
	err atomic.Pointer[syscall.Errno]
}

func (fs *noFiles) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.err.Load(); err != nil && c == "pebble-compaction" {
		return nil, *err
	}
	return fs.FS.Create(name, c)
}

// TestReclaimErrors: a shortage that may pass is ErrNoSpace, which may be tried
// again, and the end of the context is itself.
func TestReclaimErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE} {
		synctest.Test(t, func(t *testing.T) {
			rng := testrand.New(t)
			fs := &noFiles{FS: vfs.NewMem()}
			log := mustOpen(t, fs)
			m := &model{}
			for range 10 {
				if err := m.step(log, rng); err != nil {
					t.Fatal(err)
				}
			}
			fs.err.Store(&errno)
			if err := log.Reclaim(t.Context()); !errors.Is(err, store.ErrNoSpace) {
				t.Errorf("%v: %v", errno, err)
			}
			fs.err.Store(nil)
			if err := log.Reclaim(t.Context()); err != nil {
				t.Errorf("after %v: %v", errno, err)
			}
			if err := m.step(log, rng); err != nil {
				t.Error(err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if err := log.Reclaim(gone); !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrNoSpace) {
				t.Errorf("with a context that has ended: %v", err)
			}
			mustClose(t, log)
		})
	}
}
