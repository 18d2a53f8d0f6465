package admission

import (
	"cmp"
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// escalation refuses roles and bindings that grant permissions which the client does not have:
// otherwise clients that may write roles could do everything. Members of system:masters and the
// server itself are not restricted. The verb escalate allows any role, the verb bind any binding of
// a role. The plugin only reads, but it must see the request before validation, as the checks of
// kube-apiserver do.
func escalation(c *Config) registry.Plugin {
	if c.RBAC == nil {
		return registry.Plugin{}
	}
	g := grants{c.Authz, c.RBAC}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			if t.Subresource != "" || o == admissionv1.Delete {
				return false
			}
			switch t.Type.Collection {
			case rbac.Roles, rbac.ClusterRoles, rbac.RoleBindings, rbac.ClusterRoleBindings:
				return true
			}
			return false
		},
		Complete: func(ctx context.Context, a *registry.Attributes) error {
			if a.User == nil || authz.IsMaster(a.User) {
				return nil
			}
			switch o := a.Object.(type) {
			case *rbacv1.Role:
				return g.role(ctx, a, o.Rules, false)
			case *rbacv1.ClusterRole:
				return g.role(ctx, a, o.Rules, aggregates(a.Object) || aggregates(a.Old))
			case *rbacv1.RoleBinding:
				return g.binding(ctx, a, o.RoleRef)
			case *rbacv1.ClusterRoleBinding:
				return g.binding(ctx, a, o.RoleRef)
			}
			return nil
		},
	}
}

// grants checks the permissions that roles and bindings grant.
type grants struct {
	authz authz.Authorizer
	rbac  *rbac.Authorizer
}

// everything is the most that the rules of an aggregated role can become.
var everything = []rbacv1.PolicyRule{
	{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
	{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
}

// aggregates reports whether an object is a ClusterRole that takes its rules from others.
func aggregates(o runtime.Object) bool {
	r, ok := o.(*rbacv1.ClusterRole)
	return ok && r.AggregationRule != nil && len(r.AggregationRule.ClusterRoleSelectors) > 0
}

// role checks a Role or a ClusterRole.
func (g *grants) role(ctx context.Context, a *registry.Attributes, rules []rbacv1.PolicyRule, aggregated bool) error {
	ok, undecided := g.allowed(ctx, a, "escalate", a.Type.GroupResource(), a.RequestedName())
	if ok || onlyForCollector(a) {
		return nil
	}
	if err := g.rbac.MayGrant(scope(a), rules); err != nil {
		return cmp.Or(undecided, refused(a, err))
	}
	if aggregated && g.rbac.MayGrant(scope(a), everything) != nil {
		return cmp.Or(undecided, refused(a, errors.New("must have cluster-admin privileges to use the aggregationRule")))
	}
	return nil
}

// binding checks a RoleBinding or a ClusterRoleBinding.
func (g *grants) binding(ctx context.Context, a *registry.Attributes, ref rbacv1.RoleRef) error {
	if onlyForCollector(a) {
		return nil
	}
	resources := map[string]string{"Role": "roles", "ClusterRole": "clusterroles"}
	var undecided error
	if r := resources[ref.Kind]; r != "" {
		var ok bool
		if ok, undecided = g.allowed(ctx, a, "bind", schema.GroupResource{Group: ref.APIGroup, Resource: r}, ref.Name); ok {
			return nil
		}
	}
	rules, err := g.rbac.RulesOf(scope(a), ref)
	if err != nil {
		return cmp.Or(undecided, err)
	}
	if err := g.rbac.MayGrant(scope(a), rules); err != nil {
		return cmp.Or(undecided, refused(a, err))
	}
	return nil
}

// allowed reports whether the client has a verb that makes the check unnecessary. The error is that of authz.Undecided; it
// matters only if the check fails.
func (g *grants) allowed(ctx context.Context, a *registry.Attributes, verb string, resource schema.GroupResource, name string) (bool, error) {
	ok, _, err := authz.Allowed(ctx, g.authz, &authz.Attributes{
		User: a.User, Verb: verb, IsResource: true, Group: resource.Group, Version: "*", Resource: resource.Resource, Namespace: a.Namespace, Name: name,
	})
	return ok, err
}

// scope is where a request grants permissions.
func scope(a *registry.Attributes) rbac.Scope {
	return rbac.Scope{State: a.State, User: a.User, Namespace: a.Namespace, Resource: a.Type.GroupResource()}
}

// refused is the response to a request that grants more than the client has.
func refused(a *registry.Attributes, why error) error {
	name := a.Object.(metav1.Object).GetName()
	if a.NameGenerated {
		name = ""
	}
	return apierrors.NewForbidden(a.Type.GroupResource(), name, why)
}

// onlyForCollector reports whether an update changes only the fields that the garbage collector
// needs to delete the object: any client that may update a role may change them.
func onlyForCollector(a *registry.Attributes) bool {
	if a.Old == nil {
		return false
	}
	next := a.Object.DeepCopyObject()
	meta, old := next.(metav1.Object), a.Old.(metav1.Object)
	meta.SetOwnerReferences(old.GetOwnerReferences())
	meta.SetFinalizers(old.GetFinalizers())
	meta.SetManagedFields(old.GetManagedFields())
	return equality.Semantic.DeepEqual(next, a.Old)
}
