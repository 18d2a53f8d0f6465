package rbac

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"iter"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// grant is the permission of a binding for one of its subjects.
type grant struct {
	binding *binding
	// index is the position of the subject in the binding.
	index int
	// reason is the reason of a decision by the grant.
	reason string
}

// binding is a RoleBinding or a ClusterRoleBinding.
type binding struct {
	// ref is the reference to the role, cluster reports whether that is a ClusterRole, and role
	// is the key of its object.
	ref     rbacv1.RoleRef
	cluster bool
	role    roleKey
}

// readBinding yields the subjects of a stored binding.
func readBinding(o *store.Object) iter.Seq2[subject, grant] {
	return func(yield func(subject, grant) bool) {
		var stored struct {
			RoleRef  rbacv1.RoleRef   `json:"roleRef"`
			Subjects []rbacv1.Subject `json:"subjects"`
		}
		if json.Unmarshal(o.Bytes(), &stored) != nil {
			return // it was encoded by this server; without subjects it allows nothing
		}
		b, at := newBinding(stored.RoleRef, namespaceOf(o.Key)), newPlace(namespaceOf(o.Key))
		for i := range stored.Subjects {
			s := &stored.Subjects[i]
			k, ok := subjectOf(s, at)
			if ok && !yield(k, grant{b, i, reason(o.Key, b, s)}) {
				return
			}
		}
	}
}

func newBinding(ref rbacv1.RoleRef, namespace string) *binding {
	key := ref.Name
	if ref.Kind != "ClusterRole" {
		key = namespace + "/" + key
	}
	return &binding{ref, ref.Kind == "ClusterRole", newRoleKey(key)}
}

// namespaceOf returns the namespace in the key of an object, empty at the cluster scope.
func namespaceOf(key string) string {
	namespace, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return namespace
}

// subjectOf returns the subject of a binding in a namespace. ok is false if it is no user.
func subjectOf(s *rbacv1.Subject, at place) (k subject, ok bool) {
	switch s.Kind {
	case rbacv1.UserKind:
		return newSubject(false, s.Name, at), true
	case rbacv1.GroupKind:
		return newSubject(true, s.Name, at), true
	case rbacv1.ServiceAccountKind:
		in := accountNamespace(s, at.namespace)
		return newSubject(false, "system:serviceaccount:"+in+":"+s.Name, at), in != ""
	}
	return subject{}, false
}

// accountNamespace returns the namespace of a service account: that of the binding if it has
// none.
func accountNamespace(s *rbacv1.Subject, namespace string) string {
	if s.Namespace != "" {
		return s.Namespace
	}
	return namespace
}

// reason is the text of a decision, in the words of kube-apiserver.
func reason(key string, b *binding, s *rbacv1.Subject) string {
	kind, name, who := "ClusterRoleBinding", key, s.Name
	namespace, local, ok := strings.Cut(key, "/")
	if ok {
		kind, name = "RoleBinding", local+"/"+namespace
	} else {
		namespace = ""
	}
	if s.Kind == rbacv1.ServiceAccountKind {
		who += "/" + accountNamespace(s, namespace)
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, b.ref.Kind, b.ref.Name, s.Kind, who)
}

// missingRole is the error of a binding whose role does not exist.
func missingRole(b *binding) error {
	switch b.ref.Kind {
	case "Role", "ClusterRole":
		return apierrors.NewNotFound(schema.GroupResource{Group: rbacv1.GroupName, Resource: strings.ToLower(b.ref.Kind)}, b.ref.Name)
	}
	return unsupportedRole(b.ref.Kind)
}

func unsupportedRole(kind string) error {
	return fmt.Errorf("unsupported role reference kind: %q", kind)
}

// roleKey is the key of a stored Role or ClusterRole.
type roleKey struct {
	hash uint64
	key  string
}

// Hash implements derived.Key.
func (k roleKey) Hash() uint64 { return k.hash }

func newRoleKey(key string) roleKey { return roleKey{maphash.String(seed, key), key} }

// readRole yields a stored Role or ClusterRole by its key.
func readRole(o *store.Object) iter.Seq2[roleKey, *role] {
	return func(yield func(roleKey, *role) bool) {
		var stored struct {
			Rules []policyRule `json:"rules"`
		}
		if json.Unmarshal(o.Bytes(), &stored) != nil {
			return // it was encoded by this server; a missing role is an error of its bindings
		}
		yield(newRoleKey(o.Key), newRole(stored.Rules))
	}
}
