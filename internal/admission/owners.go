package admission

import (
	"cmp"
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// ownerPermissions is the plugin OwnerReferencesPermissionEnforcement. The owners of an object can
// remove it, so a change of them requires the right to delete it. A reference with
// blockOwnerDeletion holds up the deletion of the owner, and requires the right to set the owner's
// finalizers.
func ownerPermissions(c *Config) registry.Plugin {
	if c.Authz == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			// The status of a Pod does not change its owners.
			return o != admissionv1.Delete && o != admissionv1.Connect && !(t.Type.Collection == pods && t.Subresource == "status")
		},
		Validate: c.checkOwners,
	}
}

func (c *Config) checkOwners(ctx context.Context, a *registry.Attributes) error {
	next := ownersOf(a.Object)
	if equality.Semantic.DeepEqual(next, ownersOf(a.Old)) {
		return nil
	}
	if a.Operation != admissionv1.Create {
		at := a.RequestedResource()
		ok, reason, err := c.allowed(ctx, a, authz.Attributes{
			Verb: "delete", Group: at.Group, Version: at.Version, Resource: at.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
		})
		if err != nil {
			return err
		}
		if !ok {
			return a.Forbidden("cannot set an ownerRef on a resource you can't delete: %v, <nil>", reason) // kube-apiserver appends its nil error
		}
	}
	blocking := newlyBlocking(next, ownersOf(a.Old))
	if len(blocking) == 0 {
		return nil
	}
	every := authz.Attributes{Verb: "update", Group: "*", Version: "*", Resource: "*", Subresource: "finalizers", Name: "*"}
	ok, _, undecided := c.allowed(ctx, a, every)
	if ok {
		return nil
	}
	for _, ref := range blocking {
		if err := c.mayBlock(ctx, a, ref); err != nil {
			return cmp.Or(undecided, err)
		}
	}
	return nil
}

// mayBlock requires the right to set finalizers on the owner, in each resource that may have it.
func (c *Config) mayBlock(ctx context.Context, a *registry.Attributes, ref metav1.OwnerReference) error {
	resources, err := c.resourcesOf(ref)
	if err != nil {
		return a.Forbidden("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %v", ref.APIVersion, ref.Kind, err)
	}
	for _, t := range resources {
		right := authz.Attributes{Verb: "update", Group: t.Group, Version: t.Version, Resource: t.Resource, Subresource: "finalizers", Name: ref.Name}
		if t.Namespaced {
			right.Namespace = a.Namespace // an owner is in the namespace of its dependents
		}
		ok, reason, err := c.allowed(ctx, a, right)
		if err != nil {
			return err
		}
		if !ok {
			return a.Forbidden("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, <nil>", reason) // as above
		}
	}
	return nil
}

// resourcesOf returns the resources of the kind that a reference names.
func (c *Config) resourcesOf(ref metav1.OwnerReference) (found []*resource.Type, err error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	if served := c.Catalog().Lists(version.Group, version.Version); served != nil {
		for _, t := range served.Types {
			if t.Kind == ref.Kind {
				found = append(found, t)
			}
		}
	}
	if len(found) == 0 {
		err = &meta.NoKindMatchError{GroupKind: version.WithKind(ref.Kind).GroupKind(), SearchedVersions: []string{version.Version}}
	}
	return found, err
}

// ownersOf returns the owners of an object; none for nil and for a body without metadata.
func ownersOf(object any) []metav1.OwnerReference {
	if o, ok := object.(metav1.Object); ok {
		return o.GetOwnerReferences()
	}
	return nil
}

// newlyBlocking returns the references that block the deletion of their owners, and did not
// before.
func newlyBlocking(next, old []metav1.OwnerReference) (all []metav1.OwnerReference) {
	blocked := make(map[types.UID]bool, len(old))
	for _, ref := range old {
		blocked[ref.UID] = ptr.Deref(ref.BlockOwnerDeletion, false)
	}
	for _, ref := range next {
		if ptr.Deref(ref.BlockOwnerDeletion, false) && !blocked[ref.UID] {
			all = append(all, ref)
		}
	}
	return all
}
