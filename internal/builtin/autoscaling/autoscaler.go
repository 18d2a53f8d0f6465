// Package autoscaling has the rules of HorizontalPodAutoscalers, in the stored version.
package autoscaling

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// The longest durations of a behavior, in seconds.
const (
	maxPeriod        = 1800
	maxStabilization = 3600
)

// Rules are the rules of autoscalers with the feature gates that they depend on.
type Rules struct {
	// ScaleToZero: minReplicas may be zero.
	ScaleToZero bool
}

// Validate checks the target, the bounds and the metrics of an autoscaler.
func (r Rules) Validate(a *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return validateSpec(a, rules{lowest: r.lowest(nil)})
}

// lowest returns the smallest minReplicas. An autoscaler that may scale to zero keeps that.
func (r Rules) lowest(old *autoscalingv2.HorizontalPodAutoscaler) int32 {
	if r.ScaleToZero || old != nil && old.Spec.MinReplicas != nil && *old.Spec.MinReplicas == 0 {
		return 0
	}
	return 1
}

// ValidateUpdate checks the new object. It accepts invalid apiVersions if the old object has them.
func (r Rules) ValidateUpdate(a, old *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	return validateSpec(a, rulesOf(a, old, r.lowest(old)))
}

func rulesOf(a, old *autoscalingv2.HorizontalPodAutoscaler, lowest int32) rules {
	r := rules{lowest: lowest}
	now, was := a.Spec.ScaleTargetRef, old.Spec.ScaleTargetRef
	r.anyTarget = now.APIVersion == was.APIVersion && now.Kind == was.Kind
	for i := range old.Spec.Metrics {
		if o := old.Spec.Metrics[i].Object; o != nil && versionFault(o.DescribedObject.APIVersion, true) != nil {
			r.anyObject = true
		}
	}
	return r
}

// ValidateAutoscalerStatus checks the generations that conditions have, and the numbers of replicas.
func ValidateAutoscalerStatus(a, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	var all check.Errors
	for i := range a.Status.Conditions {
		if g := a.Status.Conditions[i].ObservedGeneration; g != nil && *g < 0 {
			all.NonNegative(field.NewPath("status", "conditions").Index(i), "observedGeneration", *g)
		}
	}
	errs := append(all.List(), check.NotNegative(int64(a.Status.CurrentReplicas), field.NewPath("status", "currentReplicas"))...)
	return append(errs, check.NotNegative(int64(a.Status.DesiredReplicas), field.NewPath("status", "desiredReplicas"))...)
}

// rules are the parts of the validation that depend on the old object.
type rules struct {
	anyTarget, anyObject bool // any apiVersion is valid
	lowest               int32
}

func validateSpec(a *autoscalingv2.HorizontalPodAutoscaler, r rules) (errs field.ErrorList) {
	spec, path := &a.Spec, field.NewPath("spec")
	lowest := spec.MinReplicas
	if lowest != nil && *lowest < r.lowest {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), *lowest, fmt.Sprintf("must be greater than or equal to %d", r.lowest)))
	}
	switch {
	case spec.MaxReplicas == 0:
		errs = append(errs, field.Required(path.Child("maxReplicas"), "must be set and greater than 0"))
	case spec.MaxReplicas < 0:
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to 1"))
	}
	if lowest != nil && spec.MaxReplicas < *lowest {
		errs = append(errs, field.Invalid(path.Child("maxReplicas"), spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	target := version{any: r.anyTarget, core: spec.ScaleTargetRef.Kind == "ReplicationController"} // the only kind of the core group that can be scaled
	errs = append(errs, validateReference(spec.ScaleTargetRef, path.Child("scaleTargetRef"), target)...)
	beyondPods := false // whether a metric exists without any Pod
	for i := range spec.Metrics {
		m := &spec.Metrics[i]
		errs = append(errs, r.validateMetric(m, path.Child("metrics").Index(i))...)
		beyondPods = beyondPods || m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}
	if lowest != nil && *lowest == 0 && !beyondPods {
		errs = append(errs, field.Forbidden(path.Child("metrics"), "must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	if b := spec.Behavior; b != nil {
		errs = append(errs, validateRules(b.ScaleUp, path.Child("behavior", "scaleUp"))...)
		errs = append(errs, validateRules(b.ScaleDown, path.Child("behavior", "scaleDown"))...)
	}
	return errs
}

// version describes the valid apiVersions of a reference: also that of the core group, or any text.
type version struct{ core, any bool }

func validateReference(r autoscalingv2.CrossVersionObjectReference, path *field.Path, v version) field.ErrorList {
	errs := check.RequiredSegment(r.Kind, path.Child("kind"))
	errs = append(errs, check.RequiredSegment(r.Name, path.Child("name"))...)
	if v.any {
		return errs
	}
	if err := versionFault(r.APIVersion, v.core); err != nil {
		errs = append(errs, field.Invalid(path.Child("apiVersion"), r.APIVersion, err.Error()))
	}
	return errs
}

// versionFault returns the error of an apiVersion, or nil.
func versionFault(apiVersion string, coreToo bool) error {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err == nil && !coreToo && gv.Group == "" {
		err = errors.New("apiVersion must specify API group")
	}
	return err
}

func validateRules(r *autoscalingv2.HPAScalingRules, path *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	if s := r.StabilizationWindowSeconds; s != nil && *s < 0 {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), s, "must be greater than or equal to zero"))
	} else if s != nil && *s > maxStabilization {
		errs = append(errs, field.Invalid(path.Child("stabilizationWindowSeconds"), s, fmt.Sprintf("must be less than or equal to %d", maxStabilization)))
	}
	if r.SelectPolicy != nil {
		errs = append(errs, check.OneOf(*r.SelectPolicy, []autoscalingv2.ScalingPolicySelect{autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect}, path.Child("selectPolicy"))...)
	}
	if len(r.Policies) == 0 {
		errs = append(errs, field.Required(path.Child("policies"), "must specify at least one Policy"))
	}
	for i, p := range r.Policies {
		at := path.Child("policies").Index(i)
		errs = append(errs, check.OneOf(p.Type, []autoscalingv2.HPAScalingPolicyType{autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy}, at.Child("type"))...)
		if p.Value <= 0 {
			errs = append(errs, field.Invalid(at.Child("value"), p.Value, "must be greater than zero"))
		}
		if p.PeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, "must be greater than zero"))
		}
		if p.PeriodSeconds > maxPeriod {
			errs = append(errs, field.Invalid(at.Child("periodSeconds"), p.PeriodSeconds, fmt.Sprintf("must be less than or equal to %d", maxPeriod)))
		}
	}
	if t := r.Tolerance; t != nil && t.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("tolerance"), t.String(), validation.IsNegativeErrorMsg))
	}
	return errs
}
