package builtin_test

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/rbac"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestRole(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: r}}", []testkinds.Rule{
		{"valid", "rules: [{verbs: [get], apiGroups: [''], resources: [pods]}]", ""},
		{"a verb is required", "rules: [{apiGroups: [''], resources: [pods]}]", "rules[0].verbs: Required value: verbs must contain at least one value"},
		{"a group is required", "rules: [{verbs: [get], resources: [pods]}]", "rules[0].apiGroups: Required value: resource rules must supply at least one api group"},
		{"a resource is required", "rules: [{verbs: [get], apiGroups: ['']}]", "rules[0].resources: Required value: resource rules must supply at least one resource"},
		{"no paths in a namespace", "rules: [{verbs: [get], nonResourceURLs: [/a]}]", `rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs`},
	}, func(r *rbacv1.Role) []string { return testkinds.Texts(rbac.ValidateRole(r)) })
	testkinds.Rules(t, "{metadata: {name: r}}", []testkinds.Rule{
		{"paths", "rules: [{verbs: [get], nonResourceURLs: [/a]}]", ""},
		{"paths or resources", "rules: [{verbs: [get], nonResourceURLs: [/a], resources: [pods]}]", `rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs`},
		{"aggregation needs a selector", "aggregationRule: {}", "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"},
		{"aggregation has valid selectors", "aggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: Is}]}]}", "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator\naggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."},
		{"aggregation has values of labels", "aggregationRule: {clusterRoleSelectors: [{matchExpressions: [{key: a, operator: In, values: [b c]}]}]}", "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values[0]: Invalid value: \"b c\": a valid label must be an empty...\naggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."},
	}, func(r *rbacv1.ClusterRole) []string { return testkinds.Texts(rbac.ValidateClusterRole(r)) })
	testkinds.Updates(t, "{metadata: {name: r}}", []testkinds.Update{
		{"a wrong value of a selector stays in form", "aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b c}}]}", "metadata.labels: {a: b}", "aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: \"b c\": a valid label must be an empty...\naggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."},
	}, func(r, old *rbacv1.ClusterRole) []string {
		return testkinds.Texts(rbac.ValidateClusterRoleUpdate(r, old))
	})
}

func TestRoleBinding(t *testing.T) {
	const binding = "{metadata: {name: b}, roleRef: {kind: ClusterRole, name: r}, subjects: [{kind: User, name: u}]}"
	testkinds.Rules(t, binding, []testkinds.Rule{
		{"valid", "roleRef.kind: Role\nsubjects[1]: {kind: ServiceAccount, name: a}", ""},
		{"a role is of this group", "roleRef.apiGroup: a", `roleRef.apiGroup: Unsupported value: "a": supported values: "rbac.authorization.k8s.io"`},
		{"a role is of a known kind", "roleRef.kind: User", `roleRef.kind: Unsupported value: "User": supported values: "Role", "ClusterRole"`},
		{"a role has a name", "roleRef.name: ''", "roleRef.name: Required value"},
		{"a role has a name of a path", "roleRef.name: a/b", `roleRef.name: Invalid value: "a/b": may not contain '/'`},
		{"a subject has a name", "subjects: [{kind: User}]", "subjects[0].name: Required value"},
		{"a subject is of a known kind", "subjects: [{kind: Any, name: a}]", `subjects[0].kind: Unsupported value: "Any": supported values: "ServiceAccount", "User", "Group"`},
		{"a user is of this group", "subjects: [{kind: User, name: a, apiGroup: b}]", `subjects[0].apiGroup: Unsupported value: "b": supported values: "rbac.authorization.k8s.io"`},
		{"a service account is of no group", "subjects: [{kind: ServiceAccount, name: a, apiGroup: b}]", `subjects[0].apiGroup: Unsupported value: "b": supported values: ""`},
		{"a service account has a valid name", "subjects: [{kind: ServiceAccount, name: A}]", `subjects[0].name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
	}, func(b *rbacv1.RoleBinding) []string {
		rbac.DefaultRoleBinding(b)
		return testkinds.Texts(rbac.ValidateRoleBinding(b))
	})
	testkinds.Rules(t, binding, []testkinds.Rule{
		{"cluster: a role is of the cluster", "roleRef.kind: Role", `roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"`},
		{"cluster: a service account has a namespace", "subjects: [{kind: ServiceAccount, name: a}]", "subjects[0].namespace: Required value"},
	}, func(b *rbacv1.ClusterRoleBinding) []string {
		rbac.DefaultClusterRoleBinding(b)
		return testkinds.Texts(rbac.ValidateClusterRoleBinding(b))
	})
	testkinds.Updates(t, binding, []testkinds.Update{
		{"subjects change", "", "subjects: []", ""},
		{"the role stays", "", "roleRef.name: x", `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"x"}: field is immutable`},
	}, func(b, old *rbacv1.RoleBinding) []string {
		rbac.DefaultRoleBinding(b)
		rbac.DefaultRoleBinding(old)
		return testkinds.Texts(rbac.ValidateRoleBindingUpdate(b, old))
	})
	testkinds.Updates(t, binding, []testkinds.Update{
		{"cluster: the role stays", "", "roleRef.name: x", `roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"x"}: field is immutable`},
	}, func(b, old *rbacv1.ClusterRoleBinding) []string {
		rbac.DefaultClusterRoleBinding(b)
		rbac.DefaultClusterRoleBinding(old)
		return testkinds.Texts(rbac.ValidateClusterRoleBindingUpdate(b, old))
	})
	testkinds.Rules(t, binding, []testkinds.Rule{
		{"default: groups", "subjects[1]: {kind: ServiceAccount, name: a}", "roleRef.apiGroup: rbac.authorization.k8s.io\nsubjects[0].apiGroup: rbac.authorization.k8s.io"},
	}, func(b *rbacv1.RoleBinding) []string { return testkinds.Changes(b, rbac.DefaultRoleBinding) })
}
