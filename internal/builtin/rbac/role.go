package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateRole checks what a namespace allows.
func ValidateRole(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }

// ValidateRoleUpdate checks a Role again: it may change altogether.
func ValidateRoleUpdate(r, _ *rbacv1.Role) field.ErrorList { return ValidateRole(r) }
