package rbac

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

type policyRule = rbacv1.PolicyRule

// role is a Role or a ClusterRole with its rules compiled.
type role struct {
	rules    []policyRule
	compiled []rule
	// resources are the rules by the resources that they name: "pods", "pods/log", "*/scale" or "*". paths are the rules
	// with paths. Both are nil if the role has fewer than manyRules rules.
	resources map[string][]*rule
	paths     []*rule
	// owned returns the rules as missingFrom needs them. It makes them once.
	owned func() []*owned
}

// manyRules is the number of rules from which on an index is faster than a scan.
const manyRules = 16

func newRole(rules []policyRule) *role {
	r := &role{rules: rules, compiled: make([]rule, len(rules))}
	for i := range rules {
		r.compiled[i] = compile(&rules[i])
	}
	r.owned = sync.OnceValue(func() []*owned {
		all := make([]*owned, len(rules))
		for i := range rules {
			c := &r.compiled[i]
			all[i] = &owned{verbs: newSet(rules[i].Verbs), groups: c.groups, resources: c.resources, names: c.names, paths: c.paths}
		}
		return all
	})
	if len(rules) < manyRules {
		return r
	}
	r.resources = map[string][]*rule{}
	for i := range rules {
		c := &r.compiled[i]
		for _, resource := range rules[i].Resources {
			have := r.resources[resource]
			if len(have) == 0 || have[len(have)-1] != c {
				r.resources[resource] = append(have, c)
			}
		}
		if len(c.paths) > 0 {
			r.paths = append(r.paths, c)
		}
	}
	return r
}

// allows reports whether a rule of the role allows the request.
func (r *role) allows(q *query) bool {
	switch {
	case r.resources == nil:
		for i := range r.compiled {
			if r.compiled[i].allows(q) {
				return true
			}
		}
		return false
	case !q.IsResource:
		return anyAllows(r.paths, q)
	case anyAllows(r.resources["*"], q):
		return true
	case q.Subresource == "":
		return anyAllows(r.resources[q.Resource], q)
	}
	var room [128]byte
	for _, first := range [...]string{q.Resource, "*"} {
		if anyAllows(r.resources[string(append(append(append(room[:0], first...), '/'), q.Subresource...))], q) {
			return true
		}
	}
	return false
}

func anyAllows(rules []*rule, q *query) bool {
	return slices.ContainsFunc(rules, func(r *rule) bool { return r.allows(q) })
}

// query is a request to match with rules.
type query struct {
	*authz.Attributes
	verb verbs // zero: the verb is not a common one
}

func newQuery(a *authz.Attributes) query { return query{a, common(a.Verb)} }

// rule is a rule that is quick to match.
type rule struct {
	// verbs are the common ones, others the rest of them. "*" is all bits and any.
	verbs             verbs
	others            set
	groups, resources set
	// names restricts the rule unless it is empty.
	names set
	paths []path
}

func compile(r *policyRule) rule {
	c := rule{groups: newSet(r.APIGroups), resources: newSet(r.Resources), names: newSet(r.ResourceNames)}
	c.names.any = len(r.ResourceNames) == 0 // a name of * is one that no object has
	var others []string
	for _, v := range r.Verbs {
		switch bit := common(v); {
		case v == rbacv1.VerbAll:
			c.verbs = ^verbs(0)
			others = append(others, v)
		case bit != 0:
			c.verbs |= bit
		default:
			others = append(others, v)
		}
	}
	c.others = newSet(others)
	for _, u := range r.NonResourceURLs {
		prefix, open := u, strings.HasSuffix(u, "*")
		if open {
			prefix = strings.TrimRight(u, "*")
		}
		c.paths = append(c.paths, path{u, prefix, open})
	}
	return c
}

func (r *rule) allows(q *query) bool {
	if q.verb != 0 {
		if r.verbs&q.verb == 0 {
			return false
		}
	} else if !r.others.has(q.Verb) {
		return false
	}
	if !q.IsResource {
		return slices.ContainsFunc(r.paths, func(p path) bool { return p.matches(q.Path) })
	}
	return r.groups.has(q.Group) && r.resources.hasResource(q.Resource, q.Subresource) && r.names.has(q.Name)
}

// path is a path that is not a resource. One that ends with * is a prefix.
type path struct {
	whole, prefix string
	open          bool
}

func (p *path) matches(requested string) bool {
	return p.whole == requested || p.open && strings.HasPrefix(requested, p.prefix)
}

// verbs is a set of common verbs.
type verbs uint16

// common returns the bit of a verb, zero for one that is not common.
func common(verb string) verbs {
	switch verb {
	case "get":
		return 1 << 0
	case "list":
		return 1 << 1
	case "watch":
		return 1 << 2
	case "create":
		return 1 << 3
	case "update":
		return 1 << 4
	case "patch":
		return 1 << 5
	case "delete":
		return 1 << 6
	case "deletecollection":
		return 1 << 7
	}
	return 0
}

// set is a set of strings: a few are compared, many are looked up.
type set struct {
	any  bool // "*" is among them
	few  []string
	many map[string]struct{}
}

// maxFew is up to how many strings comparing them is quicker than a lookup.
const maxFew = 12

func newSet(all []string) set {
	s := set{any: slices.Contains(all, "*"), few: all}
	if len(all) > maxFew {
		s.few, s.many = nil, make(map[string]struct{}, len(all))
		for _, one := range all {
			s.many[one] = struct{}{}
		}
	}
	return s
}

func (s *set) has(one string) bool {
	if s.any {
		return true
	}
	if s.many != nil {
		_, ok := s.many[one]
		return ok
	}
	return slices.Contains(s.few, one)
}

// hasAll reports whether a set has all of some strings.
func (s *set) hasAll(all []string) bool {
	return !slices.ContainsFunc(all, func(one string) bool { return !s.has(one) })
}

// hasResource reports whether a set of resources has "resource", or "resource/subresource", or
// "*/subresource".
func (s *set) hasResource(resource, subresource string) bool {
	if s.any || subresource == "" {
		return s.has(resource)
	}
	if s.many == nil {
		return slices.ContainsFunc(s.few, func(one string) bool { return isSubresource(one, resource, subresource) })
	}
	var room [128]byte
	for _, first := range [...]string{resource, "*"} {
		if _, ok := s.many[string(append(append(append(room[:0], first...), '/'), subresource...))]; ok {
			return true
		}
	}
	return false
}

// isSubresource reports whether the text of a rule is "resource/subresource" or "*/subresource".
func isSubresource(text, resource, subresource string) bool {
	first, ok := strings.CutSuffix(text, subresource)
	if !ok {
		return false
	}
	if first, ok = strings.CutSuffix(first, "/"); !ok {
		return false
	}
	return first == resource || first == "*"
}
