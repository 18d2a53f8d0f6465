// Package apps has the defaults, validation and warnings of the kinds of group apps. Paths,
// reasons, messages and their order are those of kube-apiserver v1.37.
package apps

import (
	"cmp"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DefaultDeployment sets the defaults.
func DefaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	check.SetIfNil(&s.Replicas, 1)
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		if s.Strategy.RollingUpdate == nil {
			s.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{}
		}
		check.SetIfNil(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		check.SetIfNil(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	check.SetIfNil(&s.RevisionHistoryLimit, 10)
	check.SetIfNil(&s.ProgressDeadlineSeconds, 600)
	podspec.DefaultTemplate(&s.Template)
}

// ValidateDeployment checks a new Deployment.
func ValidateDeployment(d *appsv1.Deployment) field.ErrorList {
	var errs check.Errors
	s, at := &d.Spec, field.NewPath("spec")
	errs.NonNegative(at, "replicas", int64(*s.Replicas))
	replicated(&errs, s.Selector, &s.Template, at)
	validateDeploymentStrategy(&errs, &s.Strategy, at.Child("strategy"))
	errs.NonNegative(at, "minReadySeconds", int64(s.MinReadySeconds))
	check.NonNegativeIfSet(&errs, at, "revisionHistoryLimit", s.RevisionHistoryLimit)
	check.NonNegativeIfSet(&errs, at, "progressDeadlineSeconds", s.ProgressDeadlineSeconds)
	if *s.ProgressDeadlineSeconds <= s.MinReadySeconds {
		errs.Invalid(at, "progressDeadlineSeconds", s.ProgressDeadlineSeconds, "must be greater than minReadySeconds")
	}
	return errs.List()
}

// ValidateDeploymentUpdate checks an update.
func ValidateDeploymentUpdate(d, old *appsv1.Deployment) field.ErrorList {
	var errs check.Errors
	errs.Add(ValidateDeployment(d)...)
	immutableSelector(&errs, d.Spec.Selector, old.Spec.Selector)
	return errs.List()
}

func validateDeploymentStrategy(errs *check.Errors, s *appsv1.DeploymentStrategy, at *field.Path) {
	switch u := s.RollingUpdate; s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if u != nil {
			errs.Forbidden(at, "rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")
		}
	case appsv1.RollingUpdateDeploymentStrategyType:
		at = at.Child("rollingUpdate")
		amount(errs, at, "maxUnavailable", u.MaxUnavailable)
		amount(errs, at, "maxSurge", u.MaxSurge)
		if isZero(u.MaxUnavailable) && isZero(u.MaxSurge) {
			errs.Invalid(at, "maxUnavailable", *u.MaxUnavailable, "may not be 0 when `maxSurge` is 0")
		}
		notAll(errs, at, "maxUnavailable", u.MaxUnavailable)
	default:
		shown := *s // kube-apiserver's errors show an unset number as zero
		if u != nil {
			zero := intstr.FromInt32(0)
			shown.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: cmp.Or(u.MaxUnavailable, &zero), MaxSurge: cmp.Or(u.MaxSurge, &zero)}
		}
		errs.Add(field.NotSupported(at, check.Bare(shown), []appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType}))
	}
}

// ValidateDeploymentStatus checks an update of the status.
func ValidateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	var errs check.Errors
	s, at := &d.Status, field.NewPath("status")
	errs.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	errs.NonNegative(at, "replicas", int64(s.Replicas))
	errs.NonNegative(at, "updatedReplicas", int64(s.UpdatedReplicas))
	errs.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative(at, "unavailableReplicas", int64(s.UnavailableReplicas))
	check.NonNegativeIfSet(&errs, at, "terminatingReplicas", s.TerminatingReplicas)
	check.NonNegativeIfSet(&errs, at, "collisionCount", s.CollisionCount)
	errs.AtMostReplicas(at, "updatedReplicas", s.UpdatedReplicas, s.Replicas)
	errs.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	errs.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	notDecremented(&errs, s.CollisionCount, old.Status.CollisionCount)
	return errs.List()
}
