// Package coordination has the rules of Leases, which clients use for leader election.
package coordination

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateLease checks the duration and the transitions.
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

// ValidateLeaseUpdate checks the new object. All fields are mutable.
func ValidateLeaseUpdate(l, _ *coordinationv1.Lease) field.ErrorList { return ValidateLease(l) }
