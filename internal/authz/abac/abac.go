// Package abac authorizes by a policy file, as kube-apiserver's mode ABAC does.
//
// The file has one JSON object in each line. Blank lines and lines that begin with # are ignored:
//
//	{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "ann", "namespace": "*", "resource": "pods", "readonly": true}}
//
// An older form has no apiVersion and kind, and the members of spec at the top.
package abac

import (
	"context"
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// Policies are the rules of a file. They are immutable. They implement authz.Authorizer and
// authz.Ruler.
type Policies []Policy

// Policy is a rule: matching users may make matching requests. "*" matches all namespaces,
// resources, API groups or paths. An empty string matches the empty string alone.
type Policy struct {
	// User and Group select the users. If both are set, both have to match. If both are empty,
	// the rule is for no user.
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
	// Readonly limits the rule to get, list and watch.
	Readonly bool `json:"readonly,omitempty"`
	// APIGroup, Resource and Namespace select resources.
	APIGroup  string `json:"apiGroup,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	// NonResourcePath selects paths that are not resources. One that ends with * is a prefix.
	NonResourcePath string `json:"nonResourcePath,omitempty"`
}

// Authorize implements authz.Authorizer.
func (all Policies) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	for i := range all {
		if all[i].allows(a) {
			return authz.Allow, "", nil
		}
	}
	return authz.NoOpinion, "No policy matched.", nil
}

// Rules implements authz.Ruler.
func (all Policies) Rules(_ context.Context, u *authn.User, namespace string) authz.Rules {
	var rules authz.Rules
	for i := range all {
		p := &all[i]
		if !p.isFor(u) || p.Namespace != "*" && p.Namespace != namespace {
			continue
		}
		verbs := []string{"*"}
		if p.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if p.Resource != "" {
			rules.Resources = append(rules.Resources, authz.ResourceRule{Verbs: verbs, Groups: []string{p.APIGroup}, Resources: []string{p.Resource}})
		}
		if p.NonResourcePath != "" {
			rules.NonResources = append(rules.NonResources, authz.NonResourceRule{Verbs: verbs, Paths: []string{p.NonResourcePath}})
		}
	}
	return rules
}

func (p *Policy) allows(a *authz.Attributes) bool {
	readonly := a.Verb == "get" || a.Verb == "list" || a.Verb == "watch"
	switch {
	case !p.isFor(a.User), p.Readonly && !readonly:
		return false
	case a.IsResource:
		return either(p.Namespace, a.Namespace) && either(p.Resource, a.Resource) && either(p.APIGroup, a.Group)
	}
	prefix, open := strings.CutSuffix(p.NonResourcePath, "*")
	return p.NonResourcePath == a.Path || open && strings.HasPrefix(a.Path, strings.TrimRight(prefix, "*"))
}

// isFor reports whether the rule is for a user.
func (p *Policy) isFor(u *authn.User) bool {
	switch {
	case p.User == "" && p.Group == "":
		return false
	case p.User != "" && p.User != "*" && p.User != u.Name:
		return false
	}
	return p.Group == "" || p.Group == "*" || slices.Contains(u.Groups, p.Group)
}

func either(rule, value string) bool { return rule == "*" || rule == value }
