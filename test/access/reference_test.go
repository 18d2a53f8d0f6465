package access_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// reference decides by lists of all roles and bindings, in the simplest way.
type reference struct {
	clusterRoles        []rbacv1.ClusterRole
	roles               []rbacv1.Role
	clusterRoleBindings []rbacv1.ClusterRoleBinding
	roleBindings        []rbacv1.RoleBinding
}

func newReference(ctx context.Context, c kubernetes.Interface) (*reference, error) {
	all := metav1.ListOptions{}
	clusterRoles, err := c.RbacV1().ClusterRoles().List(ctx, all)
	if err != nil {
		return nil, err
	}
	roles, err := c.RbacV1().Roles("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	clusterRoleBindings, err := c.RbacV1().ClusterRoleBindings().List(ctx, all)
	if err != nil {
		return nil, err
	}
	roleBindings, err := c.RbacV1().RoleBindings("").List(ctx, all)
	if err != nil {
		return nil, err
	}
	return &reference{clusterRoles.Items, roles.Items, clusterRoleBindings.Items, roleBindings.Items}, nil
}

// verdict is a decision. If several bindings allow the request, the server may name any of them
// in the reason.
type verdict struct {
	allowed bool
	reasons []string
}

func (v verdict) accepts(s *authorizationv1.SubjectAccessReviewStatus) bool {
	if s.Allowed != v.allowed || s.Denied || s.EvaluationError != "" {
		return false
	}
	if v.allowed {
		return slices.Contains(v.reasons, s.Reason)
	}
	return strings.Join(v.reasons, ", ") == strings.Join(missingRoles(s.Reason), ", ")
}

// missingRoles returns the errors in a reason, sorted: their order is random on kube-apiserver.
func missingRoles(reason string) []string {
	if reason == "" {
		return nil
	}
	all := strings.Split(strings.Trim(strings.TrimPrefix(reason, "rbac: RBAC: "), "[]"), ", ")
	slices.Sort(all)
	return all
}

func (r *reference) decide(q *authorizationv1.SubjectAccessReviewSpec) verdict {
	if slices.Contains(q.Groups, "system:masters") {
		return verdict{true, []string{""}}
	}
	var allowing, missing []string
	for _, b := range r.clusterRoleBindings {
		who := subjectOf(q, b.Subjects, "")
		if who == nil {
			continue
		}
		rules, found := r.rules(b.RoleRef, "")
		if !found {
			missing = append(missing, notFound(b.RoleRef))
		} else if slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return allows(q, &rule) }) {
			allowing = append(allowing, fmt.Sprintf("RBAC: allowed by ClusterRoleBinding %q of %s %q to %s", b.Name, b.RoleRef.Kind, b.RoleRef.Name, shown(who, "")))
		}
	}
	if len(allowing) > 0 {
		return verdict{true, allowing}
	}
	namespace := ""
	if q.ResourceAttributes != nil {
		namespace = q.ResourceAttributes.Namespace
	}
	for _, b := range r.roleBindings {
		who := subjectOf(q, b.Subjects, b.Namespace)
		if who == nil || b.Namespace != namespace {
			continue
		}
		rules, found := r.rules(b.RoleRef, b.Namespace)
		if !found {
			missing = append(missing, notFound(b.RoleRef))
		} else if slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return allows(q, &rule) }) {
			allowing = append(allowing, fmt.Sprintf("RBAC: allowed by RoleBinding %q of %s %q to %s", b.Name+"/"+b.Namespace, b.RoleRef.Kind, b.RoleRef.Name, shown(who, b.Namespace)))
		}
	}
	if len(allowing) > 0 {
		return verdict{true, allowing}
	}
	slices.Sort(missing)
	return verdict{false, slices.Compact(missing)}
}

func (r *reference) rules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, bool) {
	for _, role := range r.clusterRoles {
		if ref.Kind == "ClusterRole" && role.Name == ref.Name {
			return role.Rules, true
		}
	}
	for _, role := range r.roles {
		if ref.Kind == "Role" && role.Name == ref.Name && role.Namespace == namespace {
			return role.Rules, true
		}
	}
	return nil, false
}

func notFound(ref rbacv1.RoleRef) string {
	return fmt.Sprintf("%s.rbac.authorization.k8s.io %q not found", strings.ToLower(ref.Kind), ref.Name)
}

// subjectOf returns the first subject of a binding that is the user, nil if none is.
func subjectOf(q *authorizationv1.SubjectAccessReviewSpec, subjects []rbacv1.Subject, namespace string) *rbacv1.Subject {
	for i := range subjects {
		s := &subjects[i]
		in := s.Namespace
		if in == "" {
			in = namespace
		}
		switch {
		case s.Kind == "User" && s.Name == q.User,
			s.Kind == "Group" && slices.Contains(q.Groups, s.Name),
			s.Kind == "ServiceAccount" && in != "" && q.User == "system:serviceaccount:"+in+":"+s.Name:
			return s
		}
	}
	return nil
}

func shown(s *rbacv1.Subject, namespace string) string {
	if s.Kind != "ServiceAccount" {
		return fmt.Sprintf("%s %q", s.Kind, s.Name)
	}
	if s.Namespace != "" {
		namespace = s.Namespace
	}
	return fmt.Sprintf("ServiceAccount %q", s.Name+"/"+namespace)
}

// allows reports whether a rule allows a request.
func allows(q *authorizationv1.SubjectAccessReviewSpec, rule *rbacv1.PolicyRule) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	if n := q.NonResourceAttributes; n != nil {
		return has(rule.Verbs, n.Verb) && slices.ContainsFunc(rule.NonResourceURLs, func(url string) bool {
			return url == n.Path || strings.HasSuffix(url, "*") && strings.HasPrefix(n.Path, strings.TrimRight(url, "*"))
		})
	}
	a := q.ResourceAttributes
	resource := has(rule.Resources, a.Resource)
	if a.Subresource != "" {
		resource = has(rule.Resources, a.Resource+"/"+a.Subresource) || slices.Contains(rule.Resources, "*/"+a.Subresource)
	}
	named := len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.Name)
	return has(rule.Verbs, a.Verb) && has(rule.APIGroups, a.Group) && resource && named
}
