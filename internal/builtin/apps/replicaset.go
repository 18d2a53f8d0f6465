package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// DefaultReplicaSet fills in what a client leaves out.
func DefaultReplicaSet(r *appsv1.ReplicaSet) {
	core.SetMissing(&r.Spec.Replicas, 1)
	core.DefaultTemplate(&r.Spec.Template)
}

// ValidateReplicaSet checks a new one.
func ValidateReplicaSet(r *appsv1.ReplicaSet) field.ErrorList {
	var f core.Faults
	at := field.NewPath("spec")
	f.NonNegative(at, "replicas", int64(*r.Spec.Replicas))
	f.NonNegative(at, "minReadySeconds", int64(r.Spec.MinReadySeconds))
	replicated(&f, r.Spec.Selector, &r.Spec.Template, at)
	return f.List()
}

// ValidateReplicaSetUpdate checks an update.
func ValidateReplicaSetUpdate(r, old *appsv1.ReplicaSet) field.ErrorList {
	var f core.Faults
	f.Add(ValidateReplicaSet(r)...)
	immutableSelector(&f, r.Spec.Selector, old.Spec.Selector)
	return f.List()
}

// ValidateReplicaSetStatus checks an update of the status.
func ValidateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	var f core.Faults
	s, at := &r.Status, field.NewPath("status")
	f.NonNegative(at, "replicas", int64(s.Replicas))
	f.NonNegative(at, "fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	f.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	f.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	f.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	core.NonNegativeIfSet(&f, at, "terminatingReplicas", s.TerminatingReplicas)
	f.AtMostReplicas(at, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas)
	f.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	f.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		f.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	return f.List()
}
