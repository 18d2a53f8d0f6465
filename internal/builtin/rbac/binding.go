package rbac

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultRoleBinding sets the default groups of the role and the subjects.
func DefaultRoleBinding(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

// DefaultClusterRoleBinding sets the default groups of the role and the subjects.
func DefaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }

func defaultBinding(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if role.APIGroup == "" {
		role.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		s := &subjects[i]
		if s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// The kinds of roles that a binding can refer to.
var (
	anyRole     = []string{"Role", "ClusterRole"}
	clusterRole = []string{"ClusterRole"}
)

// ValidateRoleBinding checks the role and the subjects of a RoleBinding.
func ValidateRoleBinding(b *rbacv1.RoleBinding) field.ErrorList {
	return validateBinding(b.RoleRef, b.Subjects, anyRole)
}

// ValidateRoleBindingUpdate checks the new object, and rejects a changed roleRef.
func ValidateRoleBindingUpdate(b, old *rbacv1.RoleBinding) field.ErrorList {
	return append(ValidateRoleBinding(b), keptRole(b.RoleRef, old.RoleRef)...)
}

// ValidateClusterRoleBinding checks the role and the subjects of a ClusterRoleBinding.
func ValidateClusterRoleBinding(b *rbacv1.ClusterRoleBinding) field.ErrorList {
	return validateBinding(b.RoleRef, b.Subjects, clusterRole)
}

// ValidateClusterRoleBindingUpdate checks the new object, and rejects a changed roleRef.
func ValidateClusterRoleBindingUpdate(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
	return append(ValidateClusterRoleBinding(b), keptRole(b.RoleRef, old.RoleRef)...)
}

// keptRole rejects a changed roleRef. The value in its error has the Go names of the fields, as in
// kube-apiserver.
func keptRole(role, old rbacv1.RoleRef) field.ErrorList {
	if role == old {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("roleRef"), struct{ APIGroup, Kind, Name string }(role), validation.FieldImmutableErrorMsg)}
}

func validateBinding(role rbacv1.RoleRef, subjects []rbacv1.Subject, kinds []string) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("roleRef")
	if role.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(path.Child("apiGroup"), role.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(kinds, role.Kind) {
		errs = append(errs, field.NotSupported(path.Child("kind"), role.Kind, kinds))
	}
	if role.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	for _, wrong := range ValidName(role.Name, false) {
		if role.Name != "" {
			errs = append(errs, field.Invalid(path.Child("name"), role.Name, wrong))
		}
	}
	for i := range subjects {
		errs = append(errs, validateSubject(&subjects[i], len(kinds) > 1, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s *rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	group := func(want string) {
		if s.APIGroup != want {
			errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{want}))
		}
	}
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		if s.Name != "" {
			for _, wrong := range validation.ValidateServiceAccountName(s.Name, false) {
				errs = append(errs, field.Invalid(at.Child("name"), s.Name, wrong))
			}
		}
		group("")
		if !namespaced && s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
		group(rbacv1.GroupName)
	default:
		errs = append(errs, field.NotSupported(at.Child("kind"), s.Kind, []string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	return errs
}
