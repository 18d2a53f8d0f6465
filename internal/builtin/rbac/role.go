package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultRole: no rules are null, not an empty list.
func DefaultRole(r *rbacv1.Role) {
	if len(r.Rules) == 0 {
		r.Rules = nil
	}
}

// ValidateRole checks what a namespace allows.
func ValidateRole(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }

// ValidateRoleUpdate checks a Role again: it may change altogether.
func ValidateRoleUpdate(r, _ *rbacv1.Role) field.ErrorList { return ValidateRole(r) }
