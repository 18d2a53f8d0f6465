// Package coordination has the rules of the kinds by which processes agree who leads.
package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PrepareLease drops what belongs to elections that the server decides, which are not
// on by default in 1.36.
func PrepareLease(l *coordinationv1.Lease) {
	l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
}

// PrepareLeaseUpdate drops it from an update of a Lease that did not have it.
func PrepareLeaseUpdate(l, _ *coordinationv1.Lease) { PrepareLease(l) }

// ValidateLease checks the numbers.
func ValidateLease(l *coordinationv1.Lease) (errs field.ErrorList) {
	spec, path := &l.Spec, field.NewPath("spec")
	if s := spec.LeaseDurationSeconds; s != nil && *s <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), s, "must be greater than 0"))
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), n, "must be greater than or equal to 0"))
	}
	return errs
}

// ValidateLeaseUpdate checks the new object: all of it may change.
func ValidateLeaseUpdate(l, _ *coordinationv1.Lease) field.ErrorList { return ValidateLease(l) }
