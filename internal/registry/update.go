package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

var (
	schemaNamespaces = schema.GroupResource{Resource: "namespaces"}
	schemaPods       = schema.GroupResource{Resource: "pods"}
)

// changedText is the message of a lost optimistic lock: row G1.
const changedText = "the object has been modified; please apply your changes to the latest version and try again"

// Update replaces an object, or its status: rows A3, A8, A11, D11, G1 to G6.
func (r *Registry) Update(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	if err := o.check("UpdateOptions"); err != nil {
		return Object{}, err
	}
	sent, warnings, err := decode(t, b, o.FieldValidation)
	if err != nil {
		return Object{}, err
	}
	meta := sent.(metav1.Object)
	if err := checkName(t, meta); err != nil {
		return Object{}, err
	}
	if err := placeNamespace(t, meta); err != nil {
		return Object{}, err
	}
	version, err := bodyVersion(meta)
	if err != nil {
		return Object{}, err
	}
	uid := string(meta.GetUID())
	next, err := toStored(t.Type, sent)
	if err != nil {
		return Object{}, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return Object{}, status(err)
		}
		current := r.Store.Any().Get(t.Type.Collection, t.key())
		if current == nil {
			made, err := r.createOnUpdate(ctx, t, next, creation{uid, warnings})
			if apierrors.IsAlreadyExists(err) {
				continue // somebody else was faster: now it is an update
			}
			return made, err
		}
		if err := checkLock(t, current, version, uid); err != nil {
			return Object{}, err
		}
		attempt := next
		if version == 0 { // next may be needed again
			attempt = next.DeepCopyObject()
		}
		made, err := r.replace(ctx, t, current, attempt)
		if version == 0 && (errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound)) {
			continue // somebody else was faster; the client did not say which version it saw
		}
		switch {
		case errors.Is(err, store.ErrConflict):
			err = conflict(t, errors.New(changedText))
		case errors.Is(err, store.ErrNotFound):
			err = t.notFound()
		}
		return Object{Stored: made, Warnings: warnings}, status(err)
	}
}

// createOnUpdate creates the object that a PUT did not find, where the kind
// allows that: row A3.
func (r *Registry) createOnUpdate(ctx context.Context, t Target, next runtime.Object, c creation) (Object, error) {
	if !t.Type.CreateOnUpdate || t.Subresource != "" {
		return Object{}, t.notFound()
	}
	if c.uid != "" {
		return Object{}, otherUID(t, c.uid, "")
	}
	if err := r.checkNamespace(t); err != nil {
		return Object{}, err
	}
	own := t
	own.Type = t.stored()
	object, err := r.prepareCreate(own, next.DeepCopyObject())
	if err != nil {
		return Object{}, err
	}
	made, err := r.insert(ctx, t, object, false)
	return Object{Stored: made, Created: true, Warnings: c.warnings}, err
}

// creation is what else a PUT said of an object that was not there.
type creation struct {
	uid      string
	warnings []string
}

func otherUID(t Target, sent, have string) error {
	return conflict(t, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: %s", objectKey(t), sent, have))
}

// checkLock compares the version and the uid that a client sent with those of
// the object: rows D11, G1, G2.
func checkLock(t Target, current *store.Object, version store.Revision, uid string) error {
	if have := at(current.Value, []string{"metadata", "uid"}); uid != "" && uid != have {
		return otherUID(t, uid, have)
	}
	if version == 0 && !t.Type.UnconditionalUpdate {
		return apierrors.NewInvalid(t.Type.GroupVersionKind().GroupKind(), t.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if version != 0 && version != current.Modified {
		return conflict(t, errors.New(changedText))
	}
	return nil
}

func conflict(t Target, why error) error {
	return apierrors.NewConflict(t.Type.GroupResource(), t.Name, why)
}

// replace stores what follows from the current version and from what was sent.
func (r *Registry) replace(ctx context.Context, t Target, current *store.Object, next runtime.Object) (*store.Object, error) {
	st := t.stored()
	old, err := wire.Unmarshal(current.Value, st.New)
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", t.Type.Collection, current.Key, err)
	}
	if t.Subresource == "status" {
		next = withStatus(st, old, next)
	} else {
		prepareUpdate(st, next, old)
	}
	meta, oldMeta := next.(metav1.Object), old.(metav1.Object)
	keepSystemFields(meta, oldMeta)
	if st.Generation && !sameDesired(st, next, old) {
		meta.SetGeneration(oldMeta.GetGeneration() + 1)
	}
	meta.SetResourceVersion(oldMeta.GetResourceVersion()) // the lock is checked already
	errs := validate(st, meta)
	// What follows says again what is wrong, as the wire has it, and finds new
	// finalizers. Nothing else can be: names and system fields are the old ones.
	if len(errs) > 0 || oldMeta.GetDeletionTimestamp() != nil {
		errs = append(errs, validation.ValidateObjectMetaAccessorUpdate(meta, oldMeta, field.NewPath("metadata"))...)
	}
	if err := invalid(t.Type, meta, errs); err != nil {
		return nil, err
	}
	e, err := wire.Encode(st, next)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if unchanged(current, e) {
		return current, nil // it is durable: it was read
	}
	return r.Store.Commit(ctx, store.Write{Collection: t.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified})
}

// prepareUpdate puts back what an update of the object itself cannot change.
func prepareUpdate(t *resource.Type, next, old runtime.Object) {
	if t.Subresource("status") != nil {
		copyStatus(next, old)
	}
	if t.PrepareUpdate != nil {
		t.PrepareUpdate(next, old)
	}
}

// withStatus is the stored object with the status that was sent, and with the
// metadata that a status update may change: row A11.
func withStatus(t *resource.Type, old, sent runtime.Object) runtime.Object {
	next := old.DeepCopyObject()
	copyStatus(next, sent)
	to, from := next.(metav1.Object), sent.(metav1.Object)
	if !t.StatusKeeps.Has(resource.Labels) {
		to.SetLabels(from.GetLabels())
	}
	if !t.StatusKeeps.Has(resource.Annotations) {
		to.SetAnnotations(from.GetAnnotations())
	}
	if !t.StatusKeeps.Has(resource.Finalizers) {
		to.SetFinalizers(from.GetFinalizers())
	}
	if !t.StatusKeeps.Has(resource.OwnerReferences) {
		to.SetOwnerReferences(from.GetOwnerReferences())
	}
	return next
}

// keepSystemFields: no update changes them (row G5).
func keepSystemFields(next, old metav1.Object) {
	next.SetUID(old.GetUID())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetDeletionTimestamp(old.GetDeletionTimestamp())
	next.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	next.SetGeneration(old.GetGeneration())
	next.SetSelfLink("")
	next.SetManagedFields(nil)
	if next.GetGenerateName() == "" {
		next.SetGenerateName(old.GetGenerateName())
	}
}

// unchanged tells whether the encoding is what is stored, apart from the digits
// of the version: such an update writes nothing (row G3).
func unchanged(current *store.Object, e wire.Encoded) bool {
	n := len(strconv.FormatUint(uint64(current.Modified), 10))
	return current.RevisionAt == e.RevisionAt && len(current.Value) == len(e.Bytes)+n &&
		bytes.Equal(current.Value[:e.RevisionAt], e.Bytes[:e.RevisionAt]) &&
		bytes.Equal(current.Value[e.RevisionAt+n:], e.Bytes[e.RevisionAt:])
}
