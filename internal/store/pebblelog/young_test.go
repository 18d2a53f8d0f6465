package pebblelog_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestYoungWAL kills a server whose newest write-ahead log has acknowledged writes and is too
// young for the periodic renewal of HEAD, and then damages that file: it is deleted, renamed,
// emptied, zeroed, or cut to a valid prefix. The next start refuses and names the file, and goes on
// with AcceptDataLoss. The clock of the test stands still, so nothing is renewed in time.
//
// A power cut may lose SYNCED. Then the file is refused as long as it is cut before the end of its
// first group, and taken for unfinished writes if it is cut behind it.
func TestYoungWAL(t *testing.T) {
	rng := testrand.New(t)
	for _, c := range []struct {
		name    string
		restart bool // the log is not the first one of its directory
		big     bool // Pebble begins another one while the server runs
	}{{name: "first"}, {name: "after a restart", restart: true}, {name: "rotated", big: true}} {
		t.Run(c.name, func(t *testing.T) {
			k := killYoung(t, rng, c.restart, c.big)
			name := lastWAL(files(t, k.fs))
			b := readFile(t, k.fs, name)
			changes := map[string]func(vfs.FS){
				"deleted": func(fs vfs.FS) { put(t, fs, name, nil) },
				"emptied": func(fs vfs.FS) { put(t, fs, name, []byte{}) },
				"zeroed":  func(fs vfs.FS) { put(t, fs, name, make([]byte, len(b))) },
				"renamed": func(fs vfs.FS) { put(t, fs, name+".old", b); put(t, fs, name, nil) },
			}
			for _, end := range k.ends[:len(k.ends)-1] {
				changes[fmt.Sprintf("cut at %d of %d", end, k.ends[len(k.ends)-1])] = func(fs vfs.FS) { put(t, fs, name, b[:end]) }
			}
			for what, change := range changes {
				fs := k.copy()
				change(fs)
				_, err := open(fs)
				if err == nil {
					t.Errorf("%s: opened without its writes", what)
					continue
				}
				if !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "--accept-data-loss") {
					t.Errorf("%s: %v", what, err)
				}
				o := options(fs)
				o.AcceptDataLoss = true
				log, err := pebblelog.Open(t.Context(), o)
				if err != nil {
					t.Errorf("%s: with the loss accepted: %v", what, err)
					continue
				}
				mustClose(t, log)
				mustClose(t, mustOpen(t, fs)) // accepted once
			}
			for i, end := range k.ends {
				fs := k.copy()
				put(t, fs, "/log/SYNCED", nil)
				put(t, fs, name, b[:end-1])
				if log, err := open(fs); i == 0 {
					if err == nil {
						t.Error("cut in its first group, without SYNCED: opened")
						mustClose(t, log)
					}
				} else if err != nil {
					t.Errorf("cut in group %d of its file, without SYNCED: %v", i, err)
				} else {
					mustClose(t, log)
				}
			}
			if last := k.after[len(k.after)-1]; reopen(t, k.copy(), rng, last) != last {
				t.Error("something is lost although nothing was damaged")
			}
		})
	}
}

// killYoung appends to a log, whose newest write-ahead log then has some groups, and takes a picture
// as kill -9 leaves it. It checks that HEAD was written once for each write-ahead log.
func killYoung(t *testing.T, rng *rand.Rand, restart, big bool) killed {
	t.Helper()
	var k killed
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewCrashableMem()
		fs := &renames{FS: mem}
		m := &model{big: big}
		log := mustOpen(t, fs)
		wal := ""
		write := func() {
			g := m.group(rng)
			if err := log.Append(t.Context(), g, nil); err != nil {
				t.Fatal(err)
			}
			m = m.clone()
			m.add(g, nil)
			k.after = append(k.after, m)
			last := lastWAL(files(t, mem))
			if last != wal {
				wal, k.ends = last, nil
			}
			k.ends = append(k.ends, len(bytes.TrimRight(readFile(t, mem, last), "\x00")))
		}
		if restart {
			write()
			mustClose(t, log)
			log = mustOpen(t, fs)
		}
		synctest.Wait()
		fs.take()
		first := path.Base(lastWAL(files(t, mem)))
		logs := 1
		for i := 0; i < 3 || big && logs < 3; i++ {
			write()
			if last := path.Base(lastWAL(files(t, mem))); last != first {
				first = last
				logs++
				write() // a group that is larger than a memtable may be in the log before
			}
		}
		if n := fs.take(); !big && n != 1 {
			t.Errorf("HEAD was written %d times for %d groups in one write-ahead log", n, len(k.after))
		}
		k.fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
		mustClose(t, log)
	})
	return k
}
