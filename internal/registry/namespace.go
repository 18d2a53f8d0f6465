package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// NamespaceRules are the rules for the namespaces of new objects. With the zero value a namespace
// must exist and not be terminating.
type NamespaceRules struct {
	// Unchecked disables the rules: objects are created in absent and terminating namespaces, too,
	// and every namespace can be deleted.
	Unchecked bool
	// Provision creates a namespace that is absent before an object is created in it. It is not
	// called for a dry-run. Nil: nothing does.
	Provision func(ctx context.Context, name string) error
}

// openNamespace returns the state that decides on a new object. It returns an error if the object
// cannot be created in its namespace.
func (r *Registry) openNamespace(ctx context.Context, t Target, dryRun bool) (*store.State, error) {
	state, rules := r.Store.Any(), &r.Namespaces
	if rules.Provision != nil && !dryRun && t.Type.Namespaced && t.Namespace != "" && state.Get("namespaces", t.Namespace) == nil {
		if err := rules.Provision(ctx, t.Namespace); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, apierrors.NewForbidden(t.Type.GroupResource(), t.Name, err)
		}
		state = r.Store.Any()
	}
	if rules.Unchecked {
		return state, nil
	}
	return state, checkNamespace(state, t)
}

// checkNamespace requires that the namespace of a new object exists and is not terminating. The
// transaction of the object depends on the namespace as it is in this state, so that nothing is
// created after the deletion of the namespace has begun.
func checkNamespace(s *store.State, t Target) error {
	if !t.Type.Namespaced || t.Namespace == "" {
		return nil
	}
	ns := s.Get("namespaces", t.Namespace)
	if ns == nil {
		return apierrors.NewNotFound(schemaNamespaces, t.Namespace)
	}
	if !isDeleted(ns) {
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
