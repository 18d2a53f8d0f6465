package apps

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// immutableSelector: which Pods are a workload's own does not change.
func immutableSelector(f *core.Faults, next, old *metav1.LabelSelector) {
	if !equality.Semantic.DeepEqual(next, old) {
		f.Invalid(field.NewPath("spec"), "selector", next, apivalidation.FieldImmutableErrorMsg)
	}
}

// replicated checks selector and template of what keeps replicas.
func replicated(f *core.Faults, s *metav1.LabelSelector, t *corev1.PodTemplateSpec, at *field.Path) {
	if s == nil {
		f.Required(at, "selector", "")
	} else {
		f.LabelSelector(s, at.Child("selector"))
		if len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
			f.Invalid(at, "selector", s, "empty selector is invalid for deployment")
		}
	}
	if !selectsOwn(f, s, t, at.Child("template")) {
		f.Invalid(at, "selector", s, "invalid label selector")
		return
	}
	f.Template(t, at.Child("template"))
	f.RunsForever(t, at.Child("template"), "ReplicaSet")
}

// selectsOwn is Faults.Selects, of which no selector at all selects nothing.
func selectsOwn(f *core.Faults, s *metav1.LabelSelector, t *corev1.PodTemplateSpec, at *field.Path) bool {
	if s == nil {
		f.Invalid(at.Child("metadata"), "labels", t.Labels, "`selector` does not match template `labels`")
		return true
	}
	return f.Selects(s, t, at)
}

// amount checks a number, or a percentage.
func amount(f *core.Faults, at *field.Path, name string, n *intstr.IntOrString) {
	if n.Type == intstr.Int {
		f.NonNegative(at, name, int64(n.IntVal))
		return
	}
	f.Each(at, name, *n, validation.IsValidPercent(n.StrVal))
}

// percent is the number of a percentage.
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

// notAll: a percentage is at most 100.
func notAll(f *core.Faults, at *field.Path, name string, n *intstr.IntOrString) {
	if p, ok := percent(n); ok && p > 100 {
		f.Invalid(at, name, *n, "must not be greater than 100%")
	}
}

// notDecremented checks a counter of collisions.
func notDecremented(f *core.Faults, next, old *int32) {
	if old == nil || next != nil && *next >= *old {
		return
	}
	var value int32
	if next != nil {
		value = *next
	}
	f.Invalid(field.NewPath("status"), "collisionCount", value, "cannot be decremented")
}
