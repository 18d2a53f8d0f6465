// Package policy has the rules of PodDisruptionBudgets.
package policy

import (
	"strconv"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// ValidateBudget checks minAvailable, maxUnavailable, the selector and the eviction policy.
func ValidateBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	return ValidateBudgetUpdate(b, &policyv1.PodDisruptionBudget{})
}

// ValidateBudgetUpdate checks the new object. All fields are mutable.
func ValidateBudgetUpdate(b, old *policyv1.PodDisruptionBudget) (errs field.ErrorList) {
	spec, path := &b.Spec, field.NewPath("spec")
	if spec.MinAvailable != nil && spec.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(path, check.Bare(*spec), "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, amount(spec.MinAvailable, path.Child("minAvailable"))...)
	errs = append(errs, amount(spec.MaxUnavailable, path.Child("maxUnavailable"))...)
	errs = append(errs, check.Selector(spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	if p := spec.UnhealthyPodEvictionPolicy; p != nil {
		errs = append(errs, check.OneOf(*p, []policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}, path.Child("unhealthyPodEvictionPolicy"))...)
	}
	return errs
}

// ValidateBudgetStatus checks conditions and counts.
func ValidateBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	path, s := field.NewPath("status"), &b.Status
	errs := check.Conditions(s.Conditions, path.Child("conditions"))
	errs = append(errs, check.NotNegative(int64(s.DisruptionsAllowed), path.Child("disruptionsAllowed"))...)
	errs = append(errs, check.NotNegative(int64(s.CurrentHealthy), path.Child("currentHealthy"))...)
	errs = append(errs, check.NotNegative(int64(s.DesiredHealthy), path.Child("desiredHealthy"))...)
	return append(errs, check.NotNegative(int64(s.ExpectedPods), path.Child("expectedPods"))...)
}

// amount checks a number, or a percentage of at most 100.
func amount(a *intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	if a == nil {
		return nil
	}
	if a.Type == intstr.Int {
		return check.NotNegative(int64(a.IntVal), path)
	}
	for _, fault := range validation.IsValidPercent(a.StrVal) {
		errs = append(errs, field.Invalid(path, *a, fault))
	}
	if len(errs) > 0 {
		return errs
	}
	if n, err := strconv.Atoi(strings.TrimSuffix(a.StrVal, "%")); err != nil || n > 100 {
		errs = append(errs, field.Invalid(path, *a, "must not be greater than 100%"))
	}
	return errs
}
