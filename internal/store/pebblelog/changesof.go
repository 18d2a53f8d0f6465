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

// ofObject walks the changes of one object.
type ofObject struct {
	*view
	collection, key string
	place           []byte
	after, upTo     store.Revision
	yield           func(store.Entry) bool

	versionAt *pebble.Iterator // to look versions up
}

// walk walks the replaced versions, and the current one, which is newer than all of them. The change of a revision made the
// next version, unless the version that it replaced has no successor: then it was a deletion.
func (o *ofObject) walk(ctx context.Context, backward bool) error {
	lower, upper := append([]byte{spaceReplaced}, o.place...), append([]byte{spaceReplaced}, o.place...)
	upper = append(upper, bytes.Repeat([]byte{0xff}, 9)...)
	it, err := o.iter(ctx, lower, upper)
	if err != nil {
		return err
	}
	defer it.Close()
	if o.versionAt, err = o.iter(ctx, lower, upper); err != nil {
		return err
	}
	defer o.versionAt.Close()
	current, err := o.current()
	if err != nil {
		return err
	}
	if backward {
		err = o.backward(ctx, it, current)
	} else {
		err = o.forward(ctx, it, current)
	}
	if err == nil {
		err = it.Error()
	}
	return err
}

// current returns when the current version was made; zero: there is none.
func (o *ofObject) current() (store.Revision, error) {
	b, closer, err := o.snap.Get(append([]byte{spaceCurrent}, o.place...))
	if errors.Is(err, pebble.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer closer.Close()
	r, err := currentModified(b)
	if err != nil {
		return 0, o.log.damaged(fmt.Sprintf("the current version of %q", o.place), err)
	}
	return r, nil
}

func (o *ofObject) backward(ctx context.Context, it *pebble.Iterator, next store.Revision) error {
	if err := o.emit(next); err != nil {
		return err
	}
	for ok := it.SeekLT(appendReplacedKey(nil, o.collection, o.key, o.upTo+1)); ok; ok = it.Prev() {
		if err := o.on(ctx); err != nil {
			return err
		}
		modified, until, err := o.span(it)
		if err != nil {
			return err
		}
		if until != next {
			if err := o.emit(until); err != nil {
				return err
			}
		}
		if modified <= o.after {
			break
		}
		if err := o.emit(modified); err != nil {
			return err
		}
		next = modified
	}
	return nil
}

func (o *ofObject) forward(ctx context.Context, it *pebble.Iterator, current store.Revision) error {
	ok := it.SeekLT(appendReplacedKey(nil, o.collection, o.key, o.after+1)) // the version that the first change may replace
	if !ok {
		ok = it.First()
	}
	var until store.Revision
	for ; ok; ok = it.Next() {
		if err := o.on(ctx); err != nil {
			return err
		}
		modified, ends, err := o.span(it)
		if err != nil {
			return err
		}
		if until != modified {
			if err := o.emit(until); err != nil {
				return err
			}
		}
		if modified > o.upTo {
			return nil
		}
		if err := o.emit(modified); err != nil {
			return err
		}
		until = ends
	}
	if until != current {
		if err := o.emit(until); err != nil {
			return err
		}
	}
	return o.emit(current)
}

// span returns when the version at the iterator was made, and when it was replaced.
func (o *ofObject) span(it *pebble.Iterator) (modified, until store.Revision, err error) {
	_, modified, ok := cutReplacedKey(it.Key())
	if !ok {
		return 0, 0, o.log.damaged(fmt.Sprintf("the key %q", it.Key()), errShort)
	}
	until, err = replacedUntil(it.Value())
	if err != nil {
		return 0, 0, o.log.damaged(fmt.Sprintf("the version of %q at revision %d", o.place, modified), err)
	}
	return modified, until, nil
}

// emit yields the change of a revision, if it is one that the caller wants.
func (o *ofObject) emit(r store.Revision) error {
	if r <= o.after || r > o.upTo {
		return nil
	}
	b, closer, err := o.snap.Get(appendHeaderKey(nil, r))
	if err != nil {
		return o.log.damaged(fmt.Sprintf("the header of revision %d", r), err)
	}
	defer closer.Close()
	h, err := parseHeader(b)
	if err == nil && !bytes.Equal(h.place, o.place) {
		err = fmt.Errorf("it is that of %q", h.place)
	}
	if err != nil {
		return o.log.damaged(fmt.Sprintf("the header of revision %d", r), err)
	}
	e := store.Entry{Collection: o.collection, Key: o.key, Revision: r}
	if err := o.versions(o.versionAt, &e, h); err != nil {
		return err
	}
	if e.Origin, err = o.origin(r, h); err != nil {
		return err
	}
	if !o.yield(e) {
		return errStop
	}
	return nil
}
