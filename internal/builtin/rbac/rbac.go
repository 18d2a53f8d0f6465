// Package rbac has the validation of roles and bindings. It checks their form; the authorizer
// prevents privilege escalation.
package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// ValidName validates the name of a role or binding, which can be any path segment, with colons for
// example.
func ValidName(name string, _ bool) []string { return content.IsPathSegmentName(name) }

// validateRules checks the rules of a role. A Role cannot have non-resource URLs.
func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs check.Errors
	for i := range rules {
		if !complete(&rules[i]) {
			validateRule(&errs, &rules[i], namespaced, field.NewPath("rules").Index(i))
		}
	}
	return errs.List()
}

// complete reports whether a rule is valid at a glance, as most are. It is a fast path.
func complete(r *rbacv1.PolicyRule) bool {
	return len(r.Verbs) > 0 && len(r.NonResourceURLs) == 0 && len(r.APIGroups) > 0 && len(r.Resources) > 0
}

func validateRule(errs *check.Errors, r *rbacv1.PolicyRule, namespaced bool, at *field.Path) {
	if len(r.Verbs) == 0 {
		errs.Required(at, "verbs", "verbs must contain at least one value")
	}
	if len(r.NonResourceURLs) == 0 {
		if len(r.APIGroups) == 0 {
			errs.Required(at, "apiGroups", "resource rules must supply at least one api group")
		}
		if len(r.Resources) == 0 {
			errs.Required(at, "resources", "resource rules must supply at least one resource")
		}
		return
	}
	if namespaced {
		errs.Invalid(at, "nonResourceURLs", r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs")
	}
	if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
		errs.Invalid(at, "nonResourceURLs", r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs")
	}
}
