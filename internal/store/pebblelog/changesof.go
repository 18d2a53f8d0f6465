package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// ChangesOf yields the changes of one object with after < revision <= upTo. Its versions in h/ lead to their headers, so the
// time does not depend on the changes of other objects. Memory: O(1) changes at a time.
func (l *Log) ChangesOf(ctx context.Context, collection, key string, after, upTo store.Revision, backward bool) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		err := l.read(ctx, after, func(v *view) error {
			if err := checkPlace(collection, key); err != nil || after >= upTo {
				return nil // no object has such a place
			}
			o := ofObject{view: v, collection: collection, key: key, place: appendPlace(nil, collection, key), after: after, upTo: upTo}
			o.yield = func(e store.Entry) bool { return yield(e, nil) }
			return o.walk(ctx, backward)
		})
		if err != nil && err != errStop {
			yield(store.Entry{}, err)
		}
	}
}

// ofObject walks the changes of one object. It reads each version once: a version is the object of one change, and the one before
// of the next.
type ofObject struct {
	*view
	collection, key string
	place           []byte
	after, upTo     store.Revision
	yield           func(store.Entry) bool
}

// span is a version, and the revision of the change that replaced or deleted it. The version is nil if there is none.
type span struct {
	*store.Object
	until store.Revision
}

// walk walks the replaced versions, and the current one, which is newer than all of them.
func (o *ofObject) walk(ctx context.Context, backward bool) error {
	lower, upper := append([]byte{spaceReplaced}, o.place...), append([]byte{spaceReplaced}, o.place...)
	upper = append(upper, bytes.Repeat([]byte{0xff}, 9)...)
	it, err := o.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	current, err := getCurrent(o.snap, &o.hash, append([]byte{spaceCurrent}, o.place...))
	if err != nil && !errors.Is(err, errAbsent) {
		return o.log.damaged(fmt.Sprintf("the current version of %q", o.place), err)
	}
	if backward {
		return o.backward(ctx, it, current)
	}
	return o.forward(ctx, it, current)
}

// backward pairs each version with the one that followed it, if that is not after upTo.
func (o *ofObject) backward(ctx context.Context, it *pebble.Iterator, newer *store.Object) error {
	if newer != nil && newer.Modified > o.upTo {
		newer = nil
	}
	for ok := it.SeekLT(appendReplacedKey(nil, o.collection, o.key, o.upTo+1)); ok; ok = it.Prev() {
		if err := o.on(ctx); err != nil {
			return err
		}
		v, err := o.span(it)
		if err != nil {
			return err
		}
		if newer != nil && newer.Modified != v.until {
			if err := o.emit(newer.Modified, nil, newer); err != nil {
				return err
			}
			newer = nil
		}
		if err := o.emit(v.until, v.Object, newer); err != nil {
			return err
		}
		if v.Modified <= o.after {
			return nil
		}
		newer = v.Object
	}
	if err := it.Error(); err != nil || newer == nil {
		return err
	}
	return o.emit(newer.Modified, nil, newer)
}

// forward pairs each version with the one that it followed.
func (o *ofObject) forward(ctx context.Context, it *pebble.Iterator, current *store.Object) error {
	var before span
	next := func(object *store.Object) error {
		if object == nil || object.Modified != before.until {
			if before.Object != nil {
				if err := o.emit(before.until, before.Object, nil); err != nil {
					return err
				}
			}
			before.Object = nil
		}
		if object == nil {
			return nil
		}
		return o.emit(object.Modified, before.Object, object)
	}
	ok := it.SeekLT(appendReplacedKey(nil, o.collection, o.key, o.after+1)) // the version that the first change may replace
	if !ok {
		ok = it.First()
	}
	for ; ok; ok = it.Next() {
		if err := o.on(ctx); err != nil {
			return err
		}
		v, err := o.span(it)
		if err != nil {
			return err
		}
		if err := next(v.Object); err != nil || v.Modified > o.upTo {
			return err
		}
		before = v
	}
	if err := it.Error(); err != nil {
		return err
	}
	return next(current)
}

// span reads the version at the iterator.
func (o *ofObject) span(it *pebble.Iterator) (s span, err error) {
	_, modified, ok := cutReplacedKey(it.Key())
	if !ok {
		return s, o.log.damaged(fmt.Sprintf("the key %q", it.Key()), errShort)
	}
	var v store.Object
	if s.until, err = readReplaced(&o.hash, o.place, modified, it.Value(), &v); err != nil {
		return s, o.log.damaged(fmt.Sprintf("the version of %q at revision %d", o.place, modified), err)
	}
	s.Object = keep(&v, o.place)
	return s, nil
}

// emit yields the change of a revision, if it is one that the caller wants, after it has compared the versions with the header.
func (o *ofObject) emit(r store.Revision, before, object *store.Object) error {
	if r <= o.after || r > o.upTo {
		return nil
	}
	b, closer, err := o.snap.Get(appendHeaderKey(nil, r))
	if err != nil {
		return o.log.damaged(fmt.Sprintf("the header of revision %d", r), err)
	}
	defer closer.Close()
	h, err := parseHeader(b)
	if err == nil {
		err = o.fits(h, before, object)
	}
	if err != nil {
		return o.log.damaged(fmt.Sprintf("the header of revision %d", r), err)
	}
	e := store.Entry{Collection: o.collection, Key: o.key, Revision: r, Before: before, Object: object}
	if e.Origin, err = o.origin(r, h); err != nil {
		return err
	}
	if !o.yield(e) {
		return errStop
	}
	return nil
}

// fits returns an error if the header is not that of a change from one version to the other.
func (o *ofObject) fits(h header, before, object *store.Object) error {
	var from store.Revision
	if before != nil {
		from = before.Modified
	}
	switch {
	case !bytes.Equal(h.place, o.place):
		return fmt.Errorf("it is that of %q", h.place)
	case h.before != from:
		return fmt.Errorf("it replaced revision %d, not %d", h.before, from)
	case (h.kind == kindDeleted) != (object == nil):
		return fmt.Errorf("it says %v, and there is a version: %v", h.kind, object != nil)
	case object != nil && o.hash.version(o.place, object) != h.sum:
		return errChecksum
	}
	return nil
}
