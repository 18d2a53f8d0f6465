package rbac

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// permission is a rule of one verb on one resource, or on one path.
type permission struct {
	verb, group, resource string
	// name restricts it if named is true.
	name  string
	named bool
	// path is set if isPath is true; then there is no resource.
	path   string
	isPath bool
}

const (
	// maxSteps bounds the comparisons of one check: they take about a tenth of a second.
	maxSteps = 10_000_000
	// maxMissing bounds the permissions that a message lists.
	maxMissing = 5000
)

// errTooMany refuses rules that multiply to more permissions than can be compared.
var errTooMany = errors.New("the rules combine too many API groups, resources, verbs and names to compare them with the permissions of the user: split the role, or get the permission to escalate or bind it")

// errEnough ends a comparison that has found maxMissing permissions.
var errEnough = errors.New("enough")

// missingFrom returns the permissions of the wanted rules that no rule of a user covers, at most
// maxMissing of them.
//
// A permission is covered by a single rule, which has its group, its resource, its verb and its
// name. So the comparison takes them in this order, and each one narrows the rules that are left.
// It is done with a resource if one of the rules that are left has all verbs and names, and with a
// wanted rule if one rule covers all of it.
func missingFrom(own []*role, wanted []policyRule) ([]permission, error) {
	c := comparison{}
	for _, r := range own {
		for _, o := range r.owned() {
			c.own = append(c.own, candidate{owned: o})
		}
	}
	for i := range wanted {
		err := c.resources(&wanted[i])
		if err == nil {
			err = c.paths(&wanted[i])
		}
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return c.missing, nil
}

// owned is a rule that a user has.
type owned struct {
	verbs, groups, resources, names set
	paths                           []path
}

// candidate is a rule that may cover permissions of the wanted rule.
type candidate struct {
	*owned
	// whole: it has all verbs and names of the wanted rule.
	whole bool
}

// covers reports whether a rule is for a resource of another rule, which may have a subresource.
func (o *owned) covers(resource string) bool {
	if o.resources.has(resource) {
		return true
	}
	_, subresource, ok := strings.Cut(resource, "/")
	return ok && o.resources.has("*/"+subresource)
}

// comparison is the state of missingFrom.
type comparison struct {
	own     []candidate
	missing []permission
	steps   int
}

// step counts steps, and returns an error if they are too many.
func (c *comparison) step(n int) error {
	if c.steps += n; c.steps >= maxSteps {
		return errTooMany
	}
	return nil
}

// miss adds a permission that is missing.
func (c *comparison) miss(p permission) error {
	if c.missing = append(c.missing, p); len(c.missing) >= maxMissing {
		return errEnough
	}
	return nil
}

// narrow returns the rules that has accepts.
func (c *comparison) narrow(rules []candidate, has func(o candidate) bool) (left []candidate, err error) {
	for _, o := range rules {
		if has(o) {
			left = append(left, o)
		}
	}
	return left, c.step(len(rules) + 1)
}

// resources compares the permissions of a rule on resources.
func (c *comparison) resources(w *policyRule) error {
	if len(w.APIGroups) == 0 || len(w.Resources) == 0 {
		return nil
	}
	for i := range c.own {
		o := &c.own[i]
		names := o.names.any || len(w.ResourceNames) > 0 && o.names.hasAll(w.ResourceNames)
		o.whole = names && o.verbs.hasAll(w.Verbs)
		if o.whole && o.groups.hasAll(w.APIGroups) && !slices.ContainsFunc(w.Resources, func(r string) bool { return !o.covers(r) }) {
			return nil
		}
		if err := c.step(len(w.ResourceNames) + len(w.Verbs) + len(w.APIGroups) + len(w.Resources)); err != nil {
			return err
		}
	}
	for _, group := range w.APIGroups {
		ofGroup, err := c.narrow(c.own, func(o candidate) bool { return o.groups.has(group) })
		if err != nil {
			return err
		}
		for _, resource := range w.Resources {
			left, err := c.narrow(ofGroup, func(o candidate) bool { return o.covers(resource) })
			if err != nil {
				return err
			}
			if slices.ContainsFunc(left, func(o candidate) bool { return o.whole }) {
				continue
			}
			if err := c.verbs(left, w, permission{group: group, resource: resource}); err != nil {
				return err
			}
		}
	}
	return nil
}

// verbs compares the permissions of a rule on one resource.
func (c *comparison) verbs(rules []candidate, w *policyRule, p permission) error {
	for _, p.verb = range w.Verbs {
		left, err := c.narrow(rules, func(o candidate) bool { return o.verbs.has(p.verb) })
		if err != nil {
			return err
		}
		all := slices.ContainsFunc(left, func(o candidate) bool { return o.names.any })
		switch {
		case all:
		case len(w.ResourceNames) > 0:
			err = c.names(left, w, p)
		default:
			err = c.miss(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// names compares the permissions of a rule on the names of one resource.
func (c *comparison) names(rules []candidate, w *policyRule, p permission) error {
	p.named = true
	for _, p.name = range w.ResourceNames {
		if err := c.step(len(rules) + 1); err != nil {
			return err
		}
		if slices.ContainsFunc(rules, func(o candidate) bool { return o.names.has(p.name) }) {
			continue
		}
		if err := c.miss(p); err != nil {
			return err
		}
	}
	return nil
}

// paths compares the permissions of a rule on paths.
func (c *comparison) paths(w *policyRule) error {
	for _, url := range w.NonResourceURLs {
		compared := 0
		left, err := c.narrow(c.own, func(o candidate) bool {
			compared += len(o.paths)
			return o.names.any && slices.ContainsFunc(o.paths, func(p path) bool { return p.matches(url) })
		})
		if err == nil {
			err = c.step(compared)
		}
		if err != nil {
			return err
		}
		for _, verb := range w.Verbs {
			err := c.step(len(left) + 1)
			if err == nil && !slices.ContainsFunc(left, func(o candidate) bool { return o.verbs.has(verb) }) {
				err = c.miss(permission{isPath: true, path: url, verb: verb})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// describe returns the texts of permissions, sorted. The verbs on one resource are one text.
func describe(all []permission) []string {
	verbs := map[permission][]string{}
	var texts []string
	for _, one := range all {
		if one.isPath {
			texts = append(texts, fmt.Sprintf("{NonResourceURLs:%q, Verbs:%q}", []string{one.path}, []string{one.verb}))
			continue
		}
		of := one
		of.verb = ""
		verbs[of] = append(verbs[of], one.verb)
	}
	for of, v := range verbs {
		names := ""
		if of.named {
			names = fmt.Sprintf("ResourceNames:%q, ", []string{of.name})
		}
		texts = append(texts, fmt.Sprintf("{APIGroups:%q, Resources:%q, %sVerbs:%q}", []string{of.group}, []string{of.resource}, names, v))
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
