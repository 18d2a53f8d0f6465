package rbac

import (
	"errors"
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Scope is where a request grants permissions.
type Scope struct {
	// State has the rules that decide.
	State *store.State
	// User is the client that sends the request.
	User *authn.User
	// Namespace is that of the role or binding, empty at the cluster scope.
	Namespace string
	// Resource is the resource of the request: messages about missing roles name it.
	Resource schema.GroupResource
}

// MayGrant returns an error unless the user has all permissions of the rules. The message lists
// those that are missing, in the words of kube-apiserver.
func (z *Authorizer) MayGrant(at Scope, rules []rbacv1.PolicyRule) error {
	p := z.at(at.State)
	own, resolving := p.rolesOf(at.User, at.Namespace, at.missing)
	uncovered, err := missingFrom(own, rules)
	if err != nil || len(uncovered) == 0 {
		return err
	}
	message := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", at.User.Name, at.User.Groups, strings.Join(describe(uncovered), "\n"))
	if len(uncovered) >= maxMissing {
		message += fmt.Sprintf("\nand possibly more than these %d", maxMissing)
	}
	if resolving != nil {
		message += fmt.Sprintf("; resolution errors: %v", []error{resolving})
	}
	return errors.New(message)
}

// RulesOf returns the rules of the role that a binding refers to.
func (z *Authorizer) RulesOf(at Scope, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, error) {
	switch {
	case ref.Kind != "Role" && ref.Kind != "ClusterRole":
		return nil, unsupportedRole(ref.Kind)
	case ref.Kind == "Role" && at.Namespace == "":
		return nil, apierrors.NewBadRequest("Namespace parameter required.")
	}
	p, b := z.at(at.State), newBinding(ref, at.Namespace)
	r := p.role(&grant{binding: b})
	if r == nil {
		return nil, at.missing(b)
	}
	return r.rules, nil
}

// missing is the error of a binding whose role does not exist.
func (at *Scope) missing(b *binding) error {
	if b.ref.Kind != "Role" && b.ref.Kind != "ClusterRole" {
		return unsupportedRole(b.ref.Kind)
	}
	return apierrors.NewNotFound(at.Resource, b.ref.Name)
}
