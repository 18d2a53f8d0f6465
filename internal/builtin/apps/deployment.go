// Package apps is what the kinds that keep Pods running default, validate and warn
// about. Paths, reasons, words and their order are those of kube-apiserver v1.36.
package apps

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultDeployment fills in what a client leaves out.
func DefaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	core.SetMissing(&s.Replicas, 1)
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if s.Strategy.RollingUpdate == nil {
			s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		core.SetMissing(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		core.SetMissing(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	core.SetMissing(&s.RevisionHistoryLimit, 10)
	core.SetMissing(&s.ProgressDeadlineSeconds, 600)
	core.DefaultTemplate(&s.Template)
}

// ValidateDeployment checks a new one.
func ValidateDeployment(d *appsv1.Deployment) field.ErrorList {
	var f core.Faults
	s, at := &d.Spec, field.NewPath("spec")
	f.NonNegative(at, "replicas", int64(*s.Replicas))
	replicated(&f, s.Selector, &s.Template, at)
	validateDeploymentStrategy(&f, &s.Strategy, at.Child("strategy"))
	f.NonNegative(at, "minReadySeconds", int64(s.MinReadySeconds))
	core.NonNegativeIfSet(&f, at, "revisionHistoryLimit", s.RevisionHistoryLimit)
	core.NonNegativeIfSet(&f, at, "progressDeadlineSeconds", s.ProgressDeadlineSeconds)
	if *s.ProgressDeadlineSeconds <= s.MinReadySeconds {
		f.Invalid(at, "progressDeadlineSeconds", s.ProgressDeadlineSeconds, "must be greater than minReadySeconds")
	}
	return f.List()
}

// ValidateDeploymentUpdate checks an update.
func ValidateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	var f core.Faults
	f.Add(ValidateDeployment(d)...)
	immutableSelector(&f, d.Spec.Selector, old.Spec.Selector)
	return f.List()
}

func validateDeploymentStrategy(f *core.Faults, s *appsv1.DeploymentStrategy, at *field.Path) {
	switch u := s.RollingUpdate; s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if u != nil {
			f.Forbidden(at, "rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		at = at.Child("rollingUpdate")
		amount(f, at, "maxUnavailable", u.MaxUnavailable)
		amount(f, at, "maxSurge", u.MaxSurge)
		if isZero(u.MaxUnavailable) && isZero(u.MaxSurge) {
			f.Invalid(at, "maxUnavailable", *u.MaxUnavailable, "may not be 0 when `maxSurge` is 0")
		}
		notAll(f, at, "maxUnavailable", u.MaxUnavailable)
	default:
		shown := *s // of which the wire shows numbers that are not there as zero
		if u != nil {
			zero := intstr.FromInt32(0)
			shown.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: cmp.Or(u.MaxUnavailable, &zero), MaxSurge: cmp.Or(u.MaxSurge, &zero)}
		}
		f.Add(field.NotSupported(at, check.Bare(shown), []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
}

// ValidateDeploymentStatus checks an update of the status.
func ValidateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	var f core.Faults
	s, at := &d.Status, field.NewPath("status")
	f.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	f.NonNegative(at, "replicas", int64(s.Replicas))
	f.NonNegative(at, "updatedReplicas", int64(s.UpdatedReplicas))
	f.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	f.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	f.NonNegative(at, "unavailableReplicas", int64(s.UnavailableReplicas))
	core.NonNegativeIfSet(&f, at, "terminatingReplicas", s.TerminatingReplicas)
	core.NonNegativeIfSet(&f, at, "collisionCount", s.CollisionCount)
	f.AtMostReplicas(at, "updatedReplicas", s.UpdatedReplicas, s.Replicas)
	f.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	f.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		f.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	notDecremented(&f, s.CollisionCount, old.Status.CollisionCount)
	return f.List()
}
