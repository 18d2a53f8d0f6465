// Package rbac authorizes requests by the Roles, ClusterRoles and bindings of a store.
//
// It keeps four indexes, which follow the store's state: bindings by subject, and roles by key.
// A decision reads the state of its moment, so a change of a role or binding is in effect with
// the commit that stores it. It looks up the user and each group of the user, first among the
// ClusterRoleBindings, then among the RoleBindings of the namespace, and matches the rules of the
// roles that they refer to. So it costs as much as the user has groups and bindings, however many
// bindings there are. An update costs as much as what changed: a role is compiled once, and a
// binding is read once.
package rbac

import (
	"context"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// The collections that decide.
const (
	ClusterRoles        = "clusterroles.rbac.authorization.k8s.io"
	ClusterRoleBindings = "clusterrolebindings.rbac.authorization.k8s.io"
	Roles               = "roles.rbac.authorization.k8s.io"
	RoleBindings        = "rolebindings.rbac.authorization.k8s.io"
)

// Authorizer is an authz.Authorizer and an authz.Ruler. It allows and never denies. Its methods
// are safe for concurrent use; make one with New.
type Authorizer struct {
	store                             *store.Store
	clusterRoles, roles               *derived.Index[roleKey, *role]
	clusterRoleBindings, roleBindings *derived.Index[subject, grant]
}

// New returns an authorizer that decides by the objects of a store.
func New(s *store.Store) *Authorizer {
	return &Authorizer{
		store:               s,
		clusterRoles:        derived.NewIndex(ClusterRoles, readRole),
		roles:               derived.NewIndex(Roles, readRole),
		clusterRoleBindings: derived.NewIndex(ClusterRoleBindings, readBinding),
		roleBindings:        derived.NewIndex(RoleBindings, readBinding),
	}
}

// Fork returns an authorizer for a fork of the store. It shares what z knows of roles and bindings.
func (z *Authorizer) Fork(s *store.Store) *Authorizer {
	f := New(s)
	f.clusterRoles.Share(z.clusterRoles)
	f.roles.Share(z.roles)
	f.clusterRoleBindings.Share(z.clusterRoleBindings)
	f.roleBindings.Share(z.roleBindings)
	return f
}

// Authorize implements authz.Authorizer. The reason of an Allow names the binding. The reason
// of NoOpinion names the roles that bindings of the user refer to and that do not exist.
func (z *Authorizer) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	p := z.at(z.store.Any())
	q, u := newQuery(a), newIdentity(a.User)
	missing := false
	places, n := scopes(a.Namespace)
	for _, at := range places[:n] {
		for i := range u.subjects() {
			for _, e := range p.bindings(u.subject(i, at)) {
				switch r := p.role(&e.Value); {
				case r == nil:
					missing = true
				case r.allows(&q):
					return authz.Allow, p.reason(&u, at, e), nil
				}
			}
		}
	}
	if !missing {
		return authz.NoOpinion, "", nil
	}
	_, err := p.rules(a.User, a.Namespace, missingRole)
	return authz.NoOpinion, "RBAC: " + err.Error(), nil
}

// policy is what decides at one state.
type policy struct {
	clusterRoles, roles               derived.View[roleKey, *role]
	clusterRoleBindings, roleBindings derived.View[subject, grant]
}

func (z *Authorizer) at(s *store.State) policy {
	return policy{z.clusterRoles.At(s), z.roles.At(s), z.clusterRoleBindings.At(s), z.roleBindings.At(s)}
}

// bindings returns the bindings of a subject, by their names.
func (p *policy) bindings(k subject) []*derived.Entry[grant] {
	if k.namespace == "" {
		return p.clusterRoleBindings.Get(k)
	}
	return p.roleBindings.Get(k)
}

// role returns the role of a grant, nil if it does not exist.
func (p *policy) role(g *grant) *role {
	from := &p.roles
	if g.binding.cluster {
		from = &p.clusterRoles
	}
	if found := from.Get(g.binding.role); len(found) > 0 {
		return found[0].Value
	}
	return nil
}

// reason returns the reason of an Allow: it names the first subject of the binding that is the
// user.
func (p *policy) reason(u *identity, at place, by *derived.Entry[grant]) string {
	first := &by.Value
	if first.index == 0 {
		return first.reason
	}
	for i := range u.subjects() {
		all := p.bindings(u.subject(i, at))
		i, found := slices.BinarySearchFunc(all, by.Object.Key, func(e *derived.Entry[grant], key string) int { return strings.Compare(e.Object.Key, key) })
		if found && all[i].Value.index < first.index {
			first = &all[i].Value
		}
	}
	return first.reason
}

// Rules implements authz.Ruler.
func (z *Authorizer) Rules(_ context.Context, u *authn.User, namespace string) authz.Rules {
	var all authz.Rules
	p := z.at(z.store.Any())
	rules, err := p.rules(u, namespace, missingRole)
	for _, r := range rules {
		if len(r.Resources) > 0 {
			all.Resources = append(all.Resources, authz.ResourceRule{Verbs: r.Verbs, Groups: r.APIGroups, Resources: r.Resources, Names: r.ResourceNames})
		}
		if len(r.NonResourceURLs) > 0 {
			all.NonResources = append(all.NonResources, authz.NonResourceRule{Verbs: r.Verbs, Paths: r.NonResourceURLs})
		}
	}
	all.Err = err
	return all
}

// rules returns the rules of a user: those of the ClusterRoleBindings, then those of the
// namespace's RoleBindings, in the order of the bindings' names. Bindings of roles that do not
// exist are errors, which absent makes.
func (p *policy) rules(u *authn.User, namespace string, absent func(*binding) error) ([]policyRule, error) {
	var all []policyRule
	var errs []error
	who := newIdentity(u)
	places, n := scopes(namespace)
	for _, at := range places[:n] {
		var found []*derived.Entry[grant]
		for i := range who.subjects() {
			found = append(found, p.bindings(who.subject(i, at))...)
		}
		slices.SortStableFunc(found, func(a, b *derived.Entry[grant]) int { return strings.Compare(a.Object.Key, b.Object.Key) })
		found = slices.CompactFunc(found, func(a, b *derived.Entry[grant]) bool { return a.Object == b.Object })
		for _, e := range found {
			if r := p.role(&e.Value); r != nil {
				all = append(all, r.rules...)
			} else {
				errs = append(errs, absent(e.Value.binding))
			}
		}
	}
	return all, utilerrors.NewAggregate(errs)
}
