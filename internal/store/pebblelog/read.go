package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// view is the log at a moment, for one read. A compaction publishes its
// floor before it removes anything, so a view whose floor was fine after it was
// taken has everything from that floor on, until it is closed.
type view struct {
	log  *Log
	snap *pebble.Snapshot
	hash hasher
	// actors has the definitions that were read; nil: none yet.
	actors map[store.Revision]*store.Actor
}

// read takes a view, checks that it holds the revision, and runs f on it.
func (l *Log) read(ctx context.Context, at store.Revision, f func(v *view) error) error {
	if !l.readers.acquire() {
		return store.ErrClosed
	}
	defer l.readers.release()
	l.blocks.acquire()
	defer l.blocks.release()
	v := &view{log: l, snap: l.db.NewSnapshot()}
	defer v.snap.Close()
	if floor := l.head.Load().floor; at < floor {
		return &store.ExpiredError{Revision: at, Floor: floor}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return f(v)
}

// on returns an error if a read may not go on.
func (v *view) on(ctx context.Context) error {
	if v.log.readers.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

func (v *view) iter(ctx context.Context, lower, upper []byte) (*pebble.Iterator, error) {
	return v.snap.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: lower, UpperBound: upper})
}

// errStop ends a read because the consumer had enough.
var errStop = errors.New("enough")

// ObjectsAt implements store.Log. It merges the current and the replaced
// versions in the order of their keys.
func (l *Log) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		err := l.read(ctx, at, func(v *view) error {
			if head := l.head.Load().revision; at > head {
				return &store.TooLargeError{Revision: at, Current: head}
			}
			s := scan{collection: collection, prefix: prefix, after: after, at: at}
			return v.objectsAt(ctx, s, func(o *store.Object) bool { return yield(o, nil) })
		})
		if err != nil && err != errStop {
			yield(nil, err)
		}
	}
}

// scan is the arguments of ObjectsAt.
type scan struct {
	collection, prefix, after string
	at                        store.Revision
}

func (v *view) objectsAt(ctx context.Context, s scan, yield func(*store.Object) bool) error {
	lower, upper, ok := scanBounds(spaceCurrent, s.collection, s.prefix, s.after)
	if !ok {
		return nil
	}
	current, err := v.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer current.Close()
	lower, upper, _ = scanBounds(spaceReplaced, s.collection, s.prefix, s.after)
	replaced, err := v.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer replaced.Close()

	m := merge{view: v, at: s.at, current: current, replaced: replaced}
	current.First()
	replaced.First()
	for {
		if err := v.on(ctx); err != nil {
			return err
		}
		o, more, err := m.next()
		if err != nil {
			return err
		}
		if o != nil && !yield(o) {
			return errStop
		}
		if !more {
			return nil
		}
	}
}

// merge walks the current and the replaced versions of a range together.
type merge struct {
	*view
	at                store.Revision
	current, replaced *pebble.Iterator
	place, key        []byte
}

// nearVersions is how many replaced versions of an object the merge walks over. If there are more, it seeks: a seek costs as
// much as about 20 steps.
const nearVersions = 16

// next returns the version of the next place that was visible, if any. If more is false, there are no more places.
func (m *merge) next() (o *store.Object, more bool, err error) {
	if !m.current.Valid() && !m.replaced.Valid() {
		if err := errors.Join(m.current.Error(), m.replaced.Error()); err != nil {
			return nil, false, m.log.damaged("the versions of a collection", err)
		}
		return nil, false, nil
	}
	m.place = m.place[:0]
	if m.current.Valid() {
		m.place = append(m.place, m.current.Key()[1:]...)
	}
	if m.replaced.Valid() {
		place, _, ok := cutReplacedKey(m.replaced.Key())
		if !ok {
			return nil, false, m.log.damaged(fmt.Sprintf("the key %q", m.replaced.Key()), errShort)
		}
		if !m.current.Valid() || bytes.Compare(place, m.place) < 0 {
			m.place = append(m.place[:0], place...)
		}
	}
	if m.current.Valid() && bytes.Equal(m.current.Key()[1:], m.place) {
		if o, err = m.visibleCurrent(); err != nil {
			return nil, false, err
		}
		m.current.Next()
	}
	for range nearVersions {
		modified, ok := m.version()
		if !ok {
			return o, true, nil
		}
		if o == nil && modified <= m.at {
			if o, err = m.visibleReplaced(modified); err != nil {
				return nil, false, err
			}
		}
		m.replaced.Next()
	}
	if modified, ok := m.version(); ok && o == nil && modified <= m.at {
		if !m.replaced.SeekLT(m.replacedKey(m.at + 1)) {
			return nil, false, m.log.damaged(fmt.Sprintf("the versions of %q", m.place), errors.Join(errAbsent, m.replaced.Error()))
		}
		if modified, ok = m.version(); ok {
			if o, err = m.visibleReplaced(modified); err != nil {
				return nil, false, err
			}
		}
	}
	m.replaced.SeekGE(append(m.replacedKey(math.MaxUint64), 0))
	return o, true, nil
}

// version returns the revision of the version at the iterator, if it is one of the place.
func (m *merge) version() (modified store.Revision, ok bool) {
	if !m.replaced.Valid() {
		return 0, false
	}
	place, modified, ok := cutReplacedKey(m.replaced.Key())
	return modified, ok && bytes.Equal(place, m.place)
}

// replacedKey is the key of a replaced version of the place.
func (m *merge) replacedKey(modified store.Revision) []byte {
	m.key = appendVersion(append(append(m.key[:0], spaceReplaced), m.place...), modified)
	return m.key
}

// visibleCurrent returns the current version of the place if it is old enough.
func (m *merge) visibleCurrent() (*store.Object, error) {
	b := m.current.Value()
	if modified, err := currentModified(b); err == nil && modified > m.at {
		return nil, nil
	}
	var o store.Object
	if _, err := readCurrent(&m.hash, m.place, b, &o); err != nil {
		return nil, m.log.damaged(fmt.Sprintf("the current version of %q", m.place), err)
	}
	return keep(&o, m.place), nil
}

// visibleReplaced returns a replaced version of the place if it was current.
func (m *merge) visibleReplaced(modified store.Revision) (*store.Object, error) {
	b := m.replaced.Value()
	if until, err := replacedUntil(b); err == nil && (modified > m.at || until <= m.at) {
		return nil, nil
	}
	var o store.Object
	if _, err := readReplaced(&m.hash, m.place, modified, b, &o); err != nil {
		return nil, m.log.damaged(fmt.Sprintf("the version of %q at revision %d", m.place, modified), err)
	}
	return keep(&o, m.place), nil
}

// keep copies data from Pebble's memory.
func keep(o *store.Object, place []byte) *store.Object {
	_, key, _, _ := cutPlace(place)
	return &store.Object{
		Key:        string(key),
		Held:       bytes.Clone(o.Bytes()),
		Created:    o.Created,
		Modified:   o.Modified,
		RevisionAt: o.RevisionAt,
	}
}

// Changes implements store.Log. It reads the headers in order, and looks the
// versions up. The time is linear in the changes of all collections between the
// two revisions, the look-ups in those of the one that was asked for.
func (l *Log) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		err := l.read(ctx, after, func(v *view) error {
			if after >= upTo {
				return nil
			}
			return v.changes(ctx, collection, after, upTo, func(e store.Entry) bool { return yield(e, nil) })
		})
		if err != nil && err != errStop {
			yield(store.Entry{}, err)
		}
	}
}

func (v *view) changes(ctx context.Context, collection string, after, upTo store.Revision, yield func(store.Entry) bool) error {
	lower, upper := spaceBounds(spaceReplaced)
	replaced, err := v.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer replaced.Close()
	var name string
	return v.headers(ctx, after, upTo, func(r store.Revision, h header) error {
		c, key, _, _ := cutPlace(h.place)
		if collection != "" && string(c) != collection {
			return nil
		}
		if name != string(c) {
			name = string(c)
		}
		e := store.Entry{Collection: name, Key: string(key), Revision: r}
		if err := v.versions(replaced, &e, h); err != nil {
			return err
		}
		if e.Origin, err = v.origin(r, h); err != nil {
			return err
		}
		if !yield(e) {
			return errStop
		}
		return nil
	})
}

// headers calls f for the headers with after < revision <= upTo, in order. Each
// is checked against the chain. The header is valid until f returns.
func (v *view) headers(ctx context.Context, after, upTo store.Revision, f func(store.Revision, header) error) error {
	lower, upper := spaceBounds(spaceHeader)
	it, err := v.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	chain, err := v.chainAt(it, after)
	if err != nil {
		return err
	}
	for ok := it.SeekGE(appendHeaderKey(nil, after+1)); ok; ok = it.Next() {
		if err := v.on(ctx); err != nil {
			return err
		}
		r, ok := cutRevisionKey(spaceHeader, it.Key())
		if !ok {
			return v.log.damaged(fmt.Sprintf("the key %x", it.Key()), errShort)
		}
		if r > upTo {
			break
		}
		h, err := readHeader(&v.hash, chain, r, it.Value())
		if err != nil {
			return v.log.damaged(fmt.Sprintf("the header of revision %d", r), err)
		}
		chain = h.chain
		if err := f(r, h); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return v.log.damaged("the headers", err)
	}
	return nil
}

// chainAt is the chain value of the newest header at or below the revision.
func (v *view) chainAt(it *pebble.Iterator, r store.Revision) (uint64, error) {
	if it.SeekLT(appendHeaderKey(nil, r+1)) {
		h, err := parseHeader(it.Value())
		if err != nil {
			return 0, v.log.damaged(fmt.Sprintf("the header of key %x", it.Key()), err)
		}
		return h.chain, nil
	}
	b, closer, err := v.snap.Get(headKey)
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, v.log.damaged("the head", err)
	}
	defer closer.Close()
	h, err := readHead(b)
	if err != nil {
		return 0, v.log.damaged("the head", err)
	}
	return h.cutChain, nil
}

// versions fills in the versions before and after a change. The version before is in h/.
// The version after follows it there if it was replaced, too; otherwise it is the current
// one.
func (v *view) versions(replaced *pebble.Iterator, e *store.Entry, h header) error {
	from := e.Revision
	if h.before != 0 {
		from = h.before
	}
	found := replaced.SeekGE(appendReplacedKey(nil, e.Collection, e.Key, from))
	if h.before != 0 {
		o, until, err := v.replacedAt(replaced, found, h.place, h.before)
		if err == nil && until != e.Revision {
			err = fmt.Errorf("it was current until %d, and revision %d replaced it", until, e.Revision)
		}
		if err != nil {
			return v.missing(e, h.before, err)
		}
		e.Before = o
		found = h.kind != kindDeleted && replaced.Next()
	}
	if h.kind == kindDeleted {
		return nil
	}
	o, _, err := v.replacedAt(replaced, found, h.place, e.Revision)
	if errors.Is(err, errAbsent) {
		o, err = v.currentAt(h.place, e.Revision)
	}
	if err == nil && v.hash.version(h.place, o) != h.sum {
		err = errChecksum
	}
	if err != nil {
		return v.missing(e, e.Revision, err)
	}
	e.Object = o
	return nil
}

// errAbsent: the version does not exist.
var errAbsent = errors.New("it is missing")

func (v *view) missing(e *store.Entry, r store.Revision, err error) error {
	return v.log.damaged(fmt.Sprintf("the version of %s %s at revision %d, used by revision %d", e.Collection, e.Key, r, e.Revision), err)
}

// replacedAt reads the version at the iterator's position, if it is the requested one.
func (v *view) replacedAt(it *pebble.Iterator, found bool, place []byte, r store.Revision) (*store.Object, store.Revision, error) {
	if !found {
		if err := it.Error(); err != nil {
			return nil, 0, err
		}
		return nil, 0, errAbsent
	}
	p, modified, ok := cutReplacedKey(it.Key())
	if !ok || modified != r || !bytes.Equal(p, place) {
		return nil, 0, errAbsent
	}
	var o store.Object
	until, err := readReplaced(&v.hash, place, r, it.Value(), &o)
	if err != nil {
		return nil, 0, err
	}
	return keep(&o, place), until, nil
}

// currentAt reads the current version of a place, which must have that revision.
func (v *view) currentAt(place []byte, r store.Revision) (*store.Object, error) {
	o, err := getCurrent(v.snap, &v.hash, append([]byte{spaceCurrent}, place...))
	if err == nil && o.Modified != r {
		return nil, errAbsent
	}
	return o, err
}

// getCurrent reads the current version of a key in c/. The error is errAbsent if there is none.
func getCurrent(from pebble.Reader, hash *hasher, key []byte) (*store.Object, error) {
	b, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, errAbsent
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	var o store.Object
	if _, err := readCurrent(hash, key[1:], b, &o); err != nil {
		return nil, err
	}
	return keep(&o, key[1:]), nil
}

// Current implements store.Log.
func (l *Log) Current(collection, key string) (*store.Object, error) {
	if err := checkPlace(collection, key); err != nil {
		return nil, err
	}
	if !l.readers.acquire() {
		return nil, store.ErrClosed
	}
	defer l.readers.release()
	if err := l.failure.get(); err != nil {
		return nil, err
	}
	var hash hasher
	o, err := getCurrent(l.db, &hash, appendCurrentKey(nil, collection, key))
	switch {
	case errors.Is(err, errAbsent):
		return nil, nil
	case err != nil:
		return nil, l.damaged(fmt.Sprintf("the current version of %s %s", collection, key), err)
	}
	return o, nil
}
