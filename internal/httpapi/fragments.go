package httpapi

import (
	"container/list"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/deflate"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// fragments keeps compressed runs of neighbours, so that a list is compressed
// about once for each version of each run, however many clients ask for it: most
// of a list has not changed since somebody listed it.
//
// A run ends where the hash of a key says so, see runs.add. So the same
// neighbours make the same run in the list of a namespace, in that of all
// namespaces, in a page and in a list of the past, and a change makes one new run.
// Runs of 16 to 64 objects compress nearly as well as the whole list; single
// objects would need four times the bytes.
//
// What is not used any more goes when the budget is spent, the longest unused
// first.
type fragments struct {
	max    int64             // bytes
	charge func(bytes int64) // tells who accounts for memory
	grown  func()            // tells who shares the budget; called without mu

	mu     sync.Mutex
	runs   map[uint64]*keptRun
	recent list.List // of *keptRun, the last used first
	bytes  int64
	used   atomic.Int64 // the same, for those who do not hold mu
}

// keptRun is a run with its fragment. What identifies it is the revisions of its
// objects and its hash, which the keys are in.
type keptRun struct {
	hash      uint64
	typ       uint64 // its ID
	look      look
	moment    uint64
	revisions []store.Revision
	place     *list.Element

	once     sync.Once
	fragment *deflate.Fragment
	err      error
	bytes    int64 // counted in fragments.bytes, guarded by fragments.mu
}

// errUnfinished is what others find who waited for a run when making it panicked.
var errUnfinished = errors.New("a part of the list could not be made")

// keptOverhead is about what a run costs beside its fragment and its revisions.
const keptOverhead = 256

func newFragments(max int64, charge func(int64), grown func()) *fragments {
	return &fragments{max: max, charge: charge, grown: grown, runs: map[uint64]*keptRun{}}
}

// of returns the fragment of a run, which text makes when it is not there. Those
// who want the same run at the same time wait for one of them.
func (f *fragments) of(r *run, text func() ([]byte, error)) (*deflate.Fragment, error) {
	if r.passing {
		b, err := text()
		if err != nil {
			return nil, err
		}
		return deflate.Compress(b), nil
	}
	k := f.find(r)
	k.once.Do(func() {
		defer f.grown()
		defer f.settle(k)
		k.err = errUnfinished
		b, err := text()
		if err == nil {
			k.fragment = deflate.Compress(b)
		}
		k.err = err
	})
	return k.fragment, k.err
}

// find returns the entry of a run, a new one when there is none.
func (f *fragments) find(r *run) *keptRun {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.runs[r.hash]; k != nil {
		if k.is(r) {
			f.recent.MoveToFront(k.place)
			return k
		}
		f.remove(k)
	}
	k := &keptRun{hash: r.hash, typ: r.typ.ID, look: r.look, moment: r.moment, revisions: make([]store.Revision, len(r.objects))}
	for i, o := range r.objects {
		k.revisions[i] = o.Modified
	}
	k.place = f.recent.PushFront(k)
	f.runs[k.hash] = k
	return k
}

func (k *keptRun) is(r *run) bool {
	return k.typ == r.typ.ID && k.look == r.look && k.moment == r.moment && slices.EqualFunc(k.revisions, r.objects, func(v store.Revision, o *store.Object) bool { return v == o.Modified })
}

// settle counts what a run costs, now that it is known, and makes room for it.
func (f *fragments) settle(k *keptRun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs[k.hash] != k {
		return // removed meanwhile
	}
	if k.err != nil {
		f.remove(k)
		return
	}
	before := f.bytes
	k.bytes = int64(k.fragment.Len()) + 8*int64(len(k.revisions)) + keptOverhead
	f.bytes += k.bytes
	f.charge(f.bytes - before)
	for f.bytes > f.max {
		f.remove(f.recent.Back().Value.(*keptRun))
	}
	f.used.Store(f.bytes)
}

// remove forgets a run; f.mu is held.
func (f *fragments) remove(k *keptRun) {
	delete(f.runs, k.hash)
	f.recent.Remove(k.place)
	f.bytes -= k.bytes
	f.charge(-k.bytes)
}

// run is neighbours that are compressed together.
type run struct {
	typ     *resource.Type
	look    look
	moment  uint64 // of the rows of a table: what they say of ages
	passing bool   // soon they say something else: it is not worth being kept
	objects []*store.Object
	hash    uint64
	bytes   int
}

// The size of a run: it ends after one of runEvery objects on average, from
// minRun on, and at the latest when it has maxRun objects or maxRunBytes.
const (
	minRun      = 16
	runEvery    = 32
	maxRun      = 64
	maxRunBytes = 512 << 10
)

var runSeed = maphash.MakeSeed()

// add adds the next object, and tells whether it ends the run.
func (r *run) add(o *store.Object) bool {
	key := maphash.String(runSeed, o.Key)
	r.objects = append(r.objects, o)
	r.hash = (r.hash^key^uint64(o.Modified))*0x9e3779b97f4a7c15 + key
	r.bytes += o.Len()
	n := len(r.objects)
	return n >= minRun && key%runEvery == 0 || n == maxRun || r.bytes >= maxRunBytes
}

// reset begins the next run.
func (r *run) reset() { *r = run{typ: r.typ, look: r.look, objects: r.objects[:0]} }

// zipped is a list that is being put together from fragments.
type zipped struct {
	s      *sink
	member deflate.Member
	shape  *shape
	run    run
	begun  bool // an item stands before the run
	// measures: nothing is written but the bytes of the items are counted.
	measures bool
	size     int
}

var comma = []byte{','}

func newZipped(s *sink, h *shape) *zipped {
	return &zipped{s: s, shape: h, run: run{typ: h.typ, look: h.look()}}
}

// zip starts the answer as a member with the head of the list and its first items.
func (s *sink) zip(h *shape, head []byte, items []*store.Object) (*zipped, error) {
	s.begin(true)
	z := newZipped(s, h)
	s.out = z.member.Begin(s.out)
	s.out = z.member.AddStored(s.out, head)
	for _, o := range items {
		if err := z.add(o); err != nil {
			return nil, err
		}
	}
	return z, nil
}

// add adds an item.
func (z *zipped) add(o *store.Object) error {
	moment, lasting, err := z.shape.moment(o)
	if err != nil {
		return err
	}
	z.run.moment = z.run.moment*31 + moment
	z.run.passing = z.run.passing || !lasting
	if !z.run.add(o) {
		return nil
	}
	return z.flush()
}

// flush adds the run.
func (z *zipped) flush() error {
	s := z.s
	// What differs in nothing but its look is another run.
	z.run.hash = (z.run.hash ^ uint64(z.run.look)<<32 ^ z.run.moment) * 0x9e3779b97f4a7c15
	f, err := s.q.h.fragments.of(&z.run, z.text)
	if err != nil {
		return err
	}
	if z.measures {
		z.size += f.Size()
		z.run.reset()
		return nil
	}
	if z.begun && z.shape.separated() {
		s.out = z.member.AddStored(s.out, comma)
	}
	z.begun = true
	s.out = z.member.Add(s.out, f)
	z.run.reset()
	if len(s.out) < s.q.h.c.Limits.WriteBatchBytes {
		return nil
	}
	if err := s.q.inTime(); err != nil {
		return err
	}
	err = s.q.write(s.out)
	s.out = s.out[:0]
	return err
}

// text is the run as it stands in the list, without a comma around it.
func (z *zipped) text() (text []byte, err error) {
	text = z.s.buf[:0]
	defer z.shape.reach(z.run.objects)()
	for i, o := range z.run.objects {
		if i > 0 && z.shape.separated() {
			text = append(text, ',')
		}
		if text, err = z.shape.item(text, o); err != nil {
			return nil, err
		}
	}
	z.s.buf = text[:0]
	return text, nil
}

// addAll adds the items of a list.
func (z *zipped) addAll(l *registry.List) error {
	for o, err := range l.Items {
		if err == nil {
			err = z.add(o)
		}
		if err != nil {
			return err
		}
	}
	return z.end()
}

// end adds the last run.
func (z *zipped) end() error {
	if len(z.run.objects) == 0 {
		return nil
	}
	return z.flush()
}

// close adds the rest of the list and ends the member.
func (z *zipped) close(tail string) error {
	if err := z.end(); err != nil {
		return err
	}
	s := z.s
	s.out = z.member.End(z.member.AddStored(s.out, []byte(tail)))
	err := s.q.write(s.out)
	s.buf = s.buf[:0]
	return err
}
