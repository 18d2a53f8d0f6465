// Package rbac has the validation of roles and bindings. It checks their form; the authorizer
// prevents privilege escalation.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidName validates the name of a role or binding, which can be any path segment, with colons for
// example.
func ValidName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// validateRules checks the rules of a role. A Role cannot have non-resource URLs.
func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i := range rules {
		if complete(&rules[i]) {
			continue
		}
		errs = append(errs, validateRule(&rules[i], namespaced, field.NewPath("rules").Index(i))...)
	}
	return errs
}

// complete reports whether a rule is valid at a glance, as most are. It is a fast path.
func complete(r *rbacv1.PolicyRule) bool {
	return len(r.Verbs) > 0 && len(r.NonResourceURLs) == 0 && len(r.APIGroups) > 0 && len(r.Resources) > 0
}

func validateRule(r *rbacv1.PolicyRule, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Verbs) == 0 {
		errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
	}
	if len(r.NonResourceURLs) == 0 {
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
		return errs
	}
	paths := at.Child("nonResourceURLs")
	if namespaced {
		errs = append(errs, field.Invalid(paths, r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
	}
	if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
		errs = append(errs, field.Invalid(paths, r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}
