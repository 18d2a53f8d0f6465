package registry

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Delete removes an object: rows D1, D6, D7.
func (r *Registry) Delete(ctx context.Context, t Target, o *metav1.DeleteOptions) (Object, error) {
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	checked := *o
	checked.DryRun = wanted(o.DryRun)
	if errs := metav1validation.ValidateDeleteOptions(&checked); len(errs) > 0 {
		return Object{}, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	if len(checked.DryRun) > 0 {
		return Object{}, NotImplemented("dry-run")
	}
	for {
		if err := ctx.Err(); err != nil {
			return Object{}, status(err)
		}
		current := r.Store.Any().Get(t.Type.Collection, t.key())
		if current == nil {
			return Object{}, t.notFound()
		}
		if err := checkPreconditions(t, current, o.Preconditions); err != nil {
			return Object{}, err
		}
		if err := checkImmortal(t); err != nil {
			return Object{}, err
		}
		if missing := twoPhased(t, current, &checked); missing != "" {
			return Object{}, NotImplemented(missing)
		}
		gone, err := r.Store.Commit(ctx, store.Write{Collection: t.Type.Collection, Key: current.Key, If: current.Modified})
		if errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) {
			continue // look again at what is there now
		}
		if err != nil {
			return Object{}, status(err)
		}
		return deleted(t, gone), nil
	}
}

// DeleteCollection checks its parameters (row P12) and refuses.
func (r *Registry) DeleteCollection(_ context.Context, t Target, o *metainternal.ListOptions) error {
	if _, err := planList(o); err != nil {
		return err
	}
	if _, err := newSelector(t, o); err != nil {
		return err
	}
	return NotImplemented("the deletion of a collection")
}

// deleted is the answer to an immediate deletion: row D1.
func deleted(t Target, gone *store.Object) Object {
	if t.Type.DeleteReturnsObject {
		return Object{Stored: gone}
	}
	return Object{Status: &metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: t.Name, Group: t.Type.Group, Kind: t.Type.Resource,
			UID: types.UID(at(gone.Value, []string{"metadata", "uid"})),
		},
	}}
}

// checkImmortal protects the namespaces that have to be there: row A9.
func checkImmortal(t Target) error {
	if t.Type.GroupResource() != schemaNamespaces {
		return nil
	}
	switch t.Name {
	case "default", "kube-system", "kube-public":
		return apierrors.NewForbidden(schemaNamespaces, t.Name, errors.New("this namespace may not be deleted"))
	}
	return nil
}

// checkPreconditions: row D6.
func checkPreconditions(t Target, current *store.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		resource := schema.GroupResource{Group: t.Type.Group, Resource: t.Type.Kind}
		return apierrors.NewConflict(resource, t.Name, fmt.Errorf(format, args...))
	}
	uid := at(current.Value, []string{"metadata", "uid"})
	if p.UID != nil && string(*p.UID) != uid {
		return refuse("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, uid)
	}
	version := strconv.FormatUint(uint64(current.Modified), 10)
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return refuse("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, version)
	}
	return nil
}

// twoPhased says why a deletion cannot be done at once, which is all that is
// there yet (rows D2, D5, D8, G11); empty: it can.
func twoPhased(t Target, current *store.Object, o *metav1.DeleteOptions) string {
	//lint:ignore SA1019 old clients send it
	orphan := o.OrphanDependents != nil && *o.OrphanDependents
	policy := metav1.DeletePropagationBackground
	if o.PropagationPolicy != nil {
		policy = *o.PropagationPolicy
	}
	switch {
	case hasFinalizers(current):
		return "the deletion of an object that has finalizers"
	case orphan, policy == metav1.DeletePropagationOrphan, policy == metav1.DeletePropagationForeground:
		return "deletion that orphans or waits for dependents"
	case isGraceful(t, current, o):
		return "graceful deletion of a pod that runs on a node (gracePeriodSeconds=0 deletes it at once)"
	}
	return ""
}

// isGraceful tells whether a pod is given time to stop: it is on a node, has not
// finished, and neither the request nor its spec says zero.
func isGraceful(t Target, current *store.Object, o *metav1.DeleteOptions) bool {
	if t.Type.GroupResource() != schemaPods || at(current.Value, []string{"spec", "nodeName"}) == "" {
		return false
	}
	switch at(current.Value, []string{"status", "phase"}) {
	case "Succeeded", "Failed":
		return false
	}
	if o.GracePeriodSeconds != nil {
		return *o.GracePeriodSeconds != 0
	}
	return at(current.Value, []string{"spec", "terminationGracePeriodSeconds"}) != "0"
}

// hasFinalizers tells whether somebody has to act before the object can go.
func hasFinalizers(o *store.Object) bool {
	some := func(list []byte) bool { return len(list) > 2 && list[0] == '[' }
	return some(member(member(o.Value, "metadata"), "finalizers")) ||
		text(member(o.Value, "kind")) == "Namespace" && some(member(member(o.Value, "spec"), "finalizers"))
}
