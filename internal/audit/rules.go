package audit

import (
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// Policy decides which requests are recorded, and how much of them. It is immutable. A decision
// allocates nothing.
type Policy struct {
	rules []rule
}

// Decision is how a request is recorded.
type Decision struct {
	Level Level
	// OmitManagedFields leaves metadata.managedFields out of the objects.
	OmitManagedFields bool

	omit uint8 // a bit for each stage
}

// Omits reports whether a stage has no event.
func (d Decision) Omits(s Stage) bool { return d.omit&(1<<s) != 0 }

// rule is a rule of the policy. An empty set matches everything, but see paths.
type rule struct {
	decision                        Decision
	users, groups, verbs, namespace set
	resources                       []resources
	// resourcesOnly: the rule has namespaces or resources, and matches no other path.
	resourcesOnly bool
	paths         []string // of requests that are for no resource; empty: no condition
}

// resources are the resources of one group.
type resources struct {
	group string // "*": any
	any   bool   // all resources
	exact set    // RESOURCE, RESOURCE/SUBRESOURCE
	all   set    // RESOURCE of RESOURCE/*
	sub   set    // SUBRESOURCE of */SUBRESOURCE
	names set    // empty: any
}

// setScan is the length up to which a scan is as fast as a map.
const setScan = 8

// set is a set of strings.
type set struct {
	few  []string
	many map[string]struct{}
}

func newSet(all []string) set {
	if len(all) <= setScan {
		return set{few: slices.Clone(all)}
	}
	s := set{many: make(map[string]struct{}, len(all))}
	for _, one := range all {
		s.many[one] = struct{}{}
	}
	return s
}

func (s *set) empty() bool { return len(s.few) == 0 && s.many == nil }

func (s *set) has(one string) bool {
	if s.many == nil {
		return slices.Contains(s.few, one)
	}
	_, ok := s.many[one]
	return ok
}

func (s *set) hasAny(all []string) bool {
	for _, one := range all {
		if s.has(one) {
			return true
		}
	}
	return false
}

// compile makes a policy of a valid one.
func compile(p *auditv1.Policy) *Policy {
	made := &Policy{rules: make([]rule, 0, len(p.Rules))}
	for i := range p.Rules {
		from := &p.Rules[i]
		r := rule{
			decision: Decision{
				Level:             Level(slices.Index(levelNames[:], string(from.Level))),
				OmitManagedFields: p.OmitManagedFields,
				omit:              bits(p.OmitStages) | bits(from.OmitStages),
			},
			users: newSet(from.Users), groups: newSet(from.UserGroups), verbs: newSet(from.Verbs), namespace: newSet(from.Namespaces),
			resourcesOnly: len(from.Namespaces)+len(from.Resources) > 0,
			paths:         slices.Clone(from.NonResourceURLs),
		}
		if from.OmitManagedFields != nil {
			r.decision.OmitManagedFields = *from.OmitManagedFields
		}
		for j := range from.Resources {
			r.resources = append(r.resources, compileResources(&from.Resources[j]))
		}
		made.rules = append(made.rules, r)
	}
	return made
}

func compileResources(g *auditv1.GroupResources) resources {
	made := resources{group: g.Group, names: newSet(g.ResourceNames), any: len(g.Resources) == 0}
	var exact, all, sub []string
	for _, r := range g.Resources {
		if r == "*" {
			made.any = true
			continue
		}
		exact = append(exact, r)
		if resource, ok := strings.CutSuffix(r, "/*"); ok {
			all = append(all, resource)
		}
		if s, ok := strings.CutPrefix(r, "*/"); ok {
			sub = append(sub, s)
		}
	}
	made.exact, made.all, made.sub = newSet(exact), newSet(all), newSet(sub)
	return made
}

func bits(stages []auditv1.Stage) (b uint8) {
	for _, s := range stages {
		b |= 1 << slices.Index(stageNames[:], string(s))
	}
	return b
}

// Decide returns the decision of the first rule that matches; None if there is none. A user of
// nil matches no rule that names users or groups.
func (p *Policy) Decide(a *authz.Attributes) Decision {
	for i := range p.rules {
		if r := &p.rules[i]; r.matches(a) {
			return r.decision
		}
	}
	return Decision{}
}

func (r *rule) matches(a *authz.Attributes) bool {
	switch {
	case !r.verbs.empty() && !r.verbs.has(a.Verb),
		!r.users.empty() && (a.User == nil || !r.users.has(a.User.Name)),
		!r.groups.empty() && (a.User == nil || !r.groups.hasAny(a.User.Groups)):
		return false
	case r.resourcesOnly:
		return a.IsResource && (r.namespace.empty() || r.namespace.has(a.Namespace)) && r.matchesResource(a)
	case len(r.paths) > 0:
		return !a.IsResource && slices.ContainsFunc(r.paths, func(of string) bool { return matchesPath(of, a.Path) })
	}
	return true
}

func (r *rule) matchesResource(a *authz.Attributes) bool {
	if len(r.resources) == 0 {
		return true
	}
	for i := range r.resources {
		if r.resources[i].match(a) {
			return true
		}
	}
	return false
}

func (g *resources) match(a *authz.Attributes) bool {
	if g.group != a.Group && g.group != "*" || !g.names.empty() && !g.names.has(a.Name) {
		return false
	}
	switch {
	case g.any, g.all.has(a.Resource):
		return true
	case a.Subresource == "":
		return g.exact.has(a.Resource)
	}
	return g.sub.has(a.Subresource) || g.exact.hasPair(a.Resource, a.Subresource)
}

// hasPair reports whether the set has RESOURCE/SUBRESOURCE.
func (s *set) hasPair(resource, sub string) bool {
	for _, one := range s.few {
		if len(one) == len(resource)+1+len(sub) && one[len(resource)] == '/' && strings.HasPrefix(one, resource) && strings.HasSuffix(one, sub) {
			return true
		}
	}
	if s.many == nil {
		return false
	}
	var room [128]byte // on the stack
	pair := append(append(append(room[:0], resource...), '/'), sub...)
	_, ok := s.many[string(pair)]
	return ok
}

// matchesPath reports whether a path matches the one of a rule, which may end with *.
func matchesPath(of, path string) bool {
	if of == path {
		return true
	}
	prefix := strings.TrimRight(of, "*")
	return len(prefix) < len(of) && strings.HasPrefix(path, prefix)
}
