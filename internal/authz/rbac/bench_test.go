package rbac_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// open returns an empty store.
func open(tb testing.TB) *store.Store {
	return storetest.Open(tb, store.Options{Log: memlog.New()})
}

// put stores an object, current is the revision of its last version, zero for a new one.
func put(tb testing.TB, s *store.Store, collection, key, text string, current store.Revision) store.Revision {
	tb.Helper()
	const meta = `{"metadata":{"resourceVersion":"` // the revision is stored behind it
	value := []byte(meta + `"},` + text[1:])
	o, err := s.Commit(tb.Context(), store.Write{Collection: collection, Key: key, Value: value, RevisionAt: len(meta), If: current})
	if err != nil {
		tb.Fatal(err)
	}
	return o.Modified
}

// filled is a store of 10,000 bindings of 1,000 roles, half of them at the cluster scope, and of
// the bindings that every user has.
func filled(tb testing.TB) *store.Store {
	s := open(tb)
	rules := `{"rules":[{"apiGroups":["","apps"],"resources":["pods","pods/log","deployments","configmaps"],"verbs":["get","list","watch"]},
		{"apiGroups":[""],"resources":["secrets"],"resourceNames":["a","b"],"verbs":["get"]},{"nonResourceURLs":["/metrics","/logs/*"],"verbs":["get"]}]}`
	for i := range 500 {
		put(tb, s, rbac.ClusterRoles, fmt.Sprint("cr", i), rules, 0)
		put(tb, s, rbac.Roles, fmt.Sprintf("n%d/r%d", i%50, i), rules, 0)
	}
	for i := range 5000 {
		put(tb, s, rbac.ClusterRoleBindings, fmt.Sprint("b", i), fmt.Sprintf(`{"roleRef":{"kind":"ClusterRole","name":"cr%d"},
			"subjects":[{"kind":"User","name":"u%d"},{"kind":"Group","name":"g%d"}]}`, i%500, i, i), 0)
		put(tb, s, rbac.RoleBindings, fmt.Sprintf("n%d/b%d", i%50, i), fmt.Sprintf(`{"roleRef":{"kind":"Role","name":"r%d"},
			"subjects":[{"kind":"ServiceAccount","name":"a%d"},{"kind":"User","name":"v%d"}]}`, i%500, i, i), 0)
	}
	put(tb, s, rbac.ClusterRoles, "discovery", `{"rules":[{"nonResourceURLs":["/healthz","/livez","/readyz","/version","/version/","/api","/api/*","/apis","/apis/*","/openapi","/openapi/*"],"verbs":["get"]}]}`, 0)
	put(tb, s, rbac.ClusterRoles, "basic", `{"rules":[{"apiGroups":["authorization.k8s.io"],"resources":["selfsubjectaccessreviews"],"verbs":["create"]}]}`, 0)
	for _, name := range []string{"discovery", "basic"} {
		put(tb, s, rbac.ClusterRoleBindings, name, fmt.Sprintf(`{"roleRef":{"kind":"ClusterRole","name":%q},"subjects":[{"kind":"Group","name":"system:authenticated"}]}`, name), 0)
	}
	return s
}

func BenchmarkAuthorize(b *testing.B) {
	z := rbac.New(filled(b))
	groups := []string{"system:authenticated"}
	var ten []string
	for i := range 10 {
		ten = append(ten, fmt.Sprint("other", i))
	}
	for _, row := range []struct {
		name string
		a    authz.Attributes
		want authz.Decision
	}{
		{"cluster", authz.Attributes{User: &authn.User{Name: "u7", Groups: groups}, Verb: "get", IsResource: true, Resource: "pods", Namespace: "n3", Name: "p"}, authz.Allow},
		{"namespace", authz.Attributes{User: &authn.User{Name: "v7", Groups: groups}, Verb: "get", IsResource: true, Group: "apps", Resource: "deployments", Namespace: "n7", Name: "p"}, authz.Allow},
		{"account", authz.Attributes{User: &authn.User{Name: "system:serviceaccount:n7:a7", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:n7", "system:authenticated"}}, Verb: "get", IsResource: true, Resource: "pods", Subresource: "log", Namespace: "n7", Name: "p"}, authz.Allow},
		{"ten groups", authz.Attributes{User: &authn.User{Name: "v7", Groups: append(ten, groups...)}, Verb: "get", IsResource: true, Resource: "pods", Namespace: "n7", Name: "p"}, authz.Allow},
		{"refused", authz.Attributes{User: &authn.User{Name: "v7", Groups: append(ten, groups...)}, Verb: "delete", IsResource: true, Resource: "pods", Namespace: "n7", Name: "p"}, authz.NoOpinion},
		{"path", authz.Attributes{User: &authn.User{Name: "v7", Groups: groups}, Verb: "get", Path: "/apis/apps/v1"}, authz.Allow},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d, _, _ := z.Authorize(b.Context(), &row.a); d != row.want {
					b.Fatal(d)
				}
			}
		})
	}
}

// BenchmarkChange changes one binding or role among many, and decides.
func BenchmarkChange(b *testing.B) {
	s := filled(b)
	z := rbac.New(s)
	a := authz.Attributes{User: &authn.User{Name: "v7"}, Verb: "get", IsResource: true, Resource: "pods", Namespace: "n7"}
	for _, row := range []struct{ name, collection, key string }{
		{"binding", rbac.RoleBindings, "n7/b7"}, {"role", rbac.Roles, "n7/r7"}, {"other", "pods", "n7/p"},
	} {
		b.Run(row.name, func(b *testing.B) {
			text, revision := `{"kind":"Pod"}`, store.Revision(0)
			if o := s.Any().Get(row.collection, row.key); o != nil {
				_, rest, _ := strings.Cut(string(o.Bytes()), "},")
				text, revision = "{"+rest, o.Modified
			}
			z.Authorize(b.Context(), &a)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				revision = put(b, s, row.collection, row.key, text, revision)
				b.StartTimer()
				z.Authorize(b.Context(), &a)
			}
		})
	}
}

// BenchmarkStart makes the indexes.
func BenchmarkStart(b *testing.B) {
	s := filled(b)
	a := authz.Attributes{User: &authn.User{Name: "v7"}, Verb: "get", IsResource: true, Resource: "pods", Namespace: "n7"}
	for b.Loop() {
		rbac.New(s).Authorize(b.Context(), &a)
	}
}
