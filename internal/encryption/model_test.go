package encryption

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// modelMarker is in each encrypted value of the model, and must not be on the disk.
const modelMarker = "marker-of-the-model"

// model is the expected content of a server with encryption.
type model struct {
	t   *testing.T
	rng *rand.Rand
	mem *vfs.MemFS

	keys []string // providers in their order: the first one encrypts
	made int      // keys that were ever made
	set  *Set
	log  *Log
	s    *store.Store

	mu       sync.Mutex // guards the fields that the file system's hook uses
	chance   *rand.Rand // of the hook
	acked    map[place]string
	pending  map[place]string // with the write under way; nil: none
	every    int              // a power cut in one of so many operations of the file system
	pictures []cut
}

// cut is a file system after a power cut. It has acked or, if a write was under way, pending.
type cut struct {
	fs             *vfs.MemFS
	acked, pending map[place]string
	keys           []string
}

// MaybeError implements errorfs.Injector: it takes pictures.
func (m *model) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acked != nil && len(m.pictures) < 3 && m.chance.IntN(m.every) == 0 {
		m.pictures = append(m.pictures, cut{m.clone(), m.acked, m.pending, slices.Clone(m.keys)})
	}
	return nil
}

func (m *model) String() string { return "model" }

func (m *model) clone() *vfs.MemFS {
	return m.mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: []int{0, 50, 100}[m.chance.IntN(3)], RNG: rand.New(rand.NewPCG(m.chance.Uint64(), 1)),
	})
}

// config is the configuration with the keys of the model.
func (m *model) config(keys []string) string {
	return rules("secrets", keys...) + "- resources: [configmaps]\n  providers: [{identity: {}}]\n"
}

// newKey puts a new key in front.
func (m *model) newKey() {
	name := fmt.Sprintf("k%d", m.made)
	m.made++
	key := []string{aescbcKeys(name), aesgcmKeys(name), secretboxKeys(name)}[m.rng.IntN(3)]
	m.mu.Lock()
	m.keys = slices.Insert(m.keys, 0, key)
	m.mu.Unlock()
}

func (m *model) open(fs vfs.FS) {
	m.t.Helper()
	m.set = mustSet(m.t, m.config(m.keys))
	m.log = Wrap(mustOpen(m.t, pebblelog.Options{Dir: "/log", FS: fs}), NewActive(m.set))
	var err error
	m.s, err = stores.Open(m.t.Context(), store.Options{Log: m.log, Encryption: m.log, OnFatal: func(err error) { m.t.Errorf("the log failed: %v", err) }})
	if err != nil {
		m.t.Fatal(err)
	}
}

// check compares the store with the expected content, and searches for the marker in all files.
func (m *model) check(fs vfs.FS, want ...map[place]string) map[place]string {
	m.t.Helper()
	got := map[place]string{}
	for _, collection := range []string{"secrets", "configmaps"} {
		for o := range m.s.Any().Snapshot(collection).Scan("", "") {
			text, _, _ := strings.Cut(strings.TrimPrefix(string(o.Bytes()), `{"text":"`), `"`)
			got[place{collection, o.Key}] = text
		}
	}
	for _, w := range want {
		if w != nil && maps.Equal(got, w) {
			m.search(fs, "/log")
			return w
		}
	}
	m.t.Fatalf("got %v\nwant one of %v", got, want)
	return nil
}

func (m *model) search(fs vfs.FS, dir string) {
	m.t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		if err != nil {
			continue // it is gone meanwhile
		}
		if info.IsDir() {
			m.search(fs, path)
			continue
		}
		f, err := fs.Open(path)
		if err != nil {
			continue
		}
		b, err := io.ReadAll(f)
		if err = errors.Join(err, f.Close()); err != nil {
			m.t.Fatal(err)
		}
		if bytes.Contains(b, []byte(modelMarker)) {
			m.t.Fatalf("%s has a secret in clear", path)
		}
	}
}

// step makes a random change.
func (m *model) step() {
	switch m.rng.IntN(40) {
	case 0: // another configuration takes over
		m.newKey()
		m.exchange()
	case 1: // all is written anew, and the old keys go
		for at, text := range m.acked {
			if m.s.Outdated(at.collection, at.key) {
				write(m.t, m.s, at.collection, at.key, text)
			}
		}
		m.mu.Lock()
		m.keys = m.keys[:1]
		m.mu.Unlock()
		m.exchange()
	case 2: // a configuration that lacks the key is refused
		if !m.has("secrets") {
			return
		}
		var bad *UnreadableError
		if err := m.log.exchange(m.t.Context(), mustSet(m.t, m.config([]string{aesgcmKeys("zz")}))); !errors.As(err, &bad) {
			m.t.Fatalf("a configuration that lacks the keys: %v", err)
		}
	case 3:
		if err := m.log.Compact(m.t.Context(), m.s.Any().Revision()); err != nil {
			m.t.Fatal(err)
		}
	default:
		m.write()
	}
}

func (m *model) has(collection string) bool {
	for at := range m.acked {
		if at.collection == collection {
			return true
		}
	}
	return false
}

func (m *model) exchange() {
	m.t.Helper()
	if err := m.log.exchange(m.t.Context(), mustSet(m.t, m.config(m.keys))); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) write() {
	at := place{"secrets", fmt.Sprintf("ns/%d", m.rng.IntN(8))}
	text := fmt.Sprintf("%s-%d-%s", modelMarker, m.rng.Uint32(), strings.Repeat(modelMarker, m.rng.IntN(100)))
	if m.rng.IntN(4) == 0 {
		at, text = place{"configmaps", at.key}, fmt.Sprint("plain", m.rng.Uint32())
	}
	next := maps.Clone(m.acked)
	next[at] = text
	if _, there := m.acked[at]; there && m.rng.IntN(4) == 0 {
		text = ""
		delete(next, at)
	}
	m.mu.Lock()
	m.pending = next
	m.mu.Unlock()
	write(m.t, m.s, at.collection, at.key, text)
	m.mu.Lock()
	m.acked, m.pending = next, nil
	m.mu.Unlock()
}

// TestModel writes, changes keys, restarts and cuts the power, at random. Acknowledged writes stay,
// the log stays consistent, and no secret is in any file.
func TestModel(t *testing.T) {
	m := &model{t: t, rng: testrand.New(t), mem: vfs.NewCrashableMem(), acked: map[place]string{}}
	m.chance = rand.New(rand.NewPCG(m.rng.Uint64(), 2))
	m.newKey()
	cuts := 40
	if tier.IsFull(t) {
		cuts = 400
	}
	for done := 0; done < cuts; {
		m.mu.Lock()
		m.pictures, m.every = nil, 20+m.rng.IntN(100)
		m.mu.Unlock()
		m.open(errorfs.Wrap(m.mem, m))
		for range 20 + m.rng.IntN(100) {
			m.step()
		}
		m.check(m.mem, m.acked)
		storetest.Close(t, m.s)
		m.mu.Lock()
		pictures := append(m.pictures, cut{m.mem, m.acked, nil, slices.Clone(m.keys)})
		m.pictures = nil
		m.mu.Unlock()
		for _, p := range pictures {
			done++
			m.keys = p.keys
			m.open(p.fs)
			m.acked = m.check(p.fs, p.acked, p.pending)
			storetest.Close(t, m.s)
			m.mem = p.fs
		}
		if m.mem = pictures[len(pictures)-1].fs; m.rng.IntN(4) == 0 && len(pictures) > 1 {
			m.survive(pictures[0])
		}
		if m.rng.IntN(5) == 0 {
			m.newKey() // with the next start
		}
	}
}

// survive continues after a power cut instead of the clean stop. The picture was opened already.
func (m *model) survive(p cut) {
	m.mem, m.keys = p.fs, p.keys
	m.open(m.mem)
	m.acked = m.check(m.mem, p.acked, p.pending)
	storetest.Close(m.t, m.s)
}
