// Package scheduling has the rules of PriorityClasses.
package scheduling

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The system's classes and their values.
const (
	NodeCritical         = "system-node-critical"
	ClusterCritical      = "system-cluster-critical"
	NodeCriticalValue    = 2000001000
	ClusterCriticalValue = 2000000000

	systemPrefix = "system-"
	highestValue = 1000000000 // the highest value of a class of a user
)

// DefaultPriorityClass sets the default preemption policy.
func DefaultPriorityClass(c *schedulingv1.PriorityClass) {
	if c.PreemptionPolicy == nil {
		p := corev1.PreemptLowerPriority
		c.PreemptionPolicy = &p
	}
}

var policies = []corev1.PreemptionPolicy{corev1.PreemptLowerPriority, corev1.PreemptNever}

// ValidatePriorityClass checks that names and values reserved for the system are used by its
// classes only.
func ValidatePriorityClass(c *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if strings.HasPrefix(c.Name, systemPrefix) {
		if wrong := notSystem(c); wrong != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"), "priority class names with '"+systemPrefix+"' prefix are reserved for system use only. error: "+wrong))
		}
	} else if c.Value > highestValue {
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestValue)))
	}
	if c.PreemptionPolicy == nil {
		return errs
	}
	switch path := field.NewPath("preemptionPolicy"); *c.PreemptionPolicy {
	case corev1.PreemptLowerPriority, corev1.PreemptNever:
	case "":
		errs = append(errs, field.Required(path, ""))
	default:
		errs = append(errs, field.NotSupported(path, c.PreemptionPolicy, policies))
	}
	return errs
}

// notSystem returns why a class is not one of the system's, or "" if it is.
func notSystem(c *schedulingv1.PriorityClass) string {
	var want int32
	switch c.Name {
	case NodeCritical:
		want = NodeCriticalValue
	case ClusterCritical:
		want = ClusterCriticalValue
	default:
		return c.Name + " is not a known system priority class"
	}
	switch {
	case c.Value != want:
		return fmt.Sprintf("value of %s PriorityClass must be %d", c.Name, want)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %s PriorityClass must be false", c.Name)
	}
	return ""
}

// ValidatePriorityClassUpdate validates immutable fields: the value and the preemption policy.
func ValidatePriorityClassUpdate(c, old *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if c.Value != old.Value {
		errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
	}
	return append(errs, validation.ValidateImmutableField(c.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
}
