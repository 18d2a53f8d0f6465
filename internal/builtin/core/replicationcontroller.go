package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// DefaultReplicationController sets the defaults. The selector and the labels default to the labels
// of the template.
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
	podspec.DefaultTemplate(t)
}

// LabelLikePods gives a controller without labels those of its Pods.
func LabelLikePods(r *corev1.ReplicationController) {
	if t := r.Spec.Template; t != nil && t.Labels != nil && len(r.Labels) == 0 {
		r.Labels = t.Labels
	}
}

// ValidateReplicationController checks a new ReplicationController.
func ValidateReplicationController(r *corev1.ReplicationController) field.ErrorList {
	var errs check.Errors
	spec, at := &r.Spec, field.NewPath("spec")
	errs.NonNegative(at, "minReadySeconds", int64(spec.MinReadySeconds))
	if len(spec.Selector) == 0 {
		errs.Required(at, "selector", "")
	}
	errs.NonNegative(at, "replicas", int64(*spec.Replicas))
	at = at.Child("template")
	if spec.Template == nil {
		errs.Required(at, "", "")
		return errs.List()
	}
	if !labels.SelectorFromSet(spec.Selector).Matches(labels.Set(spec.Template.Labels)) {
		errs.Invalid(at.Child("metadata"), "labels", spec.Template.Labels, "`selector` does not match template `labels`")
	}
	podspec.ValidateTemplate(&errs, spec.Template, at)
	podspec.RequireRestartAlways(&errs, spec.Template, at, "ReplicationController")
	return errs.List()
}

// ValidateReplicationControllerUpdate checks the new object like a created one.
func ValidateReplicationControllerUpdate(r, _ *corev1.ReplicationController) field.ErrorList {
	return ValidateReplicationController(r)
}

// ValidateReplicationControllerStatus checks an update of the status.
func ValidateReplicationControllerStatus(r, _ *corev1.ReplicationController) field.ErrorList {
	var errs check.Errors
	s, at := &r.Status, field.NewPath("status")
	errs.NonNegative(at, "replicas", int64(s.Replicas))
	errs.NonNegative(at, "fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	errs.NonNegative(at, "readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative(at, "availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative(at, "observedGeneration", s.ObservedGeneration)
	errs.AtMostReplicas(at, "fullyLabeledReplicas", s.FullyLabeledReplicas, s.Replicas)
	errs.AtMostReplicas(at, "readyReplicas", s.ReadyReplicas, s.Replicas)
	errs.AtMostReplicas(at, "availableReplicas", s.AvailableReplicas, s.Replicas)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs.Invalid(at, "availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
	return errs.List()
}

// ReplicationControllerWarnings returns the warnings about a ReplicationController. For an update
// kube-apiserver checks the old template.
func ReplicationControllerWarnings(r, old *corev1.ReplicationController) (list []string) {
	t := r.Spec.Template
	switch {
	case old == nil:
		list = podspec.NameWarnings(r.Name)
	case equality.Semantic.DeepEqual(&r.Spec, &old.Spec):
		return nil
	default:
		t = old.Spec.Template
	}
	if t == nil {
		return list
	}
	return append(list, podspec.TemplateWarnings(t, field.NewPath("spec", "template"))...)
}
