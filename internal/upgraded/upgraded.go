// Package upgraded wraps a log whose objects an older version has stored. When they are read, they get the
// defaults that newer versions of their kinds have added, as in kube-apiserver. So a client sees the new
// fields, and a write that changes nothing else is no change.
//
// The log keeps the objects as they are. They get the defaults at each read, with the same revision, until
// they are written.
package upgraded

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// rule describes the objects of a collection that lack a default.
type rule struct {
	group, version, resource string
	// lacks reports whether an object was stored before its kind had the default.
	lacks func(object []byte) bool
}

// rules are the rules for the defaults that are newer than Kubernetes 1.36, by collection.
var rules = map[string]*rule{
	"csidrivers.storage.k8s.io": {"storage.k8s.io", "v1", "csidrivers", func(object []byte) bool {
		var d struct {
			Spec struct{ PreventPodSchedulingIfMissing *bool }
		}
		return json.Unmarshal(object, &d) == nil && d.Spec.PreventPodSchedulingIfMissing == nil
	}},
	"statefulsets.apps": {"apps", "v1", "statefulsets", func(object []byte) bool {
		var s struct {
			Spec struct {
				UpdateStrategy struct {
					Type          string
					RollingUpdate *struct{ MaxUnavailable any }
				}
			}
		}
		if json.Unmarshal(object, &s) != nil || s.Spec.UpdateStrategy.Type != "RollingUpdate" {
			return false
		}
		r := s.Spec.UpdateStrategy.RollingUpdate
		return r == nil || r.MaxUnavailable == nil
	}},
}

// typeOf returns the type of the collection of a rule.
func (r *rule) typeOf() *resource.Type {
	return builtin.Catalog().Lookup(r.group, r.version, r.resource)
}

// Log is a store.Log whose objects have the defaults of this version.
type Log struct {
	store.Log

	mu sync.Mutex
	// old are the objects that got defaults and that the log still has as they were, by their
	// revisions. Guarded by mu.
	old map[place]store.Revision
}

// place is where an object is stored.
type place struct{ collection, key string }

// Wrap returns a Log on another log. It owns the other one: Close closes it.
func Wrap(l store.Log) *Log { return &Log{Log: l, old: map[place]store.Revision{}} }

// read returns an object with the defaults of this version.
func read(collection string, o *store.Object) (now *store.Object, changed bool) {
	r := rules[collection]
	if r == nil || o == nil || o.Unreadable() != "" || !r.lacks(o.Bytes()) {
		return o, false
	}
	t := r.typeOf()
	made, err := wire.Unmarshal(o.Bytes(), t.New)
	if err != nil {
		return o, false // the reader of the object finds the error
	}
	t.Strategy.Default(made)
	e, err := wire.Encode(t, made)
	if err != nil {
		return o, false
	}
	value := make([]byte, 0, len(e.Bytes)+20)
	value = append(value, e.Bytes[:e.RevisionAt]...)
	value = strconv.AppendUint(value, uint64(o.Modified), 10)
	value = append(value, e.Bytes[e.RevisionAt:]...)
	return &store.Object{Key: o.Key, Held: value, Created: o.Created, Modified: o.Modified, RevisionAt: int32(e.RevisionAt)}, true
}

// Replay implements store.Log.
func (l *Log) Replay(ctx context.Context, load func(collection string, o *store.Object) error) (store.Bounds, error) {
	return l.Log.Replay(ctx, func(collection string, o *store.Object) error {
		now, changed := read(collection, o)
		if changed {
			l.mu.Lock()
			l.old[place{collection, o.Key}] = o.Modified
			l.mu.Unlock()
		}
		return load(collection, now)
	})
}

// Append implements store.Log. The log gets the replaced objects as it has them.
func (l *Log) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	stored, err := l.stored(group)
	if err != nil {
		return err
	}
	if err := l.Log.Append(ctx, stored, mark); err != nil {
		return err // the store may append the same group once more
	}
	l.forget(group)
	return nil
}

// stored returns a group with the replaced objects as the log has them.
func (l *Log) stored(group []store.Entry) (stored []store.Entry, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	stored = group
	for i := range group {
		if len(l.old) == 0 || !l.isOld(&group[i]) {
			continue
		}
		if &stored[0] == &group[0] {
			stored = slices.Clone(group)
		}
		if stored[i].Before, err = l.Log.Current(group[i].Collection, group[i].Key); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// forget forgets the objects that a group has replaced.
func (l *Log) forget(group []store.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range group {
		if len(l.old) > 0 && l.isOld(&group[i]) {
			delete(l.old, place{group[i].Collection, group[i].Key})
		}
	}
}

// isOld reports whether an entry replaces an object that got defaults. The caller holds mu.
func (l *Log) isOld(e *store.Entry) bool {
	return e.Before != nil && l.old[place{e.Collection, e.Key}] == e.Before.Modified
}

// Changes implements store.Log.
func (l *Log) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range l.Log.Changes(ctx, collection, after, upTo) {
			e.Object, _ = read(e.Collection, e.Object)
			e.Before, _ = read(e.Collection, e.Before)
			if !yield(e, err) {
				return
			}
		}
	}
}

// ChangesOf yields the changes of one object, as Changes does, if the other log has the method.
func (l *Log) ChangesOf(ctx context.Context, collection, key string, after, upTo store.Revision, backward bool) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		of, ok := l.Log.(interface {
			ChangesOf(ctx context.Context, collection, key string, after, upTo store.Revision, backward bool) iter.Seq2[store.Entry, error]
		})
		if !ok {
			yield(store.Entry{}, errors.ErrUnsupported)
			return
		}
		for e, err := range of.ChangesOf(ctx, collection, key, after, upTo, backward) {
			e.Object, _ = read(e.Collection, e.Object)
			e.Before, _ = read(e.Collection, e.Before)
			if !yield(e, err) {
				return
			}
		}
	}
}

// ObjectsAt implements store.Log.
func (l *Log) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for o, err := range l.Log.ObjectsAt(ctx, collection, at, prefix, after) {
			o, _ = read(collection, o)
			if !yield(o, err) {
				return
			}
		}
	}
}

// Current implements store.Log.
func (l *Log) Current(collection, key string) (*store.Object, error) {
	o, err := l.Log.Current(collection, key)
	o, _ = read(collection, o)
	return o, err
}
