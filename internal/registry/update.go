package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

var schemaNamespaces = schema.GroupResource{Resource: "namespaces"}

// changedText is the message of a lost optimistic lock: row G1.
const changedText = "the object has been modified; please apply your changes to the latest version and try again"

// Update replaces an object, or what a subresource shows of it: rows A3, A8, A11,
// D11, G1 to G6.
func (r *Registry) Update(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	w, err := newWrite(t, &o, "UpdateOptions", "")
	if err != nil {
		return Object{}, err
	}
	body := func() (runtime.Object, error) {
		sent, err := w.decodeLean(b, r.Store.Any().Get(t.Type.Collection, t.key()))
		if err != nil {
			return nil, err
		}
		return sent, w.place(sent.(metav1.Object))
	}
	sent, err := body()
	if err != nil {
		return w.answer(nil, false, err)
	}
	lock, err := bodyLock(sent.(metav1.Object))
	if err != nil {
		return w.answer(nil, false, err)
	}
	take := func() (o runtime.Object, err error) { // each attempt uses its object up
		if o, sent = sent, nil; o != nil {
			return o, nil
		}
		warned := len(w.warnings)
		o, err = body()
		w.warnings = w.warnings[:warned] // the first attempt has warned of it
		return o, err
	}
	created := false
	made, err := r.modify(ctx, w, change{
		once: lock.version != 0,
		absent: func() (*store.Object, error) {
			o, err := take()
			if err != nil {
				return nil, err
			}
			made, err := r.createOnUpdate(ctx, w, o, lock)
			created = err == nil
			return made, err
		},
		next: func(v existing) (runtime.Object, error) {
			if err := lock.check(w.Target, v.stored); err != nil {
				return nil, err
			}
			o, err := take()
			if err != nil {
				return nil, err
			}
			return w.merge(ctx, v.object, o)
		},
	})
	return w.answer(made, created, err)
}

// Edit changes an object as code of this process wants it, in the name of a field
// manager: edit gets a copy of the current version in its stored version, again each
// time when somebody else was faster. Of a subresource it takes what the subresource
// can change.
func (r *Registry) Edit(ctx context.Context, t Target, manager string, edit func(o metav1.Object) error) (Object, error) {
	w := &write{Target: t, options: &WriteOptions{FieldManager: manager}}
	made, err := r.modify(ctx, w, change{next: func(v existing) (runtime.Object, error) {
		next := v.object.DeepCopyObject()
		if err := edit(next.(metav1.Object)); err != nil {
			return nil, err
		}
		return w.mergeStored(w.stored(), v.object, next)
	}})
	return w.answer(made, false, err)
}

// existing is a stored object that a write changes. It is converted once for all steps of the
// write, since a webhook may convert it.
type existing struct {
	stored *store.Object
	// value is the object as JSON of the version of the request.
	value []byte
	// object is the object in the version of the strategy. It must not be changed, and may
	// lack its managed fields.
	object runtime.Object
}

// existing reads a stored object for a write. Only admission plugins need its managed fields
// decoded.
func (w *write) existing(ctx context.Context, current *store.Object, managed bool) (v existing, err error) {
	v = existing{stored: current, value: current.Bytes()}
	lean := v.value
	if !managed {
		lean = withoutManaged(v.value, w.owners.locate(current))
	}
	switch c := w.Type.Conversion; {
	case c == nil || !c.PerRequest:
		if v.object, err = w.readValue(ctx, current.Key, lean); err == nil {
			v.value, err = wire.As(ctx, w.Type, v.value)
		}
	case c.AlreadyCurrent != nil && c.AlreadyCurrent(lean):
		v.object, err = wire.Unmarshal(lean, w.Type.New)
	default:
		if v.object, err = w.read(ctx, current); err != nil {
			return v, err
		}
		if v.value, err = json.Marshal(v.object); !managed {
			v.object.(metav1.Object).SetManagedFields(nil)
		}
	}
	return v, err
}

// show returns what is read at the target of an existing object, as Target.Show does.
func (w *write) show(v existing) ([]byte, error) {
	if s := w.subresource(); s != nil && s.View != nil {
		return wire.View(s, v.object.DeepCopyObject())
	}
	return v.value, nil
}

// change is what a request makes of an object.
type change struct {
	// next makes what shall be stored, nil when nothing changes. It runs again when
	// another request was faster.
	next func(v existing) (runtime.Object, error)
	// absent answers when there is no object; nil: it is not found.
	absent func() (*store.Object, error)
	// once: the request named the version that it changes, so that another request that
	// was faster is a conflict.
	once bool
}

// modify changes an object. Updates, patches and applies of the object and of its
// subresources all go through it.
func (r *Registry) modify(ctx context.Context, w *write, c change) (*store.Object, error) {
	warned := len(w.warnings)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w.warnings = w.warnings[:warned]
		state := r.Store.Any()
		current := state.Get(w.Type.Collection, w.key())
		if current == nil {
			if c.absent == nil {
				return nil, w.notFound()
			}
			made, err := c.absent()
			if isTaken(err) || restarts(err) {
				continue // if it exists now, this is an update
			}
			return made, err
		}
		v, err := w.existing(ctx, current, r.handles(state, w.Target, admissionv1.Update, looksAt))
		if err != nil {
			return nil, err
		}
		next, err := c.next(v)
		if err != nil || next == nil {
			return current, err
		}
		made, err := r.replace(ctx, w, state, v, next)
		switch {
		case restarts(err):
		case !conflicts(err):
			return made, err
		case c.once:
			return nil, lost(w.Target, err)
		}
	}
}

// createOnUpdate creates the object that a PUT did not find, where the kind
// allows that: row A3.
func (r *Registry) createOnUpdate(ctx context.Context, w *write, sent runtime.Object, l lock) (*store.Object, error) {
	if !w.Type.Strategy.AllowCreateOnUpdate || w.Subresource != "" {
		return nil, w.notFound()
	}
	if l.uid != "" {
		return nil, otherUID(w.Target, l.uid, "")
	}
	if err := w.allow("create"); err != nil {
		return nil, err
	}
	sent.(metav1.Object).SetResourceVersion("") // there is nothing that it could be of
	return r.create(ctx, w, sent)
}

// lock is what a body says of the version that it changes: rows D11, G1, G2.
type lock struct {
	version store.Revision // zero: any
	uid     string         // empty: any
}

func bodyLock(meta metav1.Object) (lock, error) {
	version, err := bodyVersion(meta)
	return lock{version, string(meta.GetUID())}, err
}

func otherUID(t Target, sent, have string) error {
	return conflict(t, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s", objectKey(t), sent, have))
}

// check compares the lock with the object.
func (l lock) check(t Target, current *store.Object) error {
	if have := at(current.Bytes(), []string{"metadata", "uid"}); l.uid != "" && l.uid != have {
		return otherUID(t, l.uid, have)
	}
	return l.checkVersion(t, current)
}

func (l lock) checkVersion(t Target, current *store.Object) error {
	if s := t.subresource(); l.version == 0 && !t.Type.Strategy.AllowUnconditionalUpdate && (s == nil || s.Exchange == nil) {
		// The wire has the resource where the kind stands elsewhere.
		return apierrors.NewInvalid(schema.GroupKind{Group: t.Type.Group, Kind: t.Type.Resource}, t.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if l.version != 0 && l.version != current.Modified {
		return conflict(t, errors.New(changedText))
	}
	return nil
}

func conflict(t Target, why error) error {
	return apierrors.NewConflict(t.Type.GroupResource(), t.Name, why)
}

// merge makes the next version from the current one and from what was sent, which
// it may use up: all of it, or what the subresource can change.
func (w *write) merge(ctx context.Context, old, sent runtime.Object) (runtime.Object, error) {
	if s := w.subresource(); s != nil && s.Exchange != nil {
		next := old.DeepCopyObject()
		return next, s.Set(next, sent)
	}
	stored, err := toStored(ctx, w.Type, sent)
	if err != nil {
		return nil, err
	}
	return w.mergeStored(w.stored(), old, stored)
}

// mergeStored is merge of an object in the stored version.
func (w *write) mergeStored(st *resource.Type, old, sent runtime.Object) (runtime.Object, error) {
	s := w.subresource()
	switch {
	case s != nil && s.Set != nil:
		next := old.DeepCopyObject()
		err := s.Set(next, sent)
		takeUID(next.(metav1.Object), sent.(metav1.Object))
		return next, err
	case s != nil:
		return withStatus(st, old, sent), nil
	}
	if st.Subresource("status") != nil {
		st.Parts().CopyStatus(sent, old)
	}
	if st.Strategy.PrepareUpdate != nil {
		st.Strategy.PrepareUpdate(sent, old)
	}
	return sent, nil
}

// replace stores the next version of an object, or removes it if nothing holds its deletion
// back any more.
func (r *Registry) replace(ctx context.Context, w *write, s *store.State, v existing, next runtime.Object) (*store.Object, error) {
	a, current := w.attributes(admissionv1.Update, s, next, v.object), v.stored
	if err := r.mutateUpdate(ctx, w, a); err != nil {
		return nil, err
	}
	next = a.Object
	if err := r.prepareUpdate(ctx, w, v, next); err != nil {
		return nil, err
	}
	if err := r.admit(ctx, a); err != nil {
		return nil, err
	}
	e, same, err := r.encode(ctx, w, &v, next)
	if err != nil {
		return nil, err
	}
	if nothingHolds(w.stored(), next) {
		_, err := r.commit(ctx, a, store.Write{Collection: w.Type.Collection, Key: current.Key, If: current.Modified})
		if same {
			return current, err
		}
		return asOf(current.Key, e, current.Modified), err
	}
	if same {
		return current, nil // it is durable: it was read
	}
	if err := checkSize(e, current); err != nil {
		return nil, err
	}
	return r.commit(ctx, a, store.Write{Collection: w.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified})
}

// mutateUpdate has the mutating plugins change an object, and restores what the request
// cannot change. The client owns what it sent.
func (r *Registry) mutateUpdate(ctx context.Context, w *write, a *Attributes) (err error) {
	w.owners.client = nil
	if !r.handles(a.State, a.Target, a.Operation, mutates) {
		return nil
	}
	meta := a.Object.(metav1.Object)
	managed := meta.GetManagedFields()
	meta.SetManagedFields(nil)
	keepSystemFields(meta, a.Old.(metav1.Object))
	w.dedupOwners(meta)
	if w.owners.client, err = clientBytes(ctx, w.Type, a.Object); err != nil {
		return err
	}
	if err := r.mutate(ctx, a); err != nil {
		return err
	}
	if s := w.subresource(); s == nil || s.Set == nil {
		a.Object, err = w.mergeStored(w.stored(), a.Old, a.Object)
	}
	a.Object.(metav1.Object).SetManagedFields(managed)
	return err
}

// prepareUpdate restores what no update changes, and validates the next version of an
// object.
func (r *Registry) prepareUpdate(ctx context.Context, w *write, v existing, next runtime.Object) error {
	st, old := w.stored(), v.object
	meta, oldMeta := next.(metav1.Object), old.(metav1.Object)
	keepSystemFields(meta, oldMeta)
	w.owners.take(meta)
	w.dedupOwners(meta)
	if st.Strategy.Generation.CountChanges && w.source != fromAction && w.Subresource != "status" && !sameDesired(st, next, old) {
		meta.SetGeneration(oldMeta.GetGeneration() + 1)
	}
	meta.SetResourceVersion(oldMeta.GetResourceVersion()) // the lock is checked already
	errs := validateUpdate(st, w.Subresource, meta, oldMeta)
	check, warn := st.Strategy.ValidateUpdate, st.Strategy.Warnings
	if own := w.Type.Strategy.ValidateUpdate; own != nil {
		check = own
	}
	if s := w.subresource(); s != nil {
		check, warn = s.Validate, s.Warnings
	}
	if check != nil && w.source != fromAction {
		errs = append(errs, check(ctx, next, old)...)
		if st.Strategy.Tolerated != nil {
			w.warnings = append(w.warnings, st.Strategy.Tolerated(next)...)
		}
	}
	if err := ctx.Err(); err != nil { // rules can take long
		return err
	}
	if err := invalid(st, meta, errs); err != nil {
		return err
	}
	if warn != nil {
		w.warnings = append(w.warnings, warn(next, old)...)
	}
	return nil
}

// takeUID takes the UID that was sent to a subresource: it is refused when it is another one.
func takeUID(next, sent metav1.Object) {
	if uid := sent.GetUID(); uid != "" {
		next.SetUID(uid)
	}
}

// withStatus is the stored object with the status that was sent, and with the
// metadata that a status update may change: row A11.
func withStatus(t *resource.Type, old, sent runtime.Object) runtime.Object {
	next := old.DeepCopyObject()
	t.Parts().CopyStatus(next, sent)
	to, from := next.(metav1.Object), sent.(metav1.Object)
	takeUID(to, from)
	fixed := t.Strategy.Status.Fixed
	if !fixed.Has(resource.Labels) {
		to.SetLabels(from.GetLabels())
	}
	if !fixed.Has(resource.Annotations) {
		to.SetAnnotations(from.GetAnnotations())
	}
	if !fixed.Has(resource.Finalizers) {
		to.SetFinalizers(from.GetFinalizers())
	}
	if !fixed.Has(resource.OwnerReferences) {
		to.SetOwnerReferences(from.GetOwnerReferences())
	}
	return next
}

// keepSystemFields puts back what no update changes (row G5). What validateUpdate
// then finds changed was not the update's to set.
func keepSystemFields(next, old metav1.Object) {
	if next.GetUID() == "" {
		next.SetUID(old.GetUID())
	}
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	if at := old.GetDeletionTimestamp(); at != nil {
		next.SetDeletionTimestamp(at)
	}
	if next.GetDeletionGracePeriodSeconds() == nil {
		next.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
	next.SetGeneration(old.GetGeneration())
	next.SetSelfLink("")
}
