package rbac

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateRole checks the rules.
func ValidateRole(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }

// ValidateRoleUpdate checks the new object like a created one. All fields are mutable.
func ValidateRoleUpdate(r, _ *rbacv1.Role) field.ErrorList { return ValidateRole(r) }
