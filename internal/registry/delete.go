package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Delete deletes an object. Finalizers, a grace period or the kind itself (the content of a
// namespace) can delay the removal. Then Delete only marks the object. The update that takes off
// the last of them removes it (replace).
//
// By is the client, nil for the server itself.
func (r *Registry) Delete(ctx context.Context, t Target, o *metav1.DeleteOptions, by *authn.User) (Object, error) {
	return r.confirmed(ctx, func() (Object, error) {
		w, err := r.newDeletion(t, o, by)
		if err != nil {
			return Object{}, err
		}
		return r.delete(ctx, w)
	})
}

// DeleteFor deletes an object for a VirtualHandler. Admission has seen the request of the client.
func (r *Registry) DeleteFor(ctx context.Context, t Target, o *metav1.DeleteOptions, by *authn.User) (Object, error) {
	w, err := r.newDeletion(t, o, by)
	if err != nil {
		return Object{}, err
	}
	w.source = fromVirtual
	return r.delete(ctx, w)
}

// newDeletion checks the options of a deletion. Empty values of dryRun request no dry-run.
func (r *Registry) newDeletion(t Target, o *metav1.DeleteOptions, by *authn.User) (*write, error) {
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	checked := *o
	checked.DryRun = nonEmpty(o.DryRun)
	if !r.UnsafeDeletion {
		checked.IgnoreStoreReadErrorWithClusterBreakingPotential = nil
	}
	if errs := metav1validation.ValidateDeleteOptions(&checked); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	w := &write{Target: t, verb: store.VerbDelete, deletion: &checked, by: by, dryRun: len(checked.DryRun) > 0}
	//lint:ignore SA1019 old clients send it
	if said := o.OrphanDependents != nil || o.PropagationPolicy != nil; t.Type.Strategy.Deletion.OrphanWarning != "" && !said {
		w.warnings = append(w.warnings, t.Type.Strategy.Deletion.OrphanWarning)
	}
	return w, nil
}

func (r *Registry) delete(ctx context.Context, w *write) (Object, error) {
	w.identify(ctx)
	warned := len(w.warnings)
	for {
		if err := ctx.Err(); err != nil {
			return Object{}, status(err)
		}
		w.warnings = w.warnings[:warned]
		state := r.Store.Any()
		current := state.Get(w.Type.Collection, w.key())
		if err := unreadable(current); err != nil {
			return r.deleteUnreadable(ctx, w, current, err)
		}
		if gone := w.freed; gone != nil && (current == nil || current.Created != gone.Created) {
			response := deleted(w.Target, gone) // another write has removed it since
			response.Warnings, response.Annotations, response.committed = w.warnings, w.annotations(), w.committed
			return response, nil
		}
		if current == nil {
			return Object{}, w.notFound()
		}
		if r.unsafeDeletion(w) {
			return Object{}, w.readable()
		}
		if err := checkPreconditions(w.Target, current, w.deletion.Preconditions); err != nil {
			return Object{}, err
		}
		if err := r.checkProtected(w.Target); err != nil {
			return Object{}, err
		}
		response, err := r.deleteVersion(ctx, w, state, current)
		if conflicts(err) || restarts(err) {
			continue // decide again by the current version
		}
		response.Warnings, response.Annotations, response.committed = w.warnings, w.annotations(), w.committed
		return response, status(err)
	}
}

// deleteVersion deletes one version of an object.
func (r *Registry) deleteVersion(ctx context.Context, w *write, s *store.State, current *store.Object) (Object, error) {
	a, o := r.attributes(w, admissionv1.Delete, s, nil, nil), w.deletion
	if err := r.admitDelete(ctx, a, current); err != nil {
		return Object{}, err
	}
	if removableAtOnce(w.stored(), current, o) {
		return r.remove(ctx, a, current)
	}
	next, rescued, err := w.readOrRescue(ctx, current)
	if err != nil {
		return Object{}, err
	}
	if rescued && w.Type.GroupResource() != schemaNamespaces { // nothing could finish a deletion that is delayed
		return r.remove(ctx, a, current)
	}
	phase := mark(w.stored(), next, o, r.now())
	if phase == phaseRemoved && !graceful(w.stored()) {
		return r.remove(ctx, a, current)
	}
	marked := current
	if phase != phasePending {
		a.Object = next // the object stays, so it has a next version
		e, err := w.encode(ctx, next)
		if err != nil {
			return Object{}, err
		}
		if !sameStored(current, e, nil) {
			c := store.Write{Collection: w.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified, Deleting: true}
			if marked, err = r.commit(ctx, a, c); err != nil {
				return Object{}, err
			}
			if phase == phaseRemoved {
				w.freed = marked
			}
		}
	}
	if phase == phaseRemoved && w.dryRun {
		return deleted(w.Target, marked), nil
	}
	if phase == phaseRemoved {
		return r.remove(ctx, a, marked)
	}
	//lint:ignore SA1019 old clients send it, and wait for 202
	accepted := o.OrphanDependents != nil && !*o.OrphanDependents
	return Object{Stored: marked, Accepted: accepted}, nil
}

// deleteUnreadable deletes an object that cannot be read, if the feature is enabled and the client has asked
// for it: without admission, finalizers or preconditions, which nothing is known of. Otherwise it returns
// why the object cannot be read.
func (r *Registry) deleteUnreadable(ctx context.Context, w *write, current *store.Object, why error) (Object, error) {
	if !r.unsafeDeletion(w) {
		return Object{}, why
	}
	if !w.dryRun {
		c := store.Write{Collection: w.Type.Collection, Key: current.Key, If: current.Modified, Origin: w.origin(ctx)}
		if _, err := r.Store.Apply(ctx, &store.Txn{Writes: []store.Write{c}}); err != nil {
			return Object{}, status(conflictStatus(w.Target, err))
		}
	}
	return Object{committed: !w.dryRun, Status: &metav1.Status{
		Status:  metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: w.Name, Group: w.Type.Group, Kind: w.Type.Resource},
	}}, nil
}

// unsafeDeletion reports whether a client deletes one object that it believes to be unreadable.
func (r *Registry) unsafeDeletion(w *write) bool {
	return IgnoresReadErrors(w.deletion) && w.Subresource == "" && !w.collection
}

// IgnoresReadErrors reports whether the options have ignoreStoreReadErrorWithClusterBreakingPotential.
func IgnoresReadErrors(o *metav1.DeleteOptions) bool {
	return o != nil && o.IgnoreStoreReadErrorWithClusterBreakingPotential != nil && *o.IgnoreStoreReadErrorWithClusterBreakingPotential
}

// readable refuses to delete an object that can be read without its finalizers and admission. As in
// kube-apiserver, a dry run reads from etcd, too.
func (w *write) readable() error {
	stored := *w
	stored.dryRun = false
	return stored.invalidObject("unsafe deletion is not allowed because the object is decodable from storage")
}

// remove removes an object from the store.
func (r *Registry) remove(ctx context.Context, a *Attributes, current *store.Object) (Object, error) {
	gone, err := r.commit(ctx, a, store.Write{Collection: a.Type.Collection, Key: current.Key, If: current.Modified})
	if err != nil {
		return Object{}, err
	}
	return deleted(a.Target, gone), nil
}

// deleted is the response to an immediate deletion: a Status, or the object if the kind returns it.
func deleted(t Target, gone *store.Object) Object {
	if t.Type.Strategy.Deletion.ReturnsObject {
		return Object{Stored: gone}
	}
	return Object{Status: &metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: t.Name, Group: t.Type.Group, Kind: t.Type.Resource,
			UID: types.UID(textAt(gone.Bytes(), "metadata", "uid")),
		},
	}}
}

// checkProtected refuses the deletion of objects that must exist.
func (r *Registry) checkProtected(t Target) error {
	var refusal string
	switch t.Type.Collection + " " + t.Name {
	case "namespaces default", "namespaces kube-system", "namespaces kube-public":
		if r.Namespaces.Unchecked {
			return nil
		}
		refusal = "this namespace may not be deleted"
	case "priorityclasses.scheduling.k8s.io system-node-critical", "priorityclasses.scheduling.k8s.io system-cluster-critical":
		refusal = "this is a system priority class and cannot be deleted"
	default:
		return nil
	}
	return apierrors.NewForbidden(t.Type.GroupResource(), t.Name, errors.New(refusal))
}

// checkPreconditions checks the UID and the resourceVersion in the options of a deletion.
func checkPreconditions(t Target, current *store.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		resource := schema.GroupResource{Group: t.Type.Group, Resource: t.Type.Kind}
		return apierrors.NewConflict(resource, t.Name, fmt.Errorf(format, args...))
	}
	uid := textAt(current.Bytes(), "metadata", "uid")
	version := strconv.FormatUint(uint64(current.Modified), 10)
	if t.Type.GroupResource() == schemaNamespaces || t.Type.Collection == definitionsCollection {
		return checkOwnPreconditions(t, p, uid, version)
	}
	if p.UID != nil && string(*p.UID) != uid {
		return refuse("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, uid)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return refuse("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, version)
	}
	return nil
}

// checkOwnPreconditions is checkPreconditions for namespaces and definitions. kube-apiserver
// deletes those in two steps of their own, with other messages.
func checkOwnPreconditions(t Target, p *metav1.Preconditions, uid, version string) error {
	if p.UID != nil && string(*p.UID) != uid {
		return conflict(t, preconditionFailed("UID", string(*p.UID), uid))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return conflict(t, preconditionFailed("ResourceVersion", *p.ResourceVersion, version))
	}
	return nil
}
