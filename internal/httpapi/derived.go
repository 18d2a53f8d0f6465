package httpapi

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// derived keeps what was made of objects for representations other than JSON, which
// has to be decoded for that: so it is made about once for each version of an object
// and shared by all who ask, and nothing is kept for what nobody asks for.
//
// What is not used any more goes when the budget is spent, the longest unused first. But
// a list does not take the place of what was used since it was last looked at: of a list
// that is larger than the budget, read again and again, nothing would ever be found.
type derived struct {
	max    func() int64      // bytes
	charge func(bytes int64) // tells who accounts for memory
	shards [derivedShards]derivedShard
	// latest are those that were made last, by revision: the watchers of an object ask
	// for the same one at the same time, and find it here without a lock.
	latest [latestForms]atomic.Pointer[keptForm]
}

const (
	latestForms = 32
	// mostLatest bounds each of them, for they stay when their room is needed.
	mostLatest = 32 << 10
)

// derivedShards is how many clients may look something up at the same time.
const derivedShards = 16

// derivedShard is a part of it, by the version of the object.
type derivedShard struct {
	mu     sync.Mutex
	bytes  int64
	forms  map[derivedKey]*keptForm
	recent list.List // of *keptForm, the last used first
}

// derivedKey identifies what was made. Two versions of objects have the same revision when
// one of them is what the other one's change took away.
type derivedKey struct {
	typ      uint64 // its ID
	revision store.Revision
	gone     bool
	what     derivation
}

func derivedKeyOf(t *resource.Type, o *store.Object, what derivation) derivedKey {
	return derivedKey{t.ID, o.Modified, o.IsGone(), what}
}

// derivation is what can be made of an object: its raw form in a binary medium, of all
// of it or of its metadata; without a medium the cells of its row, or what it is in
// another version, as JSON.
type derivation struct {
	medium    *wire.Binary
	partial   bool
	converted bool
}

var (
	tableRow  = derivation{}
	converted = derivation{converted: true}
)

// keptForm is one of them. When ready is set, the rest does not change any more.
type keptForm struct {
	key   derivedKey
	place *list.Element
	used  bool // made or found since it was last looked at for removal; guarded by the shard's mu
	ready atomic.Bool
	once  sync.Once
	begun atomic.Bool   // somebody makes it, or did
	made  chan struct{} // closed when it is ready, where others wait for a webhook's answer; guarded by mu
	bytes int64         // counted in the shard, guarded by its mu
	form  form
	err   error
}

// form is what was made: bytes or a row.
type form struct {
	raw []byte
	row *resource.Row
	// stored: raw is what is stored.
	stored bool
}

// derivedOverhead is about what one costs beside its bytes.
const derivedOverhead = 288

func newDerived(max func() int64, charge func(int64)) *derived {
	d := &derived{max: max, charge: charge}
	for i := range d.shards {
		d.shards[i].forms = map[derivedKey]*keptForm{}
	}
	return d
}

// of returns what is made of an object, in the version of the type, and keeps it. An
// object that is not stored (of a dry-run) has no version of its own.
func (d *derived) of(ctx context.Context, t *resource.Type, o *store.Object, what derivation) (form, error) {
	if what == tableRow && t.Display.Columns == t.StoredVersion().Display.Columns {
		t = t.StoredVersion() // the row of each version is the same
	}
	if o.Created == 0 || t.ID == 0 {
		return derive(ctx, t, o.Bytes(), what)
	}
	key, slot := derivedKeyOf(t, o, what), &d.latest[uint64(o.Modified)%latestForms]
	if k := slot.Load(); k != nil && k.key == key {
		return k.form, k.err
	}
	s := d.shard(o)
	for {
		k := s.find(key)
		f, err := d.finished(ctx, s, k, t, o)
		if err == errMakerLeft {
			continue
		}
		if err == nil && o.Len() <= mostLatest {
			slot.Store(k)
		}
		return f, err
	}
}

// errMakerLeft is the error of a request that waited for the result of another one, which
// failed for a reason of its own.
var errMakerLeft = errors.New("the request that converted the object has ended")

// ofListed is of for bytes of one of many objects: there is nothing when the list has
// no room for them, and they are better made where they are needed.
func (d *derived) ofListed(ctx context.Context, t *resource.Type, o *store.Object, what derivation) (raw []byte, ok bool, err error) {
	s := d.shard(o)
	k := s.findListed(derivedKeyOf(t, o, what), d.max()/derivedShards-derivedOverhead-int64(o.Len()))
	if k == nil {
		return nil, false, nil
	}
	f, err := d.finished(ctx, s, k, t, o)
	return f.raw, true, err
}

// kept returns what was made of an object, if it is still there.
func (d *derived) kept(t *resource.Type, o *store.Object, what derivation) (form, bool) {
	s := d.shard(o)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.found(derivedKeyOf(t, o, what))
	if k == nil || !k.ready.Load() || k.err != nil {
		return form{}, false
	}
	return k.form, true
}

// offer keeps what was made of one of many objects, if there is room and nobody else is
// making it, which may take long.
func (d *derived) offer(t *resource.Type, o *store.Object, what derivation, f form) {
	s := d.shard(o)
	if k := s.findListed(derivedKeyOf(t, o, what), d.max()/derivedShards-derivedOverhead-int64(o.Len())); k != nil && !k.begun.Swap(true) {
		k.once.Do(func() {
			defer d.settle(s, k)
			k.form = f
		})
	}
}

func (d *derived) shard(o *store.Object) *derivedShard {
	return &d.shards[uint64(o.Modified)%derivedShards]
}

// finished makes what is not made yet.
func (d *derived) finished(ctx context.Context, s *derivedShard, k *keptForm, t *resource.Type, o *store.Object) (form, error) {
	if t.ConvertsByWebhook() {
		return d.asked(ctx, s, k, t, o)
	}
	if !k.ready.Load() {
		k.begun.Store(true)
		k.once.Do(func() {
			defer d.settle(s, k)
			k.err = errUnfinished
			k.form, k.err = derive(ctx, t, o.Bytes(), k.key.what)
		})
	}
	return k.form, k.err
}

// asked is finished where a webhook makes it: those who wait for its answer give their
// seats back, and no longer wait than their own context allows.
func (d *derived) asked(ctx context.Context, s *derivedShard, k *keptForm, t *resource.Type, o *store.Object) (form, error) {
	s.mu.Lock()
	if k.made == nil {
		k.made = make(chan struct{})
		if k.ready.Load() {
			close(k.made)
		}
	}
	first := !k.begun.Swap(true)
	s.mu.Unlock()
	if first {
		defer d.settle(s, k)
		k.err = errUnfinished
		k.form, k.err = derive(ctx, t, o.Bytes(), k.key.what)
		return k.form, k.err
	}
	err := inflight.Wait(ctx, 0, func() error {
		select {
		case <-k.made:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	switch {
	case err != nil:
		return form{}, err
	case errors.Is(k.err, context.Canceled), errors.Is(k.err, context.DeadlineExceeded), errors.Is(k.err, inflight.ErrFull):
		return form{}, errMakerLeft
	}
	return k.form, k.err
}

// find returns the entry of a key, a new one when there is none.
func (s *derivedShard) find(key derivedKey) *keptForm {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.found(key); k != nil {
		return k
	}
	return s.add(key)
}

// found returns the entry of a key, nil when there is none; mu is held.
func (s *derivedShard) found(key derivedKey) *keptForm {
	k := s.forms[key]
	if k != nil {
		s.recent.MoveToFront(k.place)
		k.used = true
	}
	return k
}

// findListed is find that adds nothing to more than so many bytes, unless the entry that
// was not used for longest was not used at all since it was last its turn.
func (s *derivedShard) findListed(key derivedKey, most int64) *keptForm {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := s.found(key); k != nil {
		return k
	}
	if last := s.recent.Back(); s.bytes > most && last != nil {
		if k := last.Value.(*keptForm); k.used {
			k.used = false
			s.recent.MoveToFront(last)
			return nil
		}
	}
	return s.add(key)
}

// add makes an entry; mu is held.
func (s *derivedShard) add(key derivedKey) *keptForm {
	k := &keptForm{key: key, used: true} // it has not had its time yet
	k.place = s.recent.PushFront(k)
	s.forms[key] = k
	return k
}

// settle counts what a form costs, now that it is known, and makes room for it.
func (d *derived) settle(s *derivedShard, k *keptForm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.ready.Store(true)
	if k.made != nil {
		close(k.made)
	}
	if s.forms[k.key] != k {
		return // removed meanwhile
	}
	if k.err != nil {
		s.remove(k)
		return
	}
	before := s.bytes
	k.bytes = derivedOverhead
	if !k.form.stored {
		k.bytes += int64(len(k.form.raw))
	}
	if k.form.row != nil {
		k.bytes += int64(k.form.row.Len())
	}
	s.bytes += k.bytes
	for most := d.max() / derivedShards; s.bytes > most; {
		s.remove(s.recent.Back().Value.(*keptForm))
	}
	d.charge(s.bytes - before)
}

// shrink makes room for what has grown beside it.
func (d *derived) shrink() {
	most := d.max() / derivedShards
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		before := s.bytes
		for s.bytes > most {
			s.remove(s.recent.Back().Value.(*keptForm))
		}
		if s.bytes != before {
			d.charge(s.bytes - before)
		}
		s.mu.Unlock()
	}
}

// remove forgets a form; mu is held.
func (s *derivedShard) remove(k *keptForm) {
	delete(s.forms, k.key)
	s.recent.Remove(k.place)
	s.bytes -= k.bytes
}

// derive makes something of a stored value.
func derive(ctx context.Context, t *resource.Type, value []byte, what derivation) (form, error) {
	if what == converted {
		made, err := wire.As(ctx, t, value)
		if err == nil && bytes.Equal(made, value) {
			return form{raw: value, stored: true}, nil // as it mostly is, and costs nothing
		}
		return form{raw: made}, err
	}
	if what != tableRow {
		raw, err := appendRaw(ctx, nil, t, value, what)
		return form{raw: raw}, err
	}
	o, err := wire.ReadSome(ctx, t, value, t.Display.Columns.Reads)
	if err != nil {
		return form{}, err
	}
	return rowOf(t, o), nil
}

// deriveConverted is derive of an object of a custom kind that has been converted: the
// value is JSON in the version of the type.
func deriveConverted(t *resource.Type, value []byte, what derivation) (form, error) {
	if what != tableRow {
		raw, err := appendTree(nil, value, what)
		return form{raw: raw}, err
	}
	o, err := wire.Unmarshal(value, t.New)
	if err != nil {
		return form{}, err
	}
	return rowOf(t, o), nil
}

func rowOf(t *resource.Type, o runtime.Object) form {
	row := new(resource.Row)
	t.Display.Columns.Cells(o, row)
	row.Compact()
	return form{row: row}
}

// appendRaw appends what is made of a stored value, which is not a row.
func appendRaw(ctx context.Context, to []byte, t *resource.Type, value []byte, what derivation) ([]byte, error) {
	if !what.partial && t.Custom == nil {
		return what.medium.AppendValue(to, t, value)
	}
	value, err := wire.As(ctx, t, value)
	if err != nil {
		return to, err
	}
	return appendTree(to, value, what)
}

// appendTree appends what is made of JSON that has no Go type.
func appendTree(to, value []byte, what derivation) ([]byte, error) {
	if !what.partial {
		_, raw, err := what.medium.Document(value)
		return append(to, raw...), err
	}
	meta, err := wire.MetadataOf(value)
	if err != nil {
		return to, err
	}
	return what.medium.AppendPartial(to, meta)
}
