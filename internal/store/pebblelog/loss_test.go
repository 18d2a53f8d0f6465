package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// killed is a file system as kill -9 leaves it: all that was written is there. Its log
// was acknowledged settled more than a second before, and rest, which begins with
// settled, up to the kill.
type killed struct {
	fs      *vfs.MemFS
	earlier *vfs.MemFS // the same directory some writes before
	settled *model
	after   []*model   // with each of the groups that came in the last second
	ends    []int      // the lengths of the newest write-ahead log after its groups, if they were counted
	stopped *vfs.MemFS // the directory after a clean stop instead of the kill
}

// kill writes to a log and takes a picture of it. Big groups fill several memtables, so
// that there are tables and more than one write-ahead log.
func kill(t *testing.T, rng *rand.Rand, groups, recent int, big bool) killed {
	t.Helper()
	var k killed
	all := rand.New(rand.NewPCG(1, 1))
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		log := mustOpen(t, mem)
		m := &model{big: big}
		write := func() {
			g := m.group(rng)
			if err := log.Append(t.Context(), g, nil); err != nil {
				t.Fatal(err)
			}
			m = m.clone()
			m.add(g, nil)
		}
		for i := range groups {
			write()
			if i == groups/2 {
				time.Sleep(2 * time.Second)
				synctest.Wait()
				k.earlier = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: all})
			}
		}
		k.settled = m
		time.Sleep(pebblelog.DefaultHeadInterval + time.Millisecond)
		synctest.Wait()
		for range recent {
			write()
			k.after = append(k.after, m)
		}
		k.fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: all})
		mustClose(t, log)
		k.stopped = mem.CrashClone(vfs.CrashCloneCfg{})
	})
	return k
}

// stop returns the same with a clean stop, after which nothing may be lost.
func (k killed) stop() killed {
	last := k.models()[len(k.after)]
	return killed{fs: k.stopped, earlier: k.earlier, settled: last}
}

// models are those that a start may come up with.
func (k *killed) models() []*model { return append([]*model{k.settled}, k.after...) }

// copy returns a file system of its own.
func (k *killed) copy() *vfs.MemFS {
	return k.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
}

// with returns a copy in which a file has other bytes; nil: it is gone.
func (k *killed) with(t *testing.T, name string, b []byte) *vfs.MemFS {
	t.Helper()
	fs := k.copy()
	put(t, fs, name, b)
	return fs
}

// damages are the damages of a file; nil: it is gone.
func damages(rng *rand.Rand, b []byte) map[string][]byte {
	used := len(bytes.TrimRight(b, "\x00"))
	all := map[string][]byte{"deleted": nil, "emptied": {}}
	if used == 0 {
		return all
	}
	all["halved"] = b[:used/2]
	all["cut"] = b[:rng.IntN(used)]
	all["cut at its end"] = b[:used-1]
	all["zeroed from the middle"] = append(slices.Clone(b[:used/2]), make([]byte, len(b)-used/2)...)
	for i := range 8 {
		c := slices.Clone(b)
		c[rng.IntN(used)] ^= 1 << rng.IntN(8)
		all[fmt.Sprintf("flipped %d", i)] = c
	}
	c := slices.Clone(b)
	c[used-1-rng.IntN(min(used, 100))] ^= 1 << rng.IntN(8)
	all["flipped at its end"] = c
	return all
}

// put makes a file of the bytes; nil removes it.
func put(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	if b == nil {
		if err := fs.Remove(name); err != nil {
			t.Fatal(err)
		}
		dir, err := fs.OpenDir(path.Dir(name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDamage damages each file of a log after a kill or a stop. The next start must have all
// writes that were acknowledged, or fail with an error that names
// the damage. Then every later start fails too, unless the damage is in a table: only a
// compaction may read it, at its own time.
func TestDamage(t *testing.T) {
	rng := testrand.New(t)
	for _, big := range []bool{false, true} {
		k := kill(t, rng, 40, 2, big)
		t.Run(fmt.Sprintf("big=%v/kill", big), func(t *testing.T) { k.damageAll(t, rng) })
		k = k.stop()
		t.Run(fmt.Sprintf("big=%v/stop", big), func(t *testing.T) { k.damageAll(t, rng) })
	}
}

func (k *killed) damageAll(t *testing.T, rng *rand.Rand) {
	names := files(t, k.fs)
	t.Logf("files: %v", names)
	all := k.models()[len(k.after):] // the last one
	if reopen(t, k.copy(), rng, all...) == nil {
		t.Fatal("something is lost although nothing was damaged")
	}
	for _, name := range names {
		changes := damages(rng, readFile(t, k.fs, name))
		if b, err := tryRead(k.earlier, name); err == nil {
			changes["an older one"] = b
		}
		for _, other := range names {
			if other != name && path.Ext(other) == path.Ext(name) && path.Dir(other) == path.Dir(name) {
				changes["another one, "+path.Base(other)] = readFile(t, k.fs, other)
			}
		}
		for what, b := range changes {
			if k.settled.big && rng.IntN(sample(t, 1, 40)) > 0 {
				continue
			}
			fs := k.with(t, name, b)
			before := contents(t, fs)
			if reopen(t, fs, rng, all...) == nil {
				// In a new process: where the log failed, this one still holds Pebble's lock.
				again := killed{fs: fs}
				k.refusedAgain(t, again.copy(), name, what)
				if strings.HasSuffix(name, ".sst") {
					continue // a table is read after Pebble has opened
				}
				if after := contents(t, fs); after != before {
					t.Errorf("%s %s: the refused start changed the directory", name, what)
				}
			}
		}
	}
}

// refusedAgain starts once more after a refusal. A start may succeed if the damage is in a
// table whose keys all have newer versions elsewhere: only a compaction reads them, which
// may have run before the first start was verified and not yet now.
func (k *killed) refusedAgain(t *testing.T, fs vfs.FS, name, what string) {
	log, err := open(fs)
	if err == nil {
		_, _, err = replay(log)
		_ = log.Close()
	}
	base := path.Base(name)
	if kind, rest, ok := strings.Cut(base, "."); ok && kind == "marker" {
		base = kind + "." + rest[:strings.Index(rest, ".")] // the rest of the name depends on the content
	}
	switch {
	case err == nil && path.Ext(name) != ".sst":
		t.Errorf("%s %s: refused once, then opened", name, what)
	case err == nil:
	case !strings.Contains(err.Error(), base):
		t.Errorf("%s %s: the refusal does not name it: %v", name, what, err)
	}
}

// TestRollback puts an older copy in the place of the whole directory, as a
// backup is, and in the place of all but HEAD, which is not.
func TestRollback(t *testing.T) {
	rng := testrand.New(t)
	k := kill(t, rng, 40, 0, false)
	log := mustOpen(t, k.earlier.CrashClone(vfs.CrashCloneCfg{}))
	_, bounds, err := replay(log)
	if err != nil || bounds.Head == 0 || bounds.Head >= k.settled.head() {
		t.Errorf("an older copy of the whole directory: head %d of %d, %v", bounds.Head, k.settled.head(), err)
	}
	mustClose(t, log)
	mixed := with(t, k.earlier, "/log/HEAD", readFile(t, k.fs, "/log/HEAD"))
	if reopen(t, mixed, rng) != nil {
		t.Error("an older copy of all but HEAD was opened")
	}
}

func tryRead(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	if len(b) == 0 {
		err = nil
	}
	return b, err
}

func contents(t *testing.T, fs vfs.FS) string {
	var b strings.Builder
	for _, n := range files(t, fs) {
		if name := path.Base(n); name != "LOCK" && name != "RESERVE" {
			fmt.Fprintf(&b, "%s %x\n", n, readFile(t, fs, n))
		}
	}
	return b.String()
}

// TestLostWALIsNamed empties, deletes and cuts the write-ahead log after a kill: the
// refusal names it, the revision that HEAD has and the one that is left, and the remedy.
func TestLostWALIsNamed(t *testing.T) {
	rng := testrand.New(t)
	k := kill(t, rng, 20, 0, false)
	name := lastWAL(files(t, k.fs))
	b := bytes.TrimRight(readFile(t, k.fs, name), "\x00")
	for what, b := range map[string][]byte{"deleted": nil, "emptied": {}, "halved": b[:len(b)/2], "without its last byte": b[:len(b)-1]} {
		fs := k.with(t, name, b)
		_, err := open(fs)
		if err == nil {
			t.Errorf("%s: opened", what)
			continue
		}
		for _, want := range []string{name, "synced", "/log/HEAD", fmt.Sprintf("revision %d", k.settled.head()), "what is left ends at", "--accept-data-loss"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error %q lacks %q", what, err, want)
			}
		}
	}
}

// TestAcceptDataLoss opens damaged logs with data loss accepted. The content is a state that
// the log once had, the warning names its last revision, and the log accepts writes.
func TestAcceptDataLoss(t *testing.T) {
	rng := testrand.New(t)
	for _, big := range []bool{false, true} {
		k := kill(t, rng, 40, 0, big)
		for _, name := range files(t, k.fs) {
			if strings.HasSuffix(name, ".sst") {
				continue // damaged history fails when it is read
			}
			for what, b := range damages(rng, readFile(t, k.fs, name)) {
				if big && rng.IntN(sample(t, 1, 40)) > 0 {
					continue
				}
				fs := k.with(t, name, b)
				refused := reopen(t, k.with(t, name, b), rng, k.settled) == nil
				var said bytes.Buffer
				o := options(fs)
				o.AcceptDataLoss, o.Logger = true, slog.New(slog.NewTextHandler(&said, nil))
				log, err := pebblelog.Open(t.Context(), o)
				if err != nil {
					var d *pebblelog.DamageError
					if !errors.As(err, &d) {
						t.Errorf("%s %s: %v", name, what, err)
					}
					if strings.HasSuffix(name, ".log") {
						t.Errorf("%s %s: refused: %v", name, what, err)
					}
					continue
				}
				_, bounds, err := replay(log)
				if d := (*pebblelog.DamageError)(nil); errors.As(err, &d) {
					_ = log.Close()
					continue
				}
				m := k.settled.upTo(bounds.Head)
				if err == nil {
					err = m.verify(log, rng, 2)
				}
				if err != nil {
					t.Errorf("%s %s: %v", name, what, err)
				}
				if warned := strings.Contains(said.String(), "data loss accepted"); bounds.Head < k.settled.head() && !warned || warned && !refused {
					t.Errorf("%s %s: from revision %d to %d, and it says %q", name, what, k.settled.head(), bounds.Head, &said)
				}
				if err := m.step(log, rng); err != nil {
					t.Errorf("%s %s: %v", name, what, err)
				}
				if err := log.Close(); err != nil {
					t.Errorf("%s %s: %v", name, what, err)
				}
				if reopen(t, fs, rng, m) == nil {
					t.Errorf("%s %s: refused after the loss was accepted", name, what)
				}
			}
		}
	}
}

// upTo returns the model as it was at a revision.
func (m *model) upTo(head store.Revision) *model {
	n := m.clone()
	for len(n.entries) > 0 && n.entries[len(n.entries)-1].Revision > head {
		n.entries = n.entries[:len(n.entries)-1]
	}
	return n
}

// TestAcceptedLossIsKept: whatever a start drops with the flag, although it was refused
// without, is logged and kept; so too when HEAD does not know of it, or is damaged.
func TestAcceptedLossIsKept(t *testing.T) {
	rng := testrand.New(t)
	k := kill(t, rng, 20, 6, false)
	name := lastWAL(files(t, k.fs))
	b := readFile(t, k.fs, name)
	used := len(bytes.TrimRight(b, "\x00"))
	whole := k.after[len(k.after)-1].head()
	dropped := 0
	for i := range sample(t, 400, 60) {
		c := slices.Clone(b)
		c[rng.IntN(used)] ^= 1 << rng.IntN(8)
		headDamaged := i%4 == 0
		fs := k.with(t, name, c)
		if reopen(t, k.with(t, name, c), rng, k.models()...) != nil {
			continue
		}
		if headDamaged {
			put(t, fs, "/log/HEAD", []byte("damaged"))
		}
		var said bytes.Buffer
		o := options(fs)
		o.AcceptDataLoss, o.Logger = true, slog.New(slog.NewTextHandler(&said, nil))
		log, err := pebblelog.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		_, bounds, err := replay(log)
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, log)
		if bounds.Head == whole {
			continue
		}
		dropped++
		kept, err := tryRead(fs, path.Join("/log/dropped", path.Base(name)))
		if err != nil || !bytes.Equal(kept, c) || !strings.Contains(said.String(), "data loss accepted: a write-ahead log") {
			t.Fatalf("revisions from %d to %d are gone (HEAD damaged: %v), the original: %v; it says %s", bounds.Head, whole, headDamaged, err, &said)
		}
	}
	if dropped == 0 {
		t.Error("no write was lost")
	}
}

// TestNoLogIsNotNew: a log whose tables are gone is refused with the flag too, also when
// HEAD cannot be read.
func TestNoLogIsNotNew(t *testing.T) {
	rng := testrand.New(t)
	k := kill(t, rng, 20, 0, false)
	for _, damaged := range []bool{false, true} {
		for _, keepDir := range []bool{false, true} {
			fs := k.copy()
			if err := fs.RemoveAll("/log/pebble"); err != nil {
				t.Fatal(err)
			}
			if keepDir {
				if err := fs.MkdirAll("/log/pebble", 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if damaged {
				put(t, fs, "/log/HEAD", []byte("damaged"))
			}
			for _, accept := range []bool{false, true} {
				o := options(fs)
				o.AcceptDataLoss = accept
				log, err := pebblelog.Open(t.Context(), o)
				if err == nil {
					mustClose(t, log)
				}
				if d := (*pebblelog.DamageError)(nil); !errors.As(err, &d) {
					t.Errorf("HEAD damaged: %v, directory: %v, accepted: %v: %v", damaged, keepDir, accept, err)
				}
			}
		}
	}
}

// TestHeadRenewals counts: HEAD is written once a second while there are writes, once with
// each write-ahead log, once after the last write, and not while nothing is written.
func TestHeadRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := testrand.New(t)
		fs := &renames{FS: vfs.NewMem()}
		log := mustOpen(t, fs)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := fs.take(); n > 2 {
			t.Errorf("HEAD was written %d times at the start and in an idle hour", n)
		}
		m := &model{}
		for range 1000 {
			g := m.group(rng)
			if err := log.Append(t.Context(), g, nil); err != nil {
				t.Fatal(err)
			}
			m.add(g, nil)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n, logs := fs.take(), int(fs.logs.Load()); n < 9 || n > 11+logs {
			t.Errorf("HEAD was written %d times in 10 seconds of writes to %d write-ahead logs", n, logs)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := fs.take(); n > 0 {
			t.Errorf("HEAD was written %d times in an idle hour", n)
		}
		mustClose(t, log)
	})
}

// renames counts how often HEAD was replaced, and the write-ahead logs that were made.
type renames struct {
	vfs.FS
	n, logs atomic.Int64
}

func (fs *renames) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if path.Ext(name) == ".log" {
		fs.logs.Add(1)
	}
	return fs.FS.Create(name, c)
}

func (fs *renames) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	fs.logs.Add(1)
	return fs.FS.ReuseForWrite(from, to, c)
}

func (fs *renames) Rename(from, to string) error {
	if path.Base(to) == "HEAD" {
		fs.n.Add(1)
	}
	return fs.FS.Rename(from, to)
}

func (fs *renames) take() int { return int(fs.n.Swap(0)) }
