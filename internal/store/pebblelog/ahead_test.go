package pebblelog_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// full is a file system without room for preallocated log files.
type full struct{ vfs.FS }

type fullFile struct{ vfs.File }

func (fs full) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		f = fullFile{f}
	}
	return f, err
}

func (fullFile) WriteAt([]byte, int64) (int, error) { return 0, errors.New("no room") }

// TestAhead: a write-ahead log grows in steps, each as large as the log and 64 KiB at
// least; without room for them it is as long as the written bytes, and as whole.
func TestAhead(t *testing.T) {
	for _, room := range []bool{true, false} {
		rng := testrand.New(t)
		mem := vfs.NewCrashableMem()
		fs := vfs.FS(mem)
		if !room {
			fs = full{mem}
		}
		log := mustOpen(t, fs)
		all := &model{}
		sizes, used := map[int]bool{}, 0
		for used < 200<<10 {
			g := all.group(rng)
			if err := log.Append(t.Context(), g, nil); err != nil {
				t.Fatal(err)
			}
			all.add(g, nil)
			b := readFile(t, mem, lastWAL(files(t, mem)))
			sizes[len(b)] = true
			used = len(bytes.TrimRight(b, "\x00"))
			if ahead := len(b) - used; room && (ahead == 0 || ahead > used+64<<10) || !room && ahead > 100 { // the written bytes may end in zeros
				t.Fatalf("%d bytes behind %d that were written", ahead, used)
			}
		}
		if room && len(sizes) > 4 {
			t.Errorf("it had %d sizes on the way to %d bytes", len(sizes), used)
		}
		c := mem.CrashClone(vfs.CrashCloneCfg{})
		mustClose(t, log)
		if reopen(t, c, rng, all) == nil {
			t.Error("it was refused")
		}
	}
}
