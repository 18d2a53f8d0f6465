package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Update replaces an object, or the part of it that a subresource has. See docs/compatibility.md#a3
// for the kinds that Update creates.
func (r *Registry) Update(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	return r.confirmed(ctx, func() (Object, error) { return r.attemptUpdate(ctx, t, b, o) })
}

// attemptUpdate is the attempt of Update for confirmed.
func (r *Registry) attemptUpdate(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	w, err := newWrite(t, &o, "UpdateOptions", "")
	if err != nil {
		return Object{}, err
	}
	body := func() (runtime.Object, error) {
		var current *store.Object
		if !o.SentWhole {
			current = r.Store.Any().Get(t.Type.Collection, t.key())
		}
		sent, err := w.decodeLean(ctx, b, current)
		if err != nil {
			return nil, err
		}
		w.sent(sent)
		return sent, w.checkURL(sent.(metav1.Object))
	}
	sent, err := body()
	if err != nil {
		return w.response(nil, false, err)
	}
	lock, err := bodyLock(sent.(metav1.Object))
	if err != nil {
		return w.response(nil, false, err)
	}
	take := func() (o runtime.Object, err error) { // each attempt uses up its object
		if o, sent = sent, nil; o != nil {
			return o, nil
		}
		warned := len(w.warnings)
		o, err = body()
		w.warnings = w.warnings[:warned] // the first attempt has added them
		return o, err
	}
	created := false
	made, err := r.modify(ctx, w, objectChange{
		versioned: lock.version != 0,
		absent: func() (*store.Object, error) {
			o, err := take()
			if err != nil {
				return nil, err
			}
			made, err := r.createByUpdate(ctx, w, o, lock)
			created = err == nil
			return made, err
		},
		next: func(v currentObject) (runtime.Object, error) {
			if err := lock.check(w, v.stored); err != nil {
				return nil, err
			}
			o, err := take()
			if err != nil {
				return nil, err
			}
			return w.take(ctx, o)
		},
	})
	return w.response(made, created, err)
}

// createByUpdate creates the object of a PUT that found none, if the kind allows that.
func (r *Registry) createByUpdate(ctx context.Context, w *write, sent runtime.Object, l lock) (*store.Object, error) {
	if !w.Type.Strategy.AllowCreateOnUpdate || w.Subresource != "" {
		return nil, w.notFound()
	}
	if l.uid != "" {
		return nil, w.uidConflict(l.uid, "")
	}
	if err := w.allow("create"); err != nil {
		return nil, err
	}
	sent.(metav1.Object).SetResourceVersion("") // no object has that version
	return r.create(ctx, w, sent)
}
