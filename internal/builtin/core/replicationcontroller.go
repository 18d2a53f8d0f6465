package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// DefaultReplicationController fills in what a client leaves out: the template's
// labels are what it selects, and what labels it.
func DefaultReplicationController(r *corev1.ReplicationController) {
	if r.Spec.Replicas == nil {
		r.Spec.Replicas = ptr.To[int32](1)
	}
	t := r.Spec.Template
	if t == nil {
		return
	}
	if t.Labels != nil && len(r.Spec.Selector) == 0 {
		r.Spec.Selector = t.Labels
	}
	LabelLikePods(r)
	DefaultTemplate(t)
}

// LabelLikePods gives one without labels those of its Pods.
func LabelLikePods(r *corev1.ReplicationController) {
	if t := r.Spec.Template; t != nil && t.Labels != nil && len(r.Labels) == 0 {
		r.Labels = t.Labels
	}
}

// ValidateReplicationController checks a new one.
func ValidateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	var f Faults
	spec, at := &r.Spec, field.NewPath("spec")
	f.NonNegative(at, "minReadySeconds", int64(spec.MinReadySeconds))
	if len(spec.Selector) == 0 {
		f.Required(at, "selector", "")
	}
	f.NonNegative(at, "replicas", int64(*spec.Replicas))
	at = at.Child("template")
	if spec.Template == nil {
		f.Required(at, "", "")
		return f.List()
	}
	if !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		f.Invalid(at.Child("metadata"), "labels", spec.Template.Labels, "`selector` does not match template `labels`")
	}
	f.Template(spec.Template, at)
	f.RunsForever(spec.Template, at, "ReplicationController")
	return f.List()
}

// ValidateReplicationControllerUpdate checks an update.
func ValidateReplicationControllerUpdate(r, _ *corev1.ReplicationController) field.ErrorList {
	return ValidateReplicationController(r)
}

// ValidateReplicationControllerStatus checks an update of the status.
func ValidateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	var f Faults
	s, at := &r.Status, field.NewPath("status")
	f.NonNegative(at, "replicas", int64(s.Replicas))
	f.NonNegative(at, "fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	f.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	f.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	f.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	f.AtMostReplicas(at, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas)
	f.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	f.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		f.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	return f.List()
}

// AtMostReplicas checks the number of those replicas of which something is true.
func (f *Faults) AtMostReplicas(at *field.Path, name string, n, replicas int32) {
	if n > replicas {
		f.Invalid(at, name, n, "cannot be greater than status.replicas")
	}
}
