package registry

import (
	"context"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Alteration is what an Action does to a stored object. Every part of the object
// can change, its status beside its spec; what the server itself gives it cannot.
type Alteration struct {
	// Change gets a copy of the current version, in its stored version, and again when
	// somebody else was faster. Its error ends the alteration.
	Change func(o runtime.Object) error
	// UID and Version are what the object has to have; empty: any.
	UID     types.UID
	Version string
	// By is the client.
	By     *authn.User
	DryRun bool
}

// Alter changes a stored object for an Action. Its generation stays, for a Pod
// that is given its node wants nothing else than before, and so do its managed
// fields.
func (r *Registry) Alter(ctx context.Context, t Target, a Alteration) (Object, error) {
	w := &write{Target: t, source: fromAction, by: a.By, options: &WriteOptions{}, dryRun: a.DryRun}
	made, err := r.modify(ctx, w, change{once: a.Version != "", next: func(v existing) (runtime.Object, error) {
		w.owners.decide(w.owners.of(v.stored))
		next := v.object.DeepCopyObject()
		if err := a.require(t, next.(metav1.Object)); err != nil {
			return nil, err
		}
		return next, a.Change(next)
	}})
	return w.answer(made, false, err)
}

// require compares an object with what it has to be.
func (a *Alteration) require(t Target, meta metav1.Object) error {
	if have := meta.GetUID(); a.UID != "" && a.UID != have {
		return otherUID(t, string(a.UID), string(have))
	}
	if have := meta.GetResourceVersion(); a.Version != "" && a.Version != have {
		return conflict(t, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", objectKey(t), a.Version, have))
	}
	return nil
}

// Read returns an object as it is stored, decoded: NotFound when it is not there.
func (r *Registry) Read(ctx context.Context, t Target) (runtime.Object, error) {
	if t.Name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	got, err := r.Get(ctx, t, "")
	if err != nil {
		return nil, err
	}
	return t.read(ctx, got.Stored)
}

// All yields the objects of a namespace, or of a kind without namespaces, as they
// are stored now, decoded.
func (r *Registry) All(ctx context.Context, t Target) iter.Seq2[runtime.Object, error] {
	return func(yield func(runtime.Object, error) bool) {
		state, err := r.Store.MostRecent(ctx)
		if err != nil {
			yield(nil, status(err))
			return
		}
		t.Name = ""
		for o := range state.Snapshot(t.Type.Collection).Scan(t.key(), "") {
			if !yield(t.read(ctx, o)) {
				return
			}
		}
	}
}

// read decodes a stored object; nobody else has the result.
func (t Target) read(ctx context.Context, o *store.Object) (runtime.Object, error) {
	return t.readValue(ctx, o.Key, o.Bytes())
}

// encode makes the bytes that are stored of an object in the version of a write's
// steps.
func (t Target) encode(ctx context.Context, o runtime.Object) (wire.Encoded, error) {
	if !t.Type.ConvertsPerRequest() {
		return wire.Encode(t.stored(), o)
	}
	stored, err := t.Type.Conversion.ToStored(ctx, o.DeepCopyObject())
	if err != nil {
		return wire.Encoded{}, err
	}
	return wire.Encode(t.Type.StoredVersion(), stored)
}

// readValue is read of a value, which may be a part of what is stored.
func (t Target) readValue(ctx context.Context, key string, value []byte) (runtime.Object, error) {
	var object runtime.Object
	var err error
	if t.Type.ConvertsPerRequest() {
		object, err = wire.Read(ctx, t.Type, value)
	} else {
		object, err = wire.Unmarshal(value, t.stored().New)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", t.Type.Collection, key, err)
	}
	return object, nil
}
