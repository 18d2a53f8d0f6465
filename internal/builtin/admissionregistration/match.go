// Package admissionregistration has the rules of the kinds of admissionregistration.k8s.io:
// webhooks and policies. It compiles their expressions, so an object with an invalid expression is
// not stored.
package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	every          = "*"
	mostConditions = 64
)

// fill sets a nil pointer to value.
func fill[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

func defaultRule(r *admissionregistrationv1.Rule) { fill(&r.Scope, admissionregistrationv1.AllScopes) }

// defaultResources sets the defaults of the matched resources.
func defaultResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	fill(&m.MatchPolicy, admissionregistrationv1.Equivalent)
	fill(&m.NamespaceSelector, metav1.LabelSelector{})
	fill(&m.ObjectSelector, metav1.LabelSelector{})
	for i := range m.ResourceRules {
		defaultRule(&m.ResourceRules[i].Rule)
	}
	for i := range m.ExcludeResourceRules {
		defaultRule(&m.ExcludeResourceRules[i].Rule)
	}
}

// supported checks an optional enum.
func supported[T ~string](value *T, path *field.Path, words ...T) field.ErrorList {
	if value == nil || slices.Contains(words, *value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, *value, words)}
}

func validateFailurePolicy(p *admissionregistrationv1.FailurePolicyType, path *field.Path) field.ErrorList {
	return supported(p, path, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)
}

func validateMatchPolicy(p *admissionregistrationv1.MatchPolicyType, path *field.Path) field.ErrorList {
	return supported(p, path, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)
}

func validateReinvocation(p *admissionregistrationv1.ReinvocationPolicyType, path *field.Path) field.ErrorList {
	return supported(p, path, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
}

func validateSelector(s *metav1.LabelSelector, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	return metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)
}

// validateResources checks the matched resources. Nil means all that the policy matches.
func validateResources(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	errs := validateMatchPolicy(m.MatchPolicy, path.Child("matchPolicy"))
	errs = append(errs, validateSelector(m.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(m.ObjectSelector, path.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, validateNamedRule(&m.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validateNamedRule(&m.ExcludeResourceRules[i], path.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func validateNamedRule(r *admissionregistrationv1.NamedRuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	var seen check.Seen[string]
	for i, name := range r.ResourceNames {
		at := path.Child("resourceNames").Index(i)
		for _, wrong := range content.IsPathSegmentName(name) {
			errs = append(errs, field.Invalid(at, name, wrong))
		}
		if seen.Again(name) {
			errs = append(errs, field.Duplicate(at, name))
		}
	}
	return append(errs, validateRule(&r.RuleWithOperations, path)...)
}

var (
	operations = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update}
	scopes     = []admissionregistrationv1.ScopeType{admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope}
)

// onlyEvery checks that "*" is the only entry of a list.
func onlyEvery[T ~string](all []T, what string, path *field.Path) field.ErrorList {
	if len(all) > 1 && slices.Contains(all, every) {
		return field.ErrorList{field.Invalid(path, all, fmt.Sprintf("if '*' is present, must not specify other %s", what))}
	}
	return nil
}

// validateRule validates operations, groups, versions and resources.
func validateRule(r *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("operations")
	if len(r.Operations) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	errs = append(errs, onlyEvery(r.Operations, "operations", at)...)
	for i, o := range r.Operations {
		if !slices.Contains(operations, o) {
			errs = append(errs, field.NotSupported(at.Index(i), o, operations))
		}
	}
	at = path.Child("apiGroups")
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	errs = append(errs, onlyEvery(r.APIGroups, "API groups", at)...)
	at = path.Child("apiVersions")
	if len(r.APIVersions) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	errs = append(errs, onlyEvery(r.APIVersions, "API versions", at)...)
	for i, v := range r.APIVersions {
		if v == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
		}
	}
	errs = append(errs, validateNames(r.Resources, path.Child("resources"))...)
	return append(errs, supported(r.Scope, path.Child("scope"), scopes...)...)
}

// validateNames checks the names of resources and subresources. A wildcard excludes the names that
// it covers.
func validateNames(all []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(all) == 0 {
		errs = append(errs, field.Required(path, ""))
	}
	var seen check.Seen[string]
	bare := false // whether the last resource without a subresource is not "*"
	for i, name := range all {
		at := path.Index(i)
		if name == "" {
			errs = append(errs, field.Required(at, ""))
			continue
		}
		of, sub, ok := strings.Cut(name, "/")
		if !ok {
			bare = name != every
			seen.Again(name)
			continue
		}
		if seen.Has(of + "/*") {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("if '%s/*' is present, must not specify %s", of, name)))
		}
		if seen.Has("*/" + sub) {
			errs = append(errs, field.Invalid(at, name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name)))
		}
		seen.Again(name)
	}
	if len(all) > 1 && slices.Contains(all, "*/*") {
		errs = append(errs, field.Invalid(path, all, "if '*/*' is present, must not specify other resources"))
	}
	if bare && slices.Contains(all, every) {
		errs = append(errs, field.Invalid(path, all, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// blank reports whether an expression has only white space.
func blank(expression string) bool { return strings.TrimSpace(expression) == "" }

// validateConditions checks match conditions.
func validateConditions(all []admissionregistrationv1.MatchCondition, e *expressions, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(all) > mostConditions {
		errs = append(errs, field.TooMany(path, len(all), mostConditions))
	}
	var names check.Seen[string]
	for i, c := range all {
		at := path.Index(i)
		if blank(c.Expression) {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			errs = append(errs, e.condition(c.Expression, at.Child("expression"))...)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, validateQualified(c.Name, at.Child("name"))...)
		if names.Again(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
	}
	return errs
}

// validateQualified checks that a name is a qualified name, such as a label key.
func validateQualified(name string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, wrong := range validation.IsQualifiedName(name) {
		errs = append(errs, field.Invalid(path, name, wrong))
	}
	return errs
}
