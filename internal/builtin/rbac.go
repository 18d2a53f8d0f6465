package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/rbac"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// rbacGroup is roles and who has them. Their names may hold what a path segment
// may hold, such as a colon.
func rbacGroup() resource.Group {
	return group("rbac.authorization.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "clusterrolebindings", Kind: "ClusterRoleBinding", New: object[rbacv1.ClusterRoleBinding],
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName:   rbac.ValidName,
			Default:        defaults(rbac.DefaultClusterRoleBinding),
			Validate:       validates(rbac.ValidateClusterRoleBinding),
			ValidateUpdate: updates(rbac.ValidateClusterRoleBindingUpdate),
		},
		{
			Resource: "clusterroles", Kind: "ClusterRole", New: object[rbacv1.ClusterRole],
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName:   rbac.ValidName,
			Validate:       validates(rbac.ValidateClusterRole),
			ValidateUpdate: updates(rbac.ValidateClusterRoleUpdate),
		},
		{
			Resource: "rolebindings", Kind: "RoleBinding", New: object[rbacv1.RoleBinding],
			Namespaced:     true,
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName:   rbac.ValidName,
			Default:        defaults(rbac.DefaultRoleBinding),
			Validate:       validates(rbac.ValidateRoleBinding),
			ValidateUpdate: updates(rbac.ValidateRoleBindingUpdate),
		},
		{
			Resource: "roles", Kind: "Role", New: object[rbacv1.Role],
			Namespaced:     true,
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName:   rbac.ValidName,
			Validate:       validates(rbac.ValidateRole),
			ValidateUpdate: updates(rbac.ValidateRoleUpdate),
		},
	}})
}
