// Package node has the rules of RuntimeClasses.
package node

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// ValidateRuntimeClass checks the handler, the overhead and the scheduling constraints.
func ValidateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("handler")
	if c.Handler == "" {
		errs = append(errs, field.Required(path, ""))
	} else {
		for _, wrong := range validation.NameIsDNSLabel(c.Handler, false) {
			errs = append(errs, field.Invalid(path, c.Handler, wrong).WithOrigin("format=k8s-short-name"))
		}
	}
	if o := c.Overhead; o != nil {
		errs = append(errs, podspec.ValidateOverhead(o.PodFixed, field.NewPath("overhead"))...)
	}
	if s := c.Scheduling; s != nil {
		errs = append(errs, validateScheduling(s, field.NewPath("scheduling"))...)
	}
	return errs
}

// validateScheduling checks the node selector and the tolerations. Tolerations must be unique,
// whatever their seconds.
func validateScheduling(s *nodev1.Scheduling, path *field.Path) field.ErrorList {
	var errs check.Errors
	if s.NodeSelector != nil {
		errs.Add(metav1validation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	}
	at := path.Child("tolerations")
	podspec.ValidateTolerations(&errs, s.Tolerations, at)
	var seen check.Seen[corev1.Toleration]
	for i, t := range s.Tolerations {
		if seen.Again(corev1.Toleration{Key: t.Key, Operator: t.Operator, Value: t.Value, Effect: t.Effect}) {
			errs.Duplicate(at.Index(i), "", check.Bare(t))
		}
	}
	return errs.List()
}

// ValidateRuntimeClassUpdate checks the new object, and that the handler does not change.
func ValidateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	errs := ValidateRuntimeClass(c)
	return append(errs, validation.ValidateImmutableField(c.Handler, old.Handler, field.NewPath("handler"))...)
}
