// Package rbac authorizes requests by the Roles, ClusterRoles and bindings of a store.
//
// It keeps four indexes, which are updated with the store's state: bindings by subject, and roles
// by key. A decision uses the newest state, so a change of a role or binding is in effect with the
// commit that stores it. It looks up the user and each group of the user, first among the
// ClusterRoleBindings, then among the RoleBindings of the namespace, and matches the rules of the
// roles that they refer to, each role once. So its cost depends on the user's groups, bindings and
// rules for the resource, not on the number of all bindings. An update costs as much as the change:
// a role is compiled once, and a binding is read once.
package rbac

import (
	"context"
	"errors"
	"fmt"
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

// Fork returns an authorizer for a fork of the store. It shares the roles and bindings that z has
// compiled.
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
	missing, seen := false, seenRoles{}
	places, n := scopes(a.Namespace)
	for _, at := range places[:n] {
		for i := range u.subjects() {
			for _, e := range p.bindings(u.subject(i, at)) {
				if !seen.add(&e.Value.binding.role) {
					continue
				}
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
	_, err := p.rolesOf(a.User, a.Namespace, missingRole)
	return authz.NoOpinion, "RBAC: " + err.Error(), nil
}

// seenRoles is a set of roles. It allocates no memory for up to 16 roles. The zero value is empty.
type seenRoles struct {
	n    int // in few
	few  [16]*roleKey
	many map[roleKey]struct{} // all, if there are more than few can hold; else nil
}

// add adds a role. It returns false if the role is there already.
func (s *seenRoles) add(k *roleKey) bool {
	if s.many == nil {
		for _, have := range s.few[:s.n] {
			if *have == *k {
				return false
			}
		}
		if s.n < len(s.few) {
			s.few[s.n] = k
			s.n++
			return true
		}
		s.many = make(map[roleKey]struct{}, 4*len(s.few))
		for _, have := range s.few {
			s.many[*have] = struct{}{}
		}
	}
	before := len(s.many)
	s.many[*k] = struct{}{}
	return len(s.many) > before
}

// policy is the indexes at one state.
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

// maxRules is the maximum size in bytes of the rules that Rules returns; see sizeOf.
const maxRules = 4 << 20

// Rules implements authz.Ruler. The rules of a role are listed once, however many bindings refer
// to it. The list is incomplete if the rules are larger than maxRules.
func (z *Authorizer) Rules(_ context.Context, u *authn.User, namespace string) authz.Rules {
	var all authz.Rules
	p := z.at(z.store.Any())
	roles, err := p.rolesOf(u, namespace, missingRole)
	size := 0
	for _, role := range roles {
		for i := range role.rules {
			r := &role.rules[i]
			if size += sizeOf(r); size > maxRules {
				all.Incomplete = true
				all.Err = utilerrors.NewAggregate([]error{err, errTooLarge})
				return all
			}
			if len(r.Resources) > 0 {
				all.Resources = append(all.Resources, authz.ResourceRule{Verbs: r.Verbs, Groups: r.APIGroups, Resources: r.Resources, Names: r.ResourceNames})
			}
			if len(r.NonResourceURLs) > 0 {
				all.NonResources = append(all.NonResources, authz.NonResourceRule{Verbs: r.Verbs, Paths: r.NonResourceURLs})
			}
		}
	}
	all.Err = err
	return all
}

// errTooLarge is the error of Rules that are larger than maxRules.
var errTooLarge = errors.New("the rules are larger than 4 MiB; the list ends early")

// sizeOf returns the approximate size in bytes of a rule in a response.
func sizeOf(r *policyRule) int {
	size := 64
	for _, texts := range [...][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		for _, text := range texts {
			size += 16 + len(text)
		}
	}
	return size
}

// maxAbsent is the maximum number of missing roles that an error names.
const maxAbsent = 20

// rolesOf returns the roles of a user, each once: those of the ClusterRoleBindings, then those of
// the namespace's RoleBindings, in the order of the bindings' names. Roles that do not exist are
// errors, which absent makes; the returned error names the first maxAbsent of them.
func (p *policy) rolesOf(u *authn.User, namespace string, absent func(*binding) error) ([]*role, error) {
	var all []*role
	var errs []error
	var seen seenRoles
	more := 0
	who := newIdentity(u)
	places, n := scopes(namespace)
	for _, at := range places[:n] {
		var found []*derived.Entry[grant]
		for i := range who.subjects() {
			found = append(found, p.bindings(who.subject(i, at))...)
		}
		slices.SortStableFunc(found, func(a, b *derived.Entry[grant]) int { return strings.Compare(a.Object.Key, b.Object.Key) })
		for _, e := range found {
			if !seen.add(&e.Value.binding.role) {
				continue
			}
			switch r := p.role(&e.Value); {
			case r != nil:
				all = append(all, r)
			case len(errs) < maxAbsent:
				errs = append(errs, absent(e.Value.binding))
			default:
				more++
			}
		}
	}
	if more > 0 {
		errs = append(errs, fmt.Errorf("%d more roles not found", more))
	}
	return all, utilerrors.NewAggregate(errs)
}
