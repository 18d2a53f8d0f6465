package registry

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// ObjectUpdate is a change that a VirtualHandler makes to a stored object. It may change spec and
// status at once, but not the fields that only the server sets.
type ObjectUpdate struct {
	// Change changes a copy of the current object in its stored version. It is called again
	// after a conflict. Its error ends the update.
	Change func(o runtime.Object) error
	// UID and ResourceVersion are preconditions; empty: any.
	UID             types.UID
	ResourceVersion string
	// By is the client.
	By     *authn.User
	DryRun bool
}

// UpdateObject changes a stored object for a VirtualHandler. It keeps the generation, since a Pod
// that gets its node has the same desired state as before, and the managed fields.
func (r *Registry) UpdateObject(ctx context.Context, t Target, a ObjectUpdate) (Object, error) {
	w := &write{Target: t, source: fromVirtual, by: a.By, options: &WriteOptions{}, dryRun: a.DryRun}
	made, err := r.modify(ctx, w, objectChange{versioned: a.ResourceVersion != "", next: func(v currentObject) (runtime.Object, error) {
		w.owners.setDecided(w.owners.managedOf(v.stored))
		next := v.object.DeepCopyObject()
		if err := a.check(w, next.(metav1.Object)); err != nil {
			return nil, err
		}
		return next, a.Change(next)
	}})
	return w.response(made, false, err)
}

// check compares the object with the preconditions.
func (a *ObjectUpdate) check(w *write, meta metav1.Object) error {
	if have := meta.GetUID(); a.UID != "" && a.UID != have {
		return w.uidConflict(string(a.UID), string(have))
	}
	if have := meta.GetResourceVersion(); a.ResourceVersion != "" && a.ResourceVersion != have {
		return w.invalidObject(fmt.Sprintf("Precondition failed: ResourceVersion in precondition: %s, ResourceVersion in object meta: %s", a.ResourceVersion, have))
	}
	return nil
}
