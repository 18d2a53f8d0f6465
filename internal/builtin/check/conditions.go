package check

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Conditions checks conditions. Their types must be unique. It stops at MaxErrors errors: an empty condition takes two bytes
// in a body, and has up to five errors.
func Conditions(all []metav1.Condition, at *field.Path) (errs field.ErrorList) {
	var types Seen[string]
	for i := range all {
		if len(errs) >= MaxErrors {
			return append(errs, countedOnly)
		}
		if types.Again(all[i].Type) {
			errs = append(errs, field.Duplicate(at.Index(i), all[i].Type))
		}
		errs = append(errs, metav1validation.ValidateCondition(all[i], at.Index(i))...)
	}
	return errs
}
