package pebblelog_test

import (
	"cmp"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/pebblelog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var crashesFlag = flag.Int("crashes", 0, "how many crashes TestCrash goes through; 0 is 2000 in the full tier, 150 in others")

// sample is how often a test does something: the whole in the full tier, a part of it in others.
func sample(t testing.TB, whole, part int) int {
	t.Helper()
	if tier.IsFull(t) {
		return whole
	}
	return part
}

// crasher is a file system that now and then takes a picture of itself as a power
// cut would leave it: the synced bytes, and some of the others.
type crasher struct {
	mem *vfs.MemFS

	mu       sync.Mutex // guards the rest
	rng      *rand.Rand
	want     int // pictures to take
	every    int // one in so many operations
	acked    *model
	pending  *model // with the group under way; nil when there is none
	pictures []picture
}

// picture is a file system after a power cut. The log in it has to be acked or,
// if there is one, pending.
type picture struct {
	fs             *vfs.MemFS
	acked, pending *model
}

func (c *crasher) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	every := c.every
	if strings.Contains(op.Path, "marker.") || strings.Contains(op.Path, "HEAD") {
		every = 4 // these name other files, or vouch for them
	}
	if c.want > 0 && c.rng.IntN(every) == 0 {
		c.want--
		c.pictures = append(c.pictures, picture{c.clone(), c.acked, c.pending})
	}
	return nil
}

func (c *crasher) String() string { return "crasher" }

// clone leaves between none and all of the bytes that were not synced.
func (c *crasher) clone() *vfs.MemFS {
	return c.mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: []int{0, 10, 50, 90, 100}[c.rng.IntN(5)],
		RNG:                 rand.New(rand.NewPCG(c.rng.Uint64(), 1)),
	})
}

func (c *crasher) set(acked, pending *model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked, c.pending = acked, pending
}

// TestCrash cuts the power at random moments of writing, compacting, opening and closing.
// Afterwards the log must have all acknowledged writes, and at most the whole group that was
// being written. The test then continues on that log.
func TestCrash(t *testing.T) {
	rng := testrand.New(t)
	fresh := func() picture {
		return picture{fs: vfs.NewCrashableMem(), acked: &model{big: rng.IntN(8) == 0}}
	}
	start := fresh()
	want := cmp.Or(*crashesFlag, sample(t, 2000, 150))
	for crashes := 0; crashes < want; {
		pictures := run(t, start, rng)
		for _, p := range pictures {
			crashes++
			m, err := p.survivor(rng)
			if err != nil {
				t.Fatalf("crash %d: %v", crashes, err)
			}
			start = picture{fs: p.fs, acked: m}
		}
		if len(start.acked.entries) > 300 {
			start = fresh()
		}
	}
}

// run writes for a while, and returns pictures that were taken on the way.
func run(t *testing.T, from picture, rng *rand.Rand) []picture {
	t.Helper()
	c := &crasher{mem: from.fs, rng: rand.New(rand.NewPCG(rng.Uint64(), 2)), want: 10, every: 4 + rng.IntN(60)}
	c.set(from.acked, nil)
	fs := errorfs.Wrap(from.fs, c)
	log := mustOpen(t, fs)
	m := from.acked
	for range 30 + rng.IntN(60) {
		next := m.clone()
		if rng.IntN(15) == 0 && m.head() > m.floor {
			next.compact(m.floor + store.Revision(rng.Uint64N(uint64(m.head()-m.floor)+1)))
			c.set(m, next)
			if err := log.Compact(t.Context(), next.floor); err != nil {
				t.Fatal(err)
			}
		} else {
			g := m.group(rng)
			mark := m.nextMark(rng, g)
			next.add(g, mark)
			c.set(m, next)
			if err := log.Append(t.Context(), g, mark); err != nil {
				t.Fatal(err)
			}
		}
		c.set(next, nil)
		m = next
	}
	mustClose(t, log)
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(c.pictures, picture{c.clone(), m, nil}) // a power cut after a clean stop
}

// survivor opens the log in the picture, and returns the model that it follows.
func (p picture) survivor(rng *rand.Rand) (*model, error) {
	log, err := open(p.fs)
	if err != nil {
		return nil, err
	}
	m := p.acked
	if err = m.verify(log, rng, 3); err != nil && p.pending != nil {
		m = p.pending
		if e := m.verify(log, rng, 3); e != nil {
			err = errors.Join(err, e)
		} else {
			err = nil
		}
	}
	return m, errors.Join(err, log.Close())
}

// failAfter fails every operation that writes, from the n-th on after arm.
type failAfter struct {
	err error

	mu    sync.Mutex // guards the rest
	armed bool
	n     int
}

func (f *failAfter) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = true
}

func (f *failAfter) MaybeError(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpFileClose {
		return nil
	}
	if op.Path == "/log/pebble" {
		return nil // Pebble ends the process itself when a directory cannot be synced
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		return nil
	}
	if f.n--; f.n < 0 {
		return f.err
	}
	return nil
}

func (f *failAfter) String() string { return "failAfter" }

// TestWriteError has the disk fail at every operation in turn, or be full although the
// log saw space: Append returns the error, every later call fails, and acknowledged writes survive a
// power cut.
func TestWriteError(t *testing.T) {
	rng := testrand.New(t)
	for n := 0; n < 200; n += sample(t, 1, 9) {
		n, failure := n/2, []error{syscall.EIO, syscall.ENOSPC}[n%2]
		mem := vfs.NewCrashableMem()
		fault := &failAfter{err: failure, n: n}
		log := mustOpen(t, errorfs.Wrap(mem, fault))
		m := &model{}
		for range 3 {
			if err := m.step(log, rng); err != nil {
				t.Fatal(err)
			}
		}
		fault.arm()
		pending := appendUntilError(t, log, m, rng)
		if err := log.Append(t.Context(), m.group(rng), nil); err == nil || errors.Is(err, store.ErrNoSpace) {
			t.Fatalf("%v at operation %d: a failed log goes on: %v", failure, n, err)
		}
		if err := log.Close(); err == nil || strings.Contains(err.Error(), "\n") {
			t.Fatalf("%v at operation %d: a failed log closes with %v", failure, n, err)
		}
		p := picture{mem.CrashClone(vfs.CrashCloneCfg{}), m, pending}
		if _, err := p.survivor(rng); err != nil {
			t.Fatalf("%v at operation %d: %v", failure, n, err)
		}
	}
}

// appendUntilError adds the acknowledged writes to the model, and returns a model
// with the group that was not.
func appendUntilError(t *testing.T, log *pebblelog.Log, m *model, rng *rand.Rand) *model {
	t.Helper()
	for range 1000 {
		g := m.group(rng)
		if err := log.Append(t.Context(), g, nil); err != nil {
			next := m.clone()
			next.add(g, nil)
			return next
		}
		m.add(g, nil)
	}
	t.Fatal("1000 groups on a disk that fails")
	return nil
}
