package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// nameAttempts is how often a generated name is tried: row G4.
const nameAttempts = 8

// Create stores a new object: rows A7 to A9, A13, A14, G4 to G6.
func (r *Registry) Create(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	if err := o.check("CreateOptions"); err != nil {
		return Object{}, err
	}
	object, warnings, err := decode(t, b, o.FieldValidation)
	if err != nil {
		return Object{}, err
	}
	meta := object.(metav1.Object)
	if err := placeNamespace(t, meta); err != nil {
		return Object{}, err
	}
	if err := r.checkNamespace(t); err != nil {
		return Object{}, err
	}
	generate := meta.GetName() == "" && meta.GetGenerateName() != ""
	if generate {
		meta.SetName(generateName(meta.GetGenerateName()))
	}
	next, err := r.prepareCreate(t, object)
	if err != nil {
		return Object{}, err
	}
	made, err := r.insert(ctx, t, next, generate)
	if err != nil {
		return Object{}, err
	}
	return Object{Stored: made, Created: true, Warnings: warnings}, nil
}

// prepareCreate makes what is stored from what a client sent.
func (r *Registry) prepareCreate(t Target, object runtime.Object) (runtime.Object, error) {
	version, err := bodyVersion(object.(metav1.Object))
	if err != nil {
		return nil, err
	}
	next, err := toStored(t.Type, object)
	if err != nil {
		return nil, err
	}
	meta, st := next.(metav1.Object), t.stored()
	meta.SetUID(newUID())
	meta.SetCreationTimestamp(metav1.NewTime(r.now().UTC().Truncate(1e9)))
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	meta.SetSelfLink("")
	meta.SetManagedFields(nil)
	if st.Generation { // other kinds keep what the client set
		meta.SetGeneration(1)
	}
	if !st.StatusOnCreate {
		clearStatus(st, next)
	}
	if st.PrepareCreate != nil {
		st.PrepareCreate(next)
	}
	if err := invalid(t.Type, meta, validate(st, meta)); err != nil {
		return nil, err
	}
	if version != 0 {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	return next, nil
}

// insert stores a new object; a generated name that is taken is generated again.
func (r *Registry) insert(ctx context.Context, t Target, object runtime.Object, generate bool) (*store.Object, error) {
	meta := object.(metav1.Object)
	for attempt := 1; ; attempt++ {
		t.Name = meta.GetName()
		e, err := wire.Encode(t.stored(), object)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		made, err := r.Store.Commit(ctx, store.Write{Collection: t.Type.Collection, Key: t.key(), Value: e.Bytes, RevisionAt: e.RevisionAt})
		switch {
		case err == nil:
			return made, nil
		case !errors.Is(err, store.ErrExists):
			return nil, status(err)
		case !generate:
			return nil, apierrors.NewAlreadyExists(t.Type.GroupResource(), t.Name)
		case attempt == nameAttempts:
			return nil, apierrors.NewGenerateNameConflict(t.Type.GroupResource(), t.Name, 1)
		}
		meta.SetName(generateName(meta.GetGenerateName()))
	}
}

// checkNamespace requires that the namespace of a new object is there and stays:
// row A9.
func (r *Registry) checkNamespace(t Target) error {
	if !t.Type.Namespaced || t.Namespace == "" {
		return nil
	}
	ns := r.Store.Any().Get("namespaces", t.Namespace)
	if ns == nil {
		return apierrors.NewNotFound(schemaNamespaces, t.Namespace)
	}
	if at(ns.Value, []string{"metadata", "deletionTimestamp"}) == "" {
		return nil
	}
	err := apierrors.NewForbidden(t.Type.GroupResource(), t.Name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", t.Namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type:    "NamespaceTerminating",
		Message: fmt.Sprintf("namespace %s is being terminated", t.Namespace),
		Field:   "metadata.namespace",
	})
	return err
}
