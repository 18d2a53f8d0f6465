package apps

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// immutableSelector checks that the selector does not change.
func immutableSelector(errs *check.Errors, next, old *metav1.LabelSelector) {
	errs.Immutable(field.NewPath("spec"), "selector", next, old)
}

// replicated checks the selector and the template of a kind with replicas.
func replicated(errs *check.Errors, s *metav1.LabelSelector, t *corev1.PodTemplateSpec, at *field.Path) {
	if s == nil {
		errs.Required(at, "selector", "")
	} else {
		errs.LabelSelector(s, at.Child("selector"))
		if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
			errs.Invalid(at, "selector", s, "empty selector is invalid for deployment")
		}
	}
	if !selectsTemplate(errs, s, t, at.Child("template")) {
		errs.Invalid(at, "selector", s, "invalid label selector")
		return
	}
	podspec.ValidateTemplate(errs, t, at.Child("template"))
	podspec.RequireRestartAlways(errs, t, at.Child("template"), "ReplicaSet")
}

// selectsTemplate checks that a selector selects the Pods of a template. A nil selector
// selects none. It reports whether the selector is well-formed.
func selectsTemplate(errs *check.Errors, s *metav1.LabelSelector, t *corev1.PodTemplateSpec, at *field.Path) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false
	}
	if s == nil || !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs.Invalid(at.Child("metadata"), "labels", t.Labels, "`selector` does not match template `labels`")
	}
	return true
}

// amount checks a number or a percentage.
func amount(errs *check.Errors, at *field.Path, name string, n *intstr.IntOrString) {
	if n.Type == intstr.Int {
		errs.NonNegative(at, name, int64(n.IntVal))
		return
	}
	errs.Each(at, name, *n, validation.IsValidPercent(n.StrVal))
}

// percent returns the number of a percentage, and whether n is one.
func percent(n *intstr.IntOrString) (int, bool) {
	if n.Type != intstr.String || len(validation.IsValidPercent(n.StrVal)) > 0 {
		return 0, false
	}
	value, _ := strconv.Atoi(n.StrVal[:len(n.StrVal)-1])
	return value, true
}

func isZero(n *intstr.IntOrString) bool {
	if p, ok := percent(n); ok {
		return p == 0
	}
	return n.IntValue() == 0
}

// notAll checks that a percentage is at most 100.
func notAll(errs *check.Errors, at *field.Path, name string, n *intstr.IntOrString) {
	if p, ok := percent(n); ok && p > 100 {
		errs.Invalid(at, name, *n, "must not be greater than 100%")
	}
}

// notDecremented checks that a collision count does not decrease.
func notDecremented(errs *check.Errors, next, old *int32) {
	if old == nil || next != nil && *next >= *old {
		return
	}
	var value int32
	if next != nil {
		value = *next
	}
	errs.Invalid(field.NewPath("status"), "collisionCount", value, "cannot be decremented")
}
