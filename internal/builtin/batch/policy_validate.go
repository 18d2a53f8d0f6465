package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// failurePolicy checks the rules of the Pod failure policy.
func failurePolicy(errs *check.Errors, s *batchv1.JobSpec, at *field.Path) {
	rules := s.PodFailurePolicy.Rules
	if len(rules) > maxRules {
		errs.Add(field.TooMany(at, len(rules), maxRules))
	}
	for i := range rules {
		rule, at := &rules[i], at.Index(i)
		switch {
		case rule.Action == "":
			errs.Required(at, "action", fmt.Sprintf("valid values: %q", failureActions))
		case rule.Action == batchv1.PodFailurePolicyActionFailIndex:
			if s.BackoffLimitPerIndex == nil {
				errs.Invalid(at, "action", rule.Action, "requires the backoffLimitPerIndex to be set")
			}
		default:
			check.Enum(errs, at, "action", rule.Action, failureActions)
		}
		if rule.OnExitCodes != nil {
			exitCodes(errs, s, rule.OnExitCodes, at.Child("onExitCodes"))
		}
		conditions(errs, rule.OnPodConditions, at.Child("onPodConditions"))
		switch codes, conditions := rule.OnExitCodes != nil, len(rule.OnPodConditions) > 0; {
		case codes && conditions:
			errs.Invalid(at, "", field.OmitValueType{}, "specifying both OnExitCodes and OnPodConditions is not supported")
		case !codes && !conditions:
			errs.Invalid(at, "", field.OmitValueType{}, "specifying one of OnExitCodes and OnPodConditions is required")
		}
	}
}

func conditions(errs *check.Errors, all []batchv1.PodFailurePolicyOnPodConditionsPattern, at *field.Path) {
	if len(all) > maxRules {
		errs.Add(field.TooMany(at, len(all), maxRules))
	}
	for i := range all {
		at := at.Index(i)
		errs.Each(at, "type", string(all[i].Type), validation.IsQualifiedName(string(all[i].Type)))
		check.Enum(errs, at, "status", all[i].Status, conditionStatuses)
	}
}

func exitCodes(errs *check.Errors, s *batchv1.JobSpec, q *batchv1.PodFailurePolicyOnExitCodesRequirement, at *field.Path) {
	if q.Operator == "" {
		errs.Required(at, "operator", fmt.Sprintf("valid values: %q", exitCodeOperators))
	} else {
		check.Enum(errs, at, "operator", q.Operator, exitCodeOperators)
	}
	if name := q.ContainerName; name != nil && !hasContainer(s, *name) {
		errs.Invalid(at, "containerName", *name, "must be one of the container or initContainer names in the pod template")
	}
	switch n := len(q.Values); {
	case n == 0:
		errs.Invalid(at, "values", q.Values, "at least one value is required")
	case n > maxExitCodes:
		errs.Add(field.TooMany(at.Child("values"), n, maxExitCodes))
	}
	seen := make(map[int32]bool, len(q.Values))
	for i, code := range q.Values {
		at := at.Child("values").Index(i)
		if q.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn && code == 0 {
			errs.Invalid(at, "", code, "must not be 0 for the In operator")
		}
		if seen[code] {
			errs.Duplicate(at, "", code)
		}
		seen[code] = true
	}
	if !slices.IsSorted(q.Values) {
		errs.Invalid(at, "values", q.Values, "must be ordered")
	}
}

func hasContainer(s *batchv1.JobSpec, name string) bool {
	for i := range s.Template.Spec.Containers {
		if s.Template.Spec.Containers[i].Name == name {
			return true
		}
	}
	for i := range s.Template.Spec.InitContainers {
		if s.Template.Spec.InitContainers[i].Name == name {
			return true
		}
	}
	return false
}

// successPolicy checks the rules of the success policy.
func successPolicy(errs *check.Errors, s *batchv1.JobSpec, at *field.Path) {
	rules := s.SuccessPolicy.Rules
	if len(rules) == 0 {
		errs.Required(at, "", "at least one rules must be specified when the successPolicy is specified")
	}
	if len(rules) > maxRules {
		errs.Add(field.TooMany(at, len(rules), maxRules))
	}
	var completions int32
	if s.Completions != nil { // a missing value is an error of its own
		completions = *s.Completions
	}
	for i := range rules {
		rule, at := &rules[i], at.Index(i)
		if rule.SucceededCount == nil && rule.SucceededIndexes == nil {
			errs.Required(at, "", "at least one of succeededCount or succeededIndexes must be specified")
		}
		var total int32
		if all := rule.SucceededIndexes; all != nil {
			if len(*all) > maxSucceededIndexes {
				errs.Add(field.TooLong(at.Child("succeededIndexes"), "", maxSucceededIndexes))
			}
			var err error
			if total, err = countIndexes(*all, completions); err != nil {
				errs.Invalid(at, "succeededIndexes", *all, fmt.Sprintf("error parsing succeededIndexes: %s", err))
			}
		}
		n := rule.SucceededCount
		if n == nil {
			continue
		}
		errs.NonNegative(at, "succeededCount", int64(*n))
		if *n > completions {
			errs.Invalid(at, "succeededCount", *n, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions))
		}
		if rule.SucceededIndexes != nil && *n > total {
			errs.Invalid(at, "succeededCount", *n, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", total))
		}
	}
}
