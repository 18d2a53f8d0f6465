// Package match decides which requests a webhook, a policy or the binding of a policy applies to: by
// rules, selectors, and conditions in CEL.
package match

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// Source selects the requests that a webhook, a policy or a binding applies to, as its object does.
type Source struct {
	// Rules select requests; a request must match one of them. Without rules, every request
	// matches, as for a policy or a binding. A webhook without rules is never called: the caller
	// must check that.
	Rules []admissionregistrationv1.NamedRuleWithOperations
	// ExcludeRules select requests that do not match, whatever Rules are.
	ExcludeRules []admissionregistrationv1.NamedRuleWithOperations
	// MatchPolicy: Equivalent rules match the requests of other versions, too; nil: Exact.
	MatchPolicy *admissionregistrationv1.MatchPolicyType
	// NamespaceSelector and ObjectSelector select by labels; nil: every namespace, every object.
	NamespaceSelector, ObjectSelector *metav1.LabelSelector
}

// Criteria are a compiled Source. They are safe for concurrent use.
type Criteria struct {
	rules, excludes     []rule
	equivalent          bool
	namespaces, objects labels.Selector
	invalid             error // of a selector
}

// New compiles a source. The error is that of a selector which is not valid. The Criteria are never
// nil: with such an error, MayMatch works, and Match returns the error for requests that match the
// rules. So a broken object never lets a request pass.
func New(s Source) (*Criteria, error) {
	c := &Criteria{rules: compile(s.Rules), excludes: compile(s.ExcludeRules)}
	c.equivalent = s.MatchPolicy != nil && *s.MatchPolicy == admissionregistrationv1.Equivalent
	var err error
	if c.namespaces, err = selector(s.NamespaceSelector); err == nil {
		c.objects, err = selector(s.ObjectSelector)
	}
	if err != nil {
		c.invalid = apierrors.NewInternalError(err)
	}
	return c, err
}

// selector returns the compiled selector, nil if it selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return nil, nil
	}
	compiled, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || compiled.Empty() {
		return nil, err
	}
	return compiled, nil
}

// exempt are the resources that webhooks cannot match. Otherwise a broken webhook could not be
// removed. Policies have a list of their own: they can match webhook configurations.
var exempt = map[string]bool{
	"validatingwebhookconfigurations.admissionregistration.k8s.io":   true,
	"mutatingwebhookconfigurations.admissionregistration.k8s.io":     true,
	"validatingadmissionpolicies.admissionregistration.k8s.io":       true,
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": true,
	"mutatingadmissionpolicies.admissionregistration.k8s.io":         true,
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io":   true,
}

// Exempt reports whether a target is a webhook configuration, a policy or a binding. Webhooks never see
// them.
func Exempt(t registry.Target) bool { return exempt[t.Type.Collection] }

// reviews are the resources of reviews, by their group. They are never stored.
var reviews = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
}

// IsReview reports whether a target is a review of a token or of access, which clusters need to work: neither
// policies nor webhooks see it.
func IsReview(t registry.Target) bool { return reviews[t.Type.GroupResource()] }

// MayMatch reports whether requests with an operation on a target may match. It is cheap: it uses
// neither objects nor the state.
func (c *Criteria) MayMatch(t registry.Target, o registry.Operation) bool {
	if len(c.rules) == 0 {
		return true
	}
	for i := range c.rules {
		if c.rules[i].mayMatch(t, o, c.equivalent) {
			return true
		}
	}
	return false
}

// Match reports whether a request matches, and returns its form that a rule names: the requested one
// if a rule names it, or else an equivalent one.
func (c *Criteria) Match(ctx context.Context, a *registry.Attributes) (registry.Form, bool, error) {
	form, ok := c.form(a)
	if !ok {
		return form, false, nil
	}
	if c.invalid != nil {
		return form, false, c.invalid
	}
	if ok, err := c.matchNamespace(a); !ok || err != nil {
		return form, false, err
	}
	ok, err := c.matchObject(ctx, a)
	return form, ok, err
}

// form returns the form of the request that matches the rules.
func (c *Criteria) form(a *registry.Attributes) (registry.Form, bool) {
	forms := a.Forms()
	if _, excluded := firstMatch(c.excludes, forms, c.equivalent, a); excluded {
		return registry.Form{}, false
	}
	if len(c.rules) == 0 {
		return forms[0], true
	}
	return firstMatch(c.rules, forms, c.equivalent, a)
}

// firstMatch returns the requested form if any rule matches it. Otherwise, it returns the first
// equivalent one that the first matching rule names.
func firstMatch(rules []rule, forms []registry.Form, equivalent bool, a *registry.Attributes) (registry.Form, bool) {
	for i := range rules {
		if rules[i].matches(a, forms[0].Resource) {
			return forms[0], true
		}
	}
	if !equivalent {
		return registry.Form{}, false
	}
	for i := range rules {
		for _, f := range forms[1:] {
			if rules[i].matches(a, f.Resource) {
				return f, true
			}
		}
	}
	return registry.Form{}, false
}

// isNamespaces reports whether the target is a Namespace or a subresource of one.
func isNamespaces(t registry.Target) bool { return t.Type.Collection == "namespaces" }

// matchNamespace matches the labels of the namespace. A Namespace that is
// written is matched by its own new labels. Other objects without a namespace always match.
func (c *Criteria) matchNamespace(a *registry.Attributes) (bool, error) {
	name := a.Namespace
	switch {
	case c.namespaces == nil:
		return true, nil
	case isNamespaces(a.Target) && a.Subresource == "" && (a.Operation == admissionv1.Create || a.Operation == admissionv1.Update):
		meta, ok := a.Object.(metav1.Object)
		if !ok {
			return false, apierrors.NewInternalError(fmt.Errorf("a Namespace has no metadata, but is %T", a.Object))
		}
		return c.namespaces.Matches(labels.Set(meta.GetLabels())), nil
	case isNamespaces(a.Target):
		name = a.Name
	case name == "":
		return true, nil
	}
	o := a.State.Get("namespaces", name)
	if o == nil {
		return false, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	of, err := labelsOf(o)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return c.namespaces.Matches(labels.Set(of)), nil
}

// matchObject matches the labels of the object or of the old one. A body without metadata, such as
// the options of an exec, does not match.
func (c *Criteria) matchObject(ctx context.Context, a *registry.Attributes) (bool, error) {
	if c.objects == nil {
		return true, nil
	}
	object, old, err := bodies(ctx, a)
	if err != nil {
		return false, err
	}
	return c.selects(object) || c.selects(old), nil
}

func (c *Criteria) selects(o runtime.Object) bool {
	meta, ok := o.(metav1.Object)
	return ok && c.objects.Matches(labels.Set(meta.GetLabels()))
}

// bodies returns the objects with the labels that selectors see: the bodies of a subresource that has
// its own, such as a Scale.
func bodies(ctx context.Context, a *registry.Attributes) (object, old runtime.Object, err error) {
	if a.Exchanged() == a.Type {
		return a.Object, a.Old, nil
	}
	v, err := a.In(ctx, a.Forms()[0])
	if err != nil {
		return nil, nil, err
	}
	return v.Object, v.Old, nil
}

// rule is a compiled rule.
type rule struct {
	operations       []admissionregistrationv1.OperationType
	groups, versions []string
	resources        []resourcePattern
	names            []string
	scope            admissionregistrationv1.ScopeType
}

// resourcePattern is a resource of a rule; "*": all. An empty subresource is the object itself.
type resourcePattern struct{ resource, subresource string }

func compile(rules []admissionregistrationv1.NamedRuleWithOperations) []rule {
	var all []rule
	for _, r := range rules {
		c := rule{names: r.ResourceNames, scope: admissionregistrationv1.AllScopes, operations: r.Operations, groups: r.APIGroups, versions: r.APIVersions}
		if r.Scope != nil {
			c.scope = *r.Scope
		}
		for _, text := range r.Resources {
			name, sub, _ := strings.Cut(text, "/")
			c.resources = append(c.resources, resourcePattern{name, sub})
		}
		all = append(all, c)
	}
	return all
}

// mayMatch is matches without the version, the name, and the group of equivalent forms.
func (r *rule) mayMatch(t registry.Target, o registry.Operation, equivalent bool) bool {
	return r.matchesTarget(t, o) && r.matchesResource(t.Type.Resource, t.Subresource) &&
		(equivalent || includes(r.groups, t.Type.Group) && includes(r.versions, t.Type.Version))
}

func (r *rule) matches(a *registry.Attributes, in schema.GroupVersionResource) bool {
	return r.matchesTarget(a.Target, a.Operation) && includes(r.groups, in.Group) && includes(r.versions, in.Version) &&
		r.matchesResource(in.Resource, a.Subresource) && (len(r.names) == 0 || slices.Contains(r.names, a.ShownName()))
}

// matchesTarget matches the scope and the operation. A Namespace has the scope of the cluster.
func (r *rule) matchesTarget(t registry.Target, o registry.Operation) bool {
	switch r.scope {
	case admissionregistrationv1.AllScopes:
	case admissionregistrationv1.NamespacedScope:
		if !t.Type.Namespaced {
			return false
		}
	case admissionregistrationv1.ClusterScope:
		if t.Type.Namespaced {
			return false
		}
	default:
		return false
	}
	return includes(r.operations, admissionregistrationv1.OperationType(o))
}

func (r *rule) matchesResource(name, subresource string) bool {
	for _, p := range r.resources {
		if (p.resource == "*" || p.resource == name) && (p.subresource == "*" || p.subresource == subresource) {
			return true
		}
	}
	return false
}

// includes reports whether a list of a rule has the value or the wildcard.
func includes[S ~string](list []S, value S) bool {
	for _, item := range list {
		if item == "*" || item == value {
			return true
		}
	}
	return false
}
