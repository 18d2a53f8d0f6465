package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// rbacGroup is roles and who has them. Their names may hold what a path segment
// may hold, such as a colon.
func rbacGroup() resource.Group {
	return group("rbac.authorization.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "clusterrolebindings", Kind: "ClusterRoleBinding", New: object[rbacv1.ClusterRoleBinding],
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName: pathSegment,
		},
		{
			Resource: "clusterroles", Kind: "ClusterRole", New: object[rbacv1.ClusterRole],
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName: pathSegment,
		},
		{
			Resource: "rolebindings", Kind: "RoleBinding", New: object[rbacv1.RoleBinding],
			Namespaced:     true,
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName: pathSegment,
		},
		{
			Resource: "roles", Kind: "Role", New: object[rbacv1.Role],
			Namespaced:     true,
			CreateOnUpdate: true, UnconditionalUpdate: true,
			ValidateName: pathSegment,
		},
	}})
}
