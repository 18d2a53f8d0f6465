package builtin

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/rbac"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// rbacGroup has roles and bindings. Their names may be any path segment, with a colon for example.
func rbacGroup() resource.Group {
	return group("rbac.authorization.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "clusterrolebindings", Kind: "ClusterRoleBinding"},
			New:   object[rbacv1.ClusterRoleBinding],
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{ValidateName: rbac.ValidName},
				Default:        defaults(rbac.DefaultClusterRoleBinding),
				Validate:       validates(rbac.ValidateClusterRoleBinding),
				ValidateUpdate: updates(rbac.ValidateClusterRoleBindingUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "clusterroles", Kind: "ClusterRole"},
			New:   object[rbacv1.ClusterRole],
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{ValidateName: rbac.ValidName},
				Validate:       validates(rbac.ValidateClusterRole),
				ValidateUpdate: updates(rbac.ValidateClusterRoleUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "rolebindings", Kind: "RoleBinding"},
			New:   object[rbacv1.RoleBinding], Namespaced: true,
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{ValidateName: rbac.ValidName},
				Default:        defaults(rbac.DefaultRoleBinding),
				Validate:       validates(rbac.ValidateRoleBinding),
				ValidateUpdate: updates(rbac.ValidateRoleBindingUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "roles", Kind: "Role"},
			New:   object[rbacv1.Role], Namespaced: true,
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, AllowUnconditionalUpdate: true,
				Metadata:       resource.MetadataRules{ValidateName: rbac.ValidName},
				Validate:       validates(rbac.ValidateRole),
				ValidateUpdate: updates(rbac.ValidateRoleUpdate),
			},
		},
	}})
}
