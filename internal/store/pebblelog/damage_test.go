package pebblelog_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// files returns the names of the files of a log, and of Pebble in it.
func files(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	var all []string
	for _, dir := range []string{"/log", "/log/pebble"} {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if n != "pebble" {
				all = append(all, path.Join(dir, n))
			}
		}
	}
	slices.Sort(all)
	return all
}

// lastWAL picks the write-ahead log that is in use. An older one may lie around
// to be used again.
func lastWAL(names []string) string {
	last := ""
	for _, n := range names {
		if strings.HasSuffix(n, ".log") {
			last = max(last, n)
		}
	}
	return last
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// with returns a copy of a file system in which one file has other bytes.
func with(t *testing.T, fs *vfs.MemFS, name string, b []byte) *vfs.MemFS {
	t.Helper()
	c := fs.CrashClone(vfs.CrashCloneCfg{})
	f, err := c.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return c
}

// written returns a file system with a log, as a clean stop or a power cut leaves
// it, and the models of the log before its last group, before the one before that, and
// with both.
func written(t *testing.T, rng *rand.Rand, clean bool) (fs *vfs.MemFS, before [2]*model, all *model) {
	t.Helper()
	mem := vfs.NewCrashableMem()
	log := mustOpen(t, mem)
	all = &model{}
	for range 8 {
		before = [2]*model{all.clone(), before[0]}
		g := all.group(rng)
		if err := log.Append(t.Context(), g, nil); err != nil {
			t.Fatal(err)
		}
		all.add(g, nil)
	}
	if clean {
		if err := log.Compact(t.Context(), all.head()/2); err != nil {
			t.Fatal(err)
		}
		all.compact(all.head() / 2)
		mustClose(t, log)
		return mem.CrashClone(vfs.CrashCloneCfg{}), before, all
	}
	fs = mem.CrashClone(vfs.CrashCloneCfg{})
	mustClose(t, log)
	return fs, before, all
}

// reopen opens a log that may be damaged, and verifies it against the models. It
// returns the first that fits, nil when the log was refused. A log that is opened
// and fits none of them is an error.
func reopen(t *testing.T, fs vfs.FS, rng *rand.Rand, models ...*model) *model {
	t.Helper()
	log, err := open(fs)
	if err == nil {
		defer log.Close()
		for _, m := range models {
			if err = m.verify(log, rng, 2); err == nil {
				return m
			}
		}
	}
	var d *pebblelog.DamageError
	if !errors.As(err, &d) {
		t.Fatalf("neither refused as damaged nor as it was: %v", err)
	}
	if !strings.HasPrefix(d.File, "/log") || d.Place == "" || !strings.Contains(d.Error(), "restore the file or a backup") {
		t.Fatalf("a refusal without file, place and remedy: %s", d)
	}
	return nil
}

// TestFlipAfterCleanStop flips every byte of the last write-ahead log, and of the
// small files, after a clean stop: the log is refused, or it is as it was.
func TestFlipAfterCleanStop(t *testing.T) {
	rng := testrand.New(t)
	fs, _, all := written(t, rng, true)
	if reopen(t, fs.CrashClone(vfs.CrashCloneCfg{}), rng, all) == nil {
		t.Fatal("refused although nothing was changed")
	}
	for _, name := range files(t, fs) {
		b := readFile(t, fs, name)
		flips, refused := 0, 0
		last := name == lastWAL(files(t, fs))
		used := len(bytes.TrimRight(b, "\x00")) // zeros are ahead of the written bytes
		for i := range b {
			if i < used && !last && used > 200 && rng.IntN(used) > 200 || i >= used && rng.IntN(len(b)-used) > 50 {
				continue // a sample of the other files, and of those without writes
			}
			if rng.IntN(sample(t, 1, 40)) > 0 {
				continue
			}
			if i < used {
				flips++
			}
			c := slices.Clone(b)
			c[i] ^= 1 << rng.IntN(8)
			switch reopened := reopen(t, with(t, fs, name, c), rng, all); {
			case reopened != nil:
			case i >= used:
				t.Errorf("%s: refused for byte %d, behind what was written", name, i)
			default:
				refused++
			}
		}
		t.Logf("%s: %d bytes, %d of %d flips refused", name, len(b), refused, flips)
		if last && refused < flips*9/10 {
			t.Errorf("%s: only %d of %d flips were refused", name, refused, flips)
		}
	}
}

// TestFlipAfterPowerCut flips a dense sample in a log that was not closed. The very last
// group may look like a torn write, and the one before it where Pebble had reported its sync
// before it noted that; everything before them may not.
func TestFlipAfterPowerCut(t *testing.T) {
	rng := testrand.New(t)
	fs, before, all := written(t, rng, false)
	name := lastWAL(files(t, fs))
	b := readFile(t, fs, name)
	used := len(bytes.TrimRight(b, "\x00"))
	outcome := map[*model]int{}
	flips := 0
	for i := rng.IntN(5); i < used; i += 1 + rng.IntN(sample(t, 5, 100)) {
		flips++
		c := slices.Clone(b)
		c[i] ^= 1 << rng.IntN(8)
		outcome[reopen(t, with(t, fs, name, c), rng, all, before[0], before[1])]++
	}
	for range sample(t, 50, 5) {
		c := slices.Clone(b)
		c[used+rng.IntN(len(b)-used)] ^= 1 << rng.IntN(8)
		if reopen(t, with(t, fs, name, c), rng, all) == nil {
			t.Errorf("%s: refused for a byte behind what was written", name)
		}
	}
	t.Logf("%s: %d flips, %d refused, %d lost the last group, %d the last two, %d did nothing",
		name, flips, outcome[nil], outcome[before[0]], outcome[before[1]], outcome[all])
	if outcome[nil] < flips/2 {
		t.Errorf("%s: only %d flips of %d were refused", name, outcome[nil], flips)
	}
}

// TestTruncate cuts each file short: the log is refused, or it is as it was, or
// (of the write-ahead log after a power cut) it is without its last group.
func TestTruncate(t *testing.T) {
	rng := testrand.New(t)
	for _, clean := range []bool{true, false} {
		fs, before, all := written(t, rng, clean)
		allowed := []*model{all}
		if !clean {
			allowed = append(allowed, before[0])
		}
		for _, name := range files(t, fs) {
			b := bytes.TrimRight(readFile(t, fs, name), "\x00")
			for range sample(t, 40, 10) {
				if len(b) == 0 {
					continue
				}
				n := rng.IntN(len(b))
				if !clean && strings.HasSuffix(name, ".log") {
					n = len(b) - 1 - rng.IntN(min(len(b), 64)) // who cuts more off leaves no trace
				}
				reopen(t, with(t, fs, name, b[:n]), rng, allowed...)
			}
		}
	}
}

// TestRemovedFile removes each file after a clean stop.
func TestRemovedFile(t *testing.T) {
	rng := testrand.New(t)
	fs, _, all := written(t, rng, true)
	for _, name := range files(t, fs) {
		c := fs.CrashClone(vfs.CrashCloneCfg{})
		if err := c.Remove(name); err != nil {
			t.Fatal(err)
		}
		m := reopen(t, c, rng, all)
		needed := path.Base(name) == "HEAD" || name == lastWAL(files(t, fs)) || strings.HasSuffix(name, ".sst")
		if needed && m != nil {
			t.Errorf("%s: not missed", name)
		}
	}
}

// TestForeignWrite changes the log behind its back, through Pebble, so that no
// checksum of Pebble's tells.
func TestForeignWrite(t *testing.T) {
	rng := testrand.New(t)
	fs, _, all := written(t, rng, true)
	type record struct{ key, value []byte }
	var records []record
	edit := func(fs vfs.FS, f func(db *pebble.DB)) {
		t.Helper()
		db, err := pebble.Open("/log/pebble", &pebble.Options{
			FS: fs, FormatMajorVersion: pebble.FormatValueSeparation, Logger: silent{},
		})
		if err != nil {
			t.Fatal(err)
		}
		f(db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	edit(fs, func(db *pebble.DB) {
		it, err := db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			records = append(records, record{slices.Clone(it.Key()), slices.Clone(it.Value())})
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	})
	for _, r := range records {
		for what, change := range map[string]func(db *pebble.DB) error{
			"removed": func(db *pebble.DB) error { return db.Delete(r.key, pebble.Sync) },
			"flipped": func(db *pebble.DB) error {
				v := slices.Clone(r.value)
				v[rng.IntN(len(v))] ^= 1 << rng.IntN(8)
				return db.Set(r.key, v, pebble.Sync)
			},
			"moved": func(db *pebble.DB) error {
				k := slices.Clone(r.key)
				k[len(k)-1]++
				return errors.Join(db.Delete(r.key, pebble.Sync), db.Set(k, r.value, pebble.Sync))
			},
		} {
			c := fs.CrashClone(vfs.CrashCloneCfg{})
			edit(c, func(db *pebble.DB) {
				if err := change(db); err != nil {
					t.Fatal(err)
				}
			})
			copied := c.CrashClone(vfs.CrashCloneCfg{})
			spare := what == "removed" && r.key[0] == 'a' && store.Revision(binary.BigEndian.Uint64(r.key[1:])) <= all.floor
			if reopen(t, c, rng, all) != nil && !spare { // perhaps no change refers to it any more
				t.Errorf("key %q %s: not noticed", r.key, what)
			}
			if r.key[0] == 'h' || r.key[0] == 'a' {
				continue // history is checked when it is read
			}
			if log, err := open(copied); err == nil {
				if _, _, err := replay(log); err == nil {
					t.Errorf("key %q %s: not noticed by a start", r.key, what)
				}
				mustClose(t, log)
			}
		}
	}
}

// silent is a logger for Pebble.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(f)
}

// TestCheckReadsAllTables damages each table of a log in turn. A start does not need those whose records have been
// replaced, and the first compaction does: Check finds the damage before.
func TestCheckReadsAllTables(t *testing.T) {
	rng := testrand.New(t)
	mem := vfs.NewCrashableMem()
	all := &model{}
	for range 2 { // each start flushes the writes of the one before
		log := mustOpen(t, mem)
		g := all.group(rng)
		if err := log.Append(t.Context(), g, nil); err != nil {
			t.Fatal(err)
		}
		all.add(g, nil)
		mustClose(t, log)
	}
	mustClose(t, mustOpen(t, mem))
	tables := 0
	for _, name := range files(t, mem) {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		tables++
		b := readFile(t, mem, name)
		b[len(b)/2] ^= 0xff
		o := options(with(t, mem, name, b))
		o.ReadOnly = true
		log, err := pebblelog.Open(t.Context(), o)
		if err == nil {
			err = log.Check(t.Context())
			mustClose(t, log)
		}
		var damage *pebblelog.DamageError
		if !errors.As(err, &damage) || damage.File != name {
			t.Errorf("%s is damaged: got %v", name, err)
		}
	}
	if tables < 2 {
		t.Errorf("got %d tables, want some whose records have been replaced", tables)
	}
}
