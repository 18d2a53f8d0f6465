package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultResourceQuota rounds quantities up.
func DefaultResourceQuota(q *corev1.ResourceQuota) {
	check.RoundUp(q.Spec.Hard)
	check.RoundUp(q.Status.Hard)
	check.RoundUp(q.Status.Used)
}

// ValidateResourceQuota checks the resources and the scopes.
func ValidateResourceQuota(q *corev1.ResourceQuota) field.ErrorList {
	errs := validateHard(q.Spec.Hard, field.NewPath("spec", "hard"))
	errs = append(errs, validateScopes(q)...)
	return append(errs, validateScopeSelector(q)...)
}

// ResourceQuotaWarnings warns about a new quota that permits larger requests than limits.
func ResourceQuotaWarnings(q, old *corev1.ResourceQuota) (all []string) {
	if old != nil {
		return nil
	}
	for _, r := range []struct {
		limit    corev1.ResourceName
		requests []corev1.ResourceName // the first one in the quota counts
	}{
		{corev1.ResourceLimitsCPU, []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceCPU}},
		{corev1.ResourceLimitsMemory, []corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceMemory}},
		{corev1.ResourceLimitsEphemeralStorage, []corev1.ResourceName{corev1.ResourceRequestsEphemeralStorage}},
	} {
		limit, ok := q.Spec.Hard[r.limit]
		if !ok {
			continue
		}
		for _, name := range r.requests {
			if request, ok := q.Spec.Hard[name]; ok {
				if request.Cmp(limit) > 0 {
					all = append(all, fmt.Sprintf("ResourceQuota %s (%s) should be less than %s (%s)", name, request.String(), r.limit, limit.String()))
				}
				break
			}
		}
	}
	return all
}

// ValidateResourceQuotaUpdate checks the new object, and that the scopes do not change.
func ValidateResourceQuotaUpdate(q, old *corev1.ResourceQuota) field.ErrorList {
	errs := ValidateResourceQuota(q)
	if subset(q.Spec.Scopes, old.Spec.Scopes) && subset(old.Spec.Scopes, q.Spec.Scopes) {
		return errs
	}
	return append(errs, field.Invalid(field.NewPath("spec", "scopes"), q.Spec.Scopes, validation.FieldImmutableErrorMsg))
}

// ValidateResourceQuotaStatus checks the limits and the usage.
func ValidateResourceQuotaStatus(q, _ *corev1.ResourceQuota) field.ErrorList {
	return append(validateHard(q.Status.Hard, field.NewPath("status", "hard")), validateHard(q.Status.Used, field.NewPath("status", "used"))...)
}

func subset[T comparable](a, b []T) bool {
	in := check.SeenIn(b)
	return !slices.ContainsFunc(a, func(x T) bool { return !in.Has(x) })
}

func validateHard(list corev1.ResourceList, path *field.Path) (errs field.ErrorList) {
	for name, q := range list {
		at := path.Key(string(name))
		errs = append(errs, check.ResourceName(name, at)...)
		if !strings.Contains(string(name), "/") && !check.IsQuotaResource(name) {
			errs = append(errs, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		errs = check.Quantity(errs, name, q, at)
	}
	check.InOrder(errs)
	return errs
}

var quotaScopes = []corev1.ResourceQuotaScope{
	corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating,
	corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort,
	corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass,
	corev1.ResourceQuotaScopeCrossNamespacePodAffinity,
}

// scopeFits reports whether a scope applies to a resource.
func scopeFits(s corev1.ResourceQuotaScope, name corev1.ResourceName) bool {
	computed := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	}
	switch s {
	case corev1.ResourceQuotaScopeBestEffort:
		return name == corev1.ResourcePods
	case corev1.ResourceQuotaScopeVolumeAttributesClass:
		return name == corev1.ResourcePersistentVolumeClaims || name == corev1.ResourceRequestsStorage
	case corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating, corev1.ResourceQuotaScopeNotBestEffort,
		corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return name == corev1.ResourcePods || slices.Contains(computed, name)
	}
	return true
}

func validateScopes(q *corev1.ResourceQuota) (errs field.ErrorList) {
	scopes, path := q.Spec.Scopes, field.NewPath("spec", "scopes")
	wrong := func(detail string) { errs = append(errs, field.Invalid(path, scopes, detail)) }
	for _, s := range scopes {
		if !slices.Contains(quotaScopes, s) {
			wrong("unsupported scope")
		}
		for name := range check.Sorted(q.Spec.Hard) {
			if check.IsQuotaResource(name) && !scopeFits(s, name) {
				wrong("unsupported scope applied to resource")
			}
		}
	}
	for range conflicting(scopes) {
		wrong("conflicting scopes")
	}
	return errs
}

// conflicting counts the pairs of scopes that exclude each other.
func conflicting(scopes []corev1.ResourceQuotaScope) (pairs int) {
	for _, p := range [][2]corev1.ResourceQuotaScope{
		{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeNotBestEffort},
		{corev1.ResourceQuotaScopeTerminating, corev1.ResourceQuotaScopeNotTerminating},
	} {
		if slices.Contains(scopes, p[0]) && slices.Contains(scopes, p[1]) {
			pairs++
		}
	}
	return pairs
}

func validateScopeSelector(q *corev1.ResourceQuota) (errs field.ErrorList) {
	if q.Spec.ScopeSelector == nil {
		return nil
	}
	path := field.NewPath("spec", "scopeSelector", "matchExpressions")
	var scopes []corev1.ResourceQuotaScope
	for i := range q.Spec.ScopeSelector.MatchExpressions {
		r := &q.Spec.ScopeSelector.MatchExpressions[i]
		scopes = append(scopes, r.ScopeName)
		if !slices.Contains(quotaScopes, r.ScopeName) {
			errs = append(errs, field.Invalid(path.Child("scopeName"), r.ScopeName, "unsupported scope"))
		}
		for name := range check.Sorted(q.Spec.Hard) {
			if check.IsQuotaResource(name) && !scopeFits(r.ScopeName, name) {
				errs = append(errs, field.Invalid(path, check.Bare(q.Spec.ScopeSelector), "unsupported scope applied to resource"))
			}
		}
		errs = append(errs, validateScopeOperator(r, path)...)
	}
	for range conflicting(scopes) {
		errs = append(errs, field.Invalid(path, q.Spec.Scopes, "conflicting scopes"))
	}
	return errs
}

func validateScopeOperator(r *corev1.ScopedResourceSelectorRequirement, path *field.Path) (errs field.ErrorList) {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopePriorityClass, corev1.ResourceQuotaScopeVolumeAttributesClass:
	default:
		if slices.Contains(quotaScopes, r.ScopeName) && r.Operator != corev1.ScopeSelectorOpExists {
			errs = append(errs, field.Invalid(path.Child("operator"), r.Operator,
				"must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"))
		}
	}
	switch r.Operator {
	case corev1.ScopeSelectorOpIn, corev1.ScopeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(path.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
		}
	case corev1.ScopeSelectorOpExists, corev1.ScopeSelectorOpDoesNotExist:
		if len(r.Values) != 0 {
			errs = append(errs, field.Invalid(path.Child("values"), r.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	return errs
}
