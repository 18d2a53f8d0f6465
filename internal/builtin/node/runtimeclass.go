// Package node is the rules of the kinds of node.k8s.io.
package node

import (
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateRuntimeClass checks what runs the containers of pods, what that costs, and
// where it is.
func ValidateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("handler")
	if c.Handler == "" {
		errs = append(errs, field.Required(path, ""))
	} else {
		for _, wrong := range validation.NameIsDNSLabel(c.Handler, false) {
			errs = append(errs, field.Invalid(path, c.Handler, wrong))
		}
	}
	if s := c.Scheduling; s != nil && s.NodeSelector != nil {
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, field.NewPath("scheduling", "nodeSelector"))...)
	}
	return errs
}

// ValidateRuntimeClassUpdate: what runs containers stays.
func ValidateRuntimeClassUpdate(c, old *nodev1.RuntimeClass) field.ErrorList {
	return validation.ValidateImmutableField(c.Handler, old.Handler, field.NewPath("handler"))
}
