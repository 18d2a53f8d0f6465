package httpapi

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// derived keeps what was made of objects for representations other than JSON, which
// has to be decoded for that: so it is made about once for each version of an object
// and shared by all who ask, and nothing is kept for what nobody asks for.
//
// What is not used any more goes when the budget is spent, the longest unused first.
type derived struct {
	charge func(bytes int64) // tells who accounts for memory
	shards [derivedShards]derivedShard
}

// derivedShards is how many clients may look something up at the same time.
const derivedShards = 16

// derivedShard is a part of it, by the version of the object.
type derivedShard struct {
	mu     sync.Mutex
	max    int64 // bytes
	bytes  int64
	forms  map[derivedKey]*keptForm
	recent list.List // of *keptForm, the last used first
}

// derivedKey identifies what was made: no two versions of objects have the same
// revision.
type derivedKey struct {
	typ      *resource.Type
	revision store.Revision
	what     derivation
}

// derivation is what can be made of an object: its raw form in a binary medium, of all
// of it or of its metadata; without a medium the cells of its row.
type derivation struct {
	medium  *wire.Binary
	partial bool
}

var tableRow = derivation{}

// keptForm is one of them. When ready is set, the rest does not change any more.
type keptForm struct {
	key   derivedKey
	place *list.Element
	ready atomic.Bool
	once  sync.Once
	bytes int64 // counted in the shard, guarded by its mu
	form  form
	err   error
}

// form is what was made: bytes or a row.
type form struct {
	raw []byte
	row *resource.Row
}

// derivedOverhead is about what one costs beside its bytes.
const derivedOverhead = 288

func newDerived(max int64, charge func(int64)) *derived {
	d := &derived{charge: charge}
	for i := range d.shards {
		d.shards[i].max, d.shards[i].forms = max/derivedShards, map[derivedKey]*keptForm{}
	}
	return d
}

// of returns what is made of an object, in the version of the type, and keeps it. An
// object that is not stored (of a dry-run) has no version of its own.
func (d *derived) of(t *resource.Type, o *store.Object, what derivation) (form, error) {
	if what == tableRow && t.Stored != nil {
		t = t.Stored // the row of each version is the same
	}
	if o.Created == 0 {
		return derive(t, o.Value, what)
	}
	s := &d.shards[uint64(o.Modified)%derivedShards]
	k := s.find(derivedKey{t, o.Modified, what})
	if !k.ready.Load() {
		k.once.Do(func() {
			defer d.settle(s, k)
			k.err = errUnfinished
			k.form, k.err = derive(t, o.Value, what)
		})
	}
	return k.form, k.err
}

// find returns the entry of a key, a new one when there is none.
func (s *derivedShard) find(key derivedKey) *keptForm {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.forms[key]; k != nil {
		s.recent.MoveToFront(k.place)
		return k
	}
	k := &keptForm{key: key}
	k.place = s.recent.PushFront(k)
	s.forms[key] = k
	return k
}

// settle counts what a form costs, now that it is known, and makes room for it.
func (d *derived) settle(s *derivedShard, k *keptForm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.ready.Store(true)
	if s.forms[k.key] != k {
		return // removed meanwhile
	}
	before := s.bytes
	k.bytes = derivedOverhead + int64(len(k.form.raw))
	if k.form.row != nil {
		k.bytes += int64(k.form.row.Len())
	}
	s.bytes += k.bytes
	if k.err != nil {
		s.remove(k)
	}
	for s.bytes > s.max {
		s.remove(s.recent.Back().Value.(*keptForm))
	}
	d.charge(s.bytes - before)
}

// remove forgets a form; mu is held.
func (s *derivedShard) remove(k *keptForm) {
	delete(s.forms, k.key)
	s.recent.Remove(k.place)
	s.bytes -= k.bytes
}

// derive makes something of a stored value.
func derive(t *resource.Type, value []byte, what derivation) (form, error) {
	if what.partial {
		value, err := wire.As(t, value)
		if err != nil {
			return form{}, err
		}
		meta, err := wire.MetadataOf(value)
		if err != nil {
			return form{}, err
		}
		raw, err := what.medium.RawPartial(meta)
		return form{raw: raw}, err
	}
	if t.Decode != nil && what.medium != nil { // JSON is all that there is of it
		value, err := wire.As(t, value)
		if err != nil {
			return form{}, err
		}
		_, raw, err := what.medium.Document(value)
		return form{raw: raw}, err
	}
	o, err := wire.Read(t, value)
	if err != nil {
		return form{}, err
	}
	if what == tableRow {
		row := new(resource.Row)
		t.Columns.Cells(o, row)
		row.Compact()
		return form{row: row}, nil
	}
	raw, err := what.medium.Raw(o)
	return form{raw: raw}, err
}
