package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DefaultReplicaSet sets the defaults.
func DefaultReplicaSet(r *appsv1.ReplicaSet) {
	check.SetIfNil(&r.Spec.Replicas, 1)
	podspec.DefaultTemplate(&r.Spec.Template)
}

// ValidateReplicaSet checks a new ReplicaSet.
func ValidateReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	var errs check.Errors
	at := field.NewPath("spec")
	errs.NonNegative(at, "replicas", int64(*r.Spec.Replicas))
	errs.NonNegative(at, "minReadySeconds", int64(r.Spec.MinReadySeconds))
	replicated(&errs, r.Spec.Selector, &r.Spec.Template, at)
	return errs.List()
}

// ValidateReplicaSetUpdate checks an update.
func ValidateReplicaSetUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	var errs check.Errors
	errs.Add(ValidateReplicaSet(r)...)
	immutableSelector(&errs, r.Spec.Selector, old.Spec.Selector)
	return errs.List()
}

// ValidateReplicaSetStatus checks an update of the status.
func ValidateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	var errs check.Errors
	s, at := &r.Status, field.NewPath("status")
	errs.NonNegative(at, "replicas", int64(s.Replicas))
	errs.NonNegative(at, "fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	errs.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	check.NonNegativeIfSet(&errs, at, "terminatingReplicas", s.TerminatingReplicas)
	errs.AtMostReplicas(at, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas)
	errs.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	errs.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	return errs.List()
}
