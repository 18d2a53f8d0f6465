package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateClusterRole checks the rules, and the selectors of the aggregation rule.
func ValidateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	return validateClusterRole(r, nil)
}

// ValidateClusterRoleUpdate checks the new object. It accepts invalid label values in selectors if
// the old object has some.
func ValidateClusterRoleUpdate(r, old *rbacv1.ClusterRole) field.ErrorList {
	return validateClusterRole(r, old)
}

func validateClusterRole(r, old *rbacv1.ClusterRole) field.ErrorList {
	errs := validateRules(r.Rules, false)
	if r.AggregationRule == nil {
		return errs
	}
	path := field.NewPath("aggregationRule", "clusterRoleSelectors")
	selectors := r.AggregationRule.ClusterRoleSelectors
	if len(selectors) == 0 {
		errs = append(errs, field.Required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	options := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: old != nil && brokenValue(old.AggregationRule)}
	for i := range selectors {
		errs = append(errs, metav1validation.ValidateLabelSelector(&selectors[i], options, path.Index(i))...)
		if made, err := metav1.LabelSelectorAsSelector(&selectors[i]); err != nil {
			errs = append(errs, field.Invalid(path.Index(i), made, "invalid label selector."))
		}
	}
	return errs
}

// brokenValue reports whether a selector has an invalid label value.
func brokenValue(a *rbacv1.AggregationRule) bool {
	if a == nil {
		return false
	}
	for i := range a.ClusterRoleSelectors {
		strict := metav1validation.ValidateLabelSelector(&a.ClusterRoleSelectors[i], metav1validation.LabelSelectorValidationOptions{}, nil)
		lax := metav1validation.ValidateLabelSelector(&a.ClusterRoleSelectors[i], metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: true}, nil)
		if len(strict) > len(lax) {
			return true
		}
	}
	return false
}
