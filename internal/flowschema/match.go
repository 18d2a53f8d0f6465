package flowschema

import (
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// index finds the first schema that matches a request. Each list has the rules that name a subject,
// in the order of their schemas. Of several lists, the schema that comes first counts.
type index struct {
	all     []entry            // for all users
	users   map[string][]entry // by name
	groups  map[string][]entry
	account map[string][]entry // for all service accounts of a namespace
}

// entry is a rule of a schema.
type entry struct {
	order  int // of the schema
	schema *Schema
	rule   *rule
}

// add adds a schema after those that have been added.
func (x *index) add(order int, s *Schema, rules []flowcontrolv1.PolicyRulesWithSubjects) {
	for i := range rules {
		e := entry{order, s, compile(&rules[i])}
		for j := range rules[i].Subjects {
			x.addSubject(&rules[i].Subjects[j], e)
		}
	}
}

// addSubject adds a rule for one of its subjects.
func (x *index) addSubject(s *flowcontrolv1.Subject, e entry) {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		x.put(&x.users, s.User.Name, e)
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		x.put(&x.groups, s.Group.Name, e)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		namespace, name := s.ServiceAccount.Namespace, s.ServiceAccount.Name
		if name != every {
			x.put(&x.users, accountPrefix+namespace+":"+name, e)
			return
		}
		if x.account == nil {
			x.account = map[string][]entry{}
		}
		x.account[namespace] = append(x.account[namespace], e)
	}
}

// put adds a rule under the name of a user or group.
func (x *index) put(to *map[string][]entry, name string, e entry) {
	if name == every {
		x.all = append(x.all, e)
		return
	}
	if *to == nil {
		*to = map[string][]entry{}
	}
	(*to)[name] = append((*to)[name], e)
}

const (
	every         = "*"
	accountPrefix = "system:serviceaccount:"
)

// find returns the first schema that matches, nil if none does.
func (x *index) find(a *authz.Attributes) *Schema {
	best := first(x.all, nil, a)
	best = first(x.users[a.User.Name], best, a)
	if len(x.account) > 0 {
		if account, ok := strings.CutPrefix(a.User.Name, accountPrefix); ok {
			if namespace, _, whole := strings.Cut(account, ":"); whole {
				best = first(x.account[namespace], best, a)
			}
		}
	}
	for _, g := range a.User.Groups {
		best = first(x.groups[g], best, a)
	}
	if best == nil {
		return nil
	}
	return best.schema
}

// first returns the first entry of a list that matches and comes before best, or else best.
func first(list []entry, best *entry, a *authz.Attributes) *entry {
	for i := range list {
		e := &list[i]
		if best != nil && e.order >= best.order {
			return best
		}
		if e.rule.matches(a) {
			return e
		}
	}
	return best
}

// rule is the part of a rule of a schema besides its subjects.
type rule struct {
	resources []resourceRule
	paths     []pathRule
}

type resourceRule struct {
	verbs, groups, resources, namespaces names
	cluster                              bool
}

type pathRule struct {
	verbs names
	// exact are whole paths, below the prefixes of others; all: every path.
	exact, below []string
	all          bool
}

// names is a list of names; nil: all of them.
type names []string

func namesOf(list []string) names {
	if len(list) == 1 && list[0] == every {
		return nil
	}
	if list == nil {
		return names{}
	}
	return list
}

func (n names) have(name string) bool { return n == nil || slices.Contains(n, name) }

// haveResource reports whether the list has a resource, or one of its subresources.
func (n names) haveResource(resource, sub string) bool {
	if n == nil || sub == "" {
		return n.have(resource)
	}
	for _, one := range n {
		if len(one) == len(resource)+1+len(sub) && one[len(resource)] == '/' && one[:len(resource)] == resource && one[len(resource)+1:] == sub {
			return true
		}
	}
	return false
}

func compile(p *flowcontrolv1.PolicyRulesWithSubjects) *rule {
	r := &rule{}
	for i := range p.ResourceRules {
		from := &p.ResourceRules[i]
		r.resources = append(r.resources, resourceRule{
			verbs: namesOf(from.Verbs), groups: namesOf(from.APIGroups), resources: namesOf(from.Resources),
			namespaces: namesOf(from.Namespaces), cluster: from.ClusterScope,
		})
	}
	for i := range p.NonResourceRules {
		from := &p.NonResourceRules[i]
		to := pathRule{verbs: namesOf(from.Verbs), exact: from.NonResourceURLs, all: slices.Contains(from.NonResourceURLs, every)}
		for _, path := range from.NonResourceURLs {
			path = strings.TrimSuffix(path, every)
			if !strings.HasSuffix(path, "/") {
				path += "/"
			}
			to.below = append(to.below, path)
		}
		r.paths = append(r.paths, to)
	}
	return r
}

func (r *rule) matches(a *authz.Attributes) bool {
	if a.IsResource {
		for i := range r.resources {
			if r.resources[i].matches(a) {
				return true
			}
		}
		return false
	}
	for i := range r.paths {
		if r.paths[i].matches(a) {
			return true
		}
	}
	return false
}

func (r *resourceRule) matches(a *authz.Attributes) bool {
	if !r.verbs.have(a.Verb) || !r.resources.haveResource(a.Resource, a.Subresource) || !r.groups.have(a.Group) {
		return false
	}
	if a.Namespace == "" {
		return r.cluster
	}
	return r.namespaces.have(a.Namespace)
}

func (r *pathRule) matches(a *authz.Attributes) bool {
	if !r.verbs.have(a.Verb) {
		return false
	}
	if r.all || slices.Contains(r.exact, a.Path) {
		return true
	}
	for _, prefix := range r.below {
		if strings.HasPrefix(a.Path, prefix) {
			return true
		}
	}
	return false
}
