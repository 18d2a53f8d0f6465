package registry

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// objectChange is how a request changes an object.
type objectChange struct {
	// next returns the object that the client wants, in the stored version, or the body of a
	// subresource with its own type; nil if nothing changes. Fields that the request cannot change
	// are restored later. It is called again after a conflict.
	next func(v currentObject) (runtime.Object, error)
	// absent responds to the request if there is no object; nil: NotFound.
	absent func() (*store.Object, error)
	// versioned reports whether the request contains the resourceVersion to change. Then a
	// conflict is an error, and next is not called again.
	versioned bool
}

// modify changes an object. Updates, patches and applies of objects and subresources all use it.
func (r *Registry) modify(ctx context.Context, w *write, c objectChange) (*store.Object, error) {
	w.identify(ctx)
	warned := len(w.warnings)
	hasTurn := false
	for repeats := 0; ; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w.warnings = w.warnings[:warned]
		state := r.Store.Any()
		current := state.Get(w.Type.Collection, w.key())
		large := current != nil && current.Len() >= largeObject
		// A webhook that the request calls may change the object itself, so the first attempt does not hold the turn.
		if large && !hasTurn && (repeats > 0 || !r.handles(w, state, admissionv1.Update, readsObjects)) {
			done, err := r.turns.take(ctx, w.Type.Collection, w.key())
			if err != nil {
				return nil, err
			}
			defer done()
			hasTurn = true
			continue
		}
		if current == nil {
			if c.absent == nil {
				return nil, w.notFound()
			}
			made, err := c.absent()
			if isTaken(err) || restarts(err) {
				continue // another request may have created it
			}
			return made, err
		}
		if err := unreadable(current); err != nil {
			return nil, err
		}
		v, err := w.readCurrent(ctx, current, r.handles(w, state, admissionv1.Update, readsObjects))
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
		case c.versioned, large && repeats >= largeRepeats:
			return nil, conflictStatus(w.Target, err)
		default:
			repeats++
		}
	}
}

// replace stores the next version of an object. If the object is being deleted and nothing blocks
// that any more, replace removes it.
func (r *Registry) replace(ctx context.Context, w *write, s *store.State, v currentObject, sent runtime.Object) (*store.Object, error) {
	a, current := r.attributes(w, admissionv1.Update, s, nil, v.object), v.stored
	a.before = v
	if err := r.mutateUpdate(ctx, w, a, sent); err != nil {
		return nil, err
	}
	next := a.Object
	if err := r.prepareUpdate(ctx, a, v, next); err != nil {
		return nil, err
	}
	if err := r.admit(ctx, a); err != nil {
		return nil, err
	}
	e, same, err := r.encode(ctx, w, &v, next)
	if err != nil {
		return nil, err
	}
	if removable(w.stored(), next) {
		_, err := r.commit(ctx, a, store.Write{Collection: w.Type.Collection, Key: current.Key, If: current.Modified})
		if same {
			return current, err
		}
		return withRevision(current.Key, e, current.Modified), err
	}
	if same {
		return r.unchangedWrite(ctx, a, current)
	}
	if err := checkSize(e, current); err != nil {
		return nil, err
	}
	return r.commit(ctx, a, store.Write{Collection: w.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified})
}

// unchangedWrite ends a write that changes nothing. If the object is stored in an outdated form,
// such as encrypted with a key that was replaced, it is stored anew, with a new revision. So a
// replacement of all objects by themselves rotates the keys.
func (r *Registry) unchangedWrite(ctx context.Context, a *Attributes, current *store.Object) (*store.Object, error) {
	if a.DryRun || !r.Store.Outdated(a.Type.Collection, current.Key) {
		return current, nil // it was read, so it is durable
	}
	return r.commit(ctx, a, store.Write{Collection: a.Type.Collection, Key: current.Key, Value: current.Unversioned(), RevisionAt: int(current.RevisionAt), If: current.Modified})
}

// mutateUpdate calls the mutating plugins for an update with the object that the client sent, and
// makes the next version from the result. The client's manager owns the fields that the client
// sent, not those that plugins set.
func (r *Registry) mutateUpdate(ctx context.Context, w *write, a *Attributes, sent runtime.Object) (err error) {
	w.owners.forget()
	w.mutated = false
	switch {
	case w.source == fromVirtual:
		a.Object = sent
		return nil
	case !a.any(changesObjects):
		fits, err := r.fitsUnstored(ctx, w, a.Old, sent)
		if err != nil {
			return err
		}
		if !fits {
			w.owners.keepDecided(a.before.stored)
		}
		if a.Object, err = w.merge(a.Old, sent); err != nil || w.owners.hasDecided || w.exchanges() || !w.altered(sent, a.Object) {
			return err
		}
		meta := sent.(metav1.Object)
		managed := meta.GetManagedFields()
		meta.SetManagedFields(nil)
		err = r.setClient(ctx, w, a.Old, sent, managed)
		meta.SetManagedFields(managed)
		return err
	}
	meta := sent.(metav1.Object)
	managed := meta.GetManagedFields()
	meta.SetManagedFields(nil)
	if w.source != fromPatch {
		w.dedupOwners(meta)
	}
	if !w.owners.hasDecided {
		if err := r.setClient(ctx, w, a.Old, sent, managed); err != nil {
			return err
		}
	}
	if a.Object = sent; w.exchanges() {
		if a.Object, err = w.merge(a.Old, sent); err != nil {
			return err
		}
		a.body = sent
	}
	if err := r.mutate(ctx, a); err != nil {
		return err
	}
	w.mutated = true
	if !w.exchanges() {
		if err := w.checkMutated(a); err != nil {
			return err
		}
		if a.Object, err = w.merge(a.Old, a.Object); err != nil {
			return err
		}
	}
	a.Object.(metav1.Object).SetManagedFields(managed)
	return r.finish(ctx, a)
}

// checkMutated checks the namespace and the resourceVersion of an update that plugins have seen.
func (w *write) checkMutated(a *Attributes) error {
	meta := a.Object.(metav1.Object)
	if err := setNamespace(w.Target, meta); err != nil {
		return err
	}
	version, err := bodyVersion(meta)
	if err == nil && version != 0 && version != a.before.stored.Modified {
		err = conflict(w.Target, errors.New(changedText))
	}
	return err
}

// altered reports whether the object to store can differ from the sent one in fields that its
// manager can own, although no plugin changes it.
func (w *write) altered(sent, next runtime.Object) bool {
	if w.cleared {
		return true
	}
	if s := w.subresource(); s == nil || s.Set == nil {
		if s == nil && next != sent || wire.HasEmpty(sent) || wire.HasEmptyWithin(sent) {
			return true
		}
		// Owner references that a patch repeats are dropped later.
		if w.source != fromPatch {
			return false
		}
		_, twice := uniqueOwners(sent.(metav1.Object).GetOwnerReferences())
		return len(twice) > 0
	}
	return !sameOwned(sent, next, w.Subresource == "status")
}

// sameOwned reports whether two objects of one type are the same in all that a manager can own, and have no empty lists or
// maps that only the client's form shows. With statusAlone it does not compare the spec, which no
// manager can own by the subresource status. It takes pointers to structs.
func sameOwned(sent, next runtime.Object, statusAlone bool) bool {
	if wire.HasEmpty(sent) || wire.HasEmptyWithin(sent) {
		return false
	}
	a, b := sent.(metav1.Object), next.(metav1.Object)
	if !maps.Equal(a.GetLabels(), b.GetLabels()) || !maps.Equal(a.GetAnnotations(), b.GetAnnotations()) ||
		!slices.Equal(a.GetFinalizers(), b.GetFinalizers()) || !reflect.DeepEqual(a.GetOwnerReferences(), b.GetOwnerReferences()) {
		return false
	}
	x, y := reflect.ValueOf(sent).Elem(), reflect.ValueOf(next).Elem()
	if x.Kind() != reflect.Struct || x.Type() != y.Type() {
		return false
	}
	for i := range x.NumField() {
		switch name := x.Type().Field(i).Name; {
		case name == "TypeMeta", name == "ObjectMeta", name == "Spec" && statusAlone:
		default:
			if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
				return false
			}
		}
	}
	return true
}

// fitsUnstored reports whether the parts of a custom object that the request does not store fit the schema: the
// status of a write to the object, and all but the status of a write to the status. As in kube-apiserver, the
// write changes no managed field otherwise.
func (r *Registry) fitsUnstored(ctx context.Context, w *write, old, sent runtime.Object) (bool, error) {
	p := w.Type.Parts()
	if w.Type.Custom == nil || p.SameStatus == nil || w.owners.hasDecided {
		return true, nil
	}
	switch w.Subresource {
	case "":
		if p.SameStatus(sent, old) {
			return true, nil
		}
	case "status":
		if p.SameDesired(sent, old) {
			return true, nil
		}
	default:
		return true, nil
	}
	s, err := r.schema(ctx, w.Type)
	if err != nil {
		return false, err
	}
	b, err := r.sentBytes(ctx, w.Type, sent)
	return err == nil && s.Fits(b), err
}

// setClient stores the object that the client sent, and its managed fields. As in kube-apiserver, a
// manager owns the fields that it sent and that differ from the current object, even if the request
// does not store them.
func (r *Registry) setClient(ctx context.Context, w *write, old, sent runtime.Object, managed []metav1.ManagedFieldsEntry) (err error) {
	if w.exchanges() { // its fields are those of another kind
		if sent, err = w.merge(old, sent); err != nil {
			return err
		}
	}
	w.owners.sent = managed
	w.owners.client, err = r.sentBytes(ctx, w.Type, sent)
	return err
}

// prepareUpdate restores the fields that no update changes, and validates the next version of an
// object.
func (r *Registry) prepareUpdate(ctx context.Context, a *Attributes, v currentObject, next runtime.Object) error {
	w, old := a.w, v.object
	st := w.stored()
	meta, oldMeta := next.(metav1.Object), old.(metav1.Object)
	restoreSystemFields(meta, oldMeta)
	w.owners.takeFrom(meta)
	w.dedupOwners(meta)
	if st.Strategy.Generation.CountChanges && w.source != fromVirtual && w.Subresource != "status" && !sameDesired(st, next, old) {
		meta.SetGeneration(oldMeta.GetGeneration() + 1)
	}
	meta.SetResourceVersion(oldMeta.GetResourceVersion()) // the lock has been checked
	causes, err := r.causes(ctx, a)
	if err != nil {
		return err
	}
	errs := append(validateMetaUpdate(st, w.Subresource, meta, oldMeta), causes...)
	check := st.Strategy.ValidateUpdate
	if own := w.Type.Strategy.ValidateUpdate; own != nil {
		check = own
	}
	if s := w.subresource(); s != nil {
		check = s.Validate
	}
	if check != nil && w.source != fromVirtual {
		errs = append(errs, check(ctx, next, old)...)
		if st.Strategy.Tolerated != nil {
			w.warnings = append(w.warnings, st.Strategy.Tolerated(next)...)
		}
	}
	switch s := w.Subresource; s {
	case "", "status", "approval", "ephemeralcontainers", "resize", "finalize":
		if w.source != fromVirtual {
			errs = declaredErrors(ctx, st, errs, next, old, s)
		}
	}
	if err := ctx.Err(); err != nil { // validation rules can take long
		return err
	}
	if err := invalid(st, meta, errs); err != nil {
		return err
	}
	w.warnings = append(w.warnings, w.updateWarnings(next, old)...)
	return nil
}

// updateWarnings returns the warnings of the kind, or of the subresource, for an update.
func (w *write) updateWarnings(next, old runtime.Object) []string {
	warn := w.stored().Strategy.Warnings
	if s := w.subresource(); s != nil {
		warn = s.Warnings
	}
	if warn == nil {
		return nil
	}
	return warn(next, old)
}

// take prepares a decoded body for objectChange.next. It may use up the body.
func (w *write) take(ctx context.Context, sent runtime.Object) (runtime.Object, error) {
	if w.exchanges() {
		return sent, nil
	}
	return toStored(ctx, w.Type, sent)
}

// unchanged returns the result of objectChange.next for a body that changes nothing.
func (w *write) unchanged(v currentObject) (runtime.Object, error) {
	o := v.object.DeepCopyObject()
	if s := w.subresource(); w.exchanges() {
		return s.View(o, resource.ForPatch)
	}
	return o, nil
}

// merge makes the next version from the current one and from the result of next: all of it, or the
// part that the subresource can change. It may reuse the memory of sent.
func (w *write) merge(old, sent runtime.Object) (runtime.Object, error) {
	next, err := w.merged(old, sent)
	w.cleared = false
	if d := w.stored().Strategy.Disabled; err == nil && d != nil && d(next, old, true) {
		w.cleared = true
		next = next.DeepCopyObject() // field managers own what was sent
		d(next, old, false)
	}
	return next, err
}

// merged is merge without the fields of disabled features.
func (w *write) merged(old, sent runtime.Object) (runtime.Object, error) {
	st, s := w.stored(), w.subresource()
	switch {
	case w.exchanges():
		next := old.DeepCopyObject()
		return next, s.Set(next, sent)
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
		return st.Strategy.PrepareUpdate(sent, old), nil
	}
	return sent, nil
}

// takeUID takes over the UID of a subresource's body. Validation refuses a UID that differs from
// the object's.
func takeUID(next, sent metav1.Object) {
	if uid := sent.GetUID(); uid != "" {
		next.SetUID(uid)
	}
}

// withStatus returns the stored object with the status that was sent, and with the metadata that a
// status update may change.
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

// restoreSystemFields restores the fields that no update changes. If validation still finds a
// change in one, the request must not make it.
func restoreSystemFields(next, old metav1.Object) {
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
