package httpapi

import (
	"hash/maphash"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/deflate"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// A long list is compressed in runs of neighbours, and the cache keeps the compressed
// runs. So a list is compressed about once for each version of each run, however many
// clients ask for it: most of a list has not changed since it was listed last.
//
// The hash of a key decides whether a run ends there, see run.add. So the same neighbours make the
// same run in the list of a namespace, in the list of all namespaces, in a chunk and in a
// list at an old revision, and a change replaces one run. Runs of 16 to 64 objects compress
// nearly as well as the whole list; single objects would need four times the bytes.

// compressed is a run in compressed form.
type compressed struct {
	*deflate.Fragment
	moment    uint64
	revisions []store.Revision // of its objects
}

// compress returns the run in compressed form; b is its text.
func (r *run) compress(b []byte) *compressed {
	c := &compressed{Fragment: deflate.Compress(b), moment: r.moment, revisions: make([]store.Revision, len(r.objects))}
	for i, o := range r.objects {
		c.revisions[i] = o.Modified
	}
	return c
}

// is reports whether it is the run, and not another one with the same hash.
func (c *compressed) is(r *run) bool {
	return c.moment == r.moment && slices.EqualFunc(c.revisions, r.objects, func(v store.Revision, o *store.Object) bool { return v == o.Modified })
}

// run is a run of neighbours.
type run struct {
	typ     *resource.Type
	look    look
	moment  uint64 // identifies the ages in the rows of a table
	passing bool   // the ages change soon, so the run is not worth keeping
	objects []*store.Object
	hash    uint64
	bytes   int
}

// From minRun objects on, a run ends after each object with probability 1/runEvery, and at
// the latest when it has maxRun objects or maxRunBytes.
const (
	minRun      = 16
	runEvery    = 32
	maxRun      = 64
	maxRunBytes = 512 << 10
)

// runSeed makes hashes of keys unpredictable for clients. Servers of one process share it:
// it holds nothing of theirs.
var runSeed = maphash.MakeSeed()

// add adds the next object, and reports whether it ends the run.
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

// zipped writes a list as one gzip member that consists of compressed runs.
type zipped struct {
	s      *sink
	member deflate.Member
	shape  *shape
	run    run
	begun  bool // an item was written
	// measures: nothing is written; size counts the bytes of the items.
	measures bool
	size     int
}

var comma = []byte{','}

func newZipped(s *sink, h *shape) *zipped {
	return &zipped{s: s, shape: h, run: run{typ: h.typ, look: h.look()}}
}

// zip begins a compressed response with the head of the list and its first items.
func (s *sink) zip(h *shape, head []byte, items []*store.Object) (*zipped, error) {
	s.beginZip()
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
	z.run.hash = (z.run.hash ^ uint64(z.run.look)<<32 ^ z.run.moment) * 0x9e3779b97f4a7c15
	f, err := s.q.h.cache.ofRun(z.shape.ctx, &z.run, z.text)
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
	s.out = z.member.Add(s.out, f.Fragment)
	z.run.reset()
	if !s.due(len(s.out)) {
		return nil
	}
	if err := s.q.inTime(); err != nil {
		return err
	}
	err = s.write(s.out)
	s.out = s.out[:0]
	return err
}

// text returns the items of the run, with commas between them.
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

// close adds the last run and the tail, and writes the end of the member.
func (z *zipped) close(tail string) error {
	if err := z.end(); err != nil {
		return err
	}
	s := z.s
	s.out = z.member.End(z.member.AddStored(s.out, []byte(tail)))
	err := s.write(s.out)
	s.buf = s.buf[:0]
	return err
}
