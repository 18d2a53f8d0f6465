package authz_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

func TestMasters(t *testing.T) {
	master := &authn.User{Name: "m", Groups: []string{"a", "system:masters"}}
	other := &authn.User{Name: "system:masters", Groups: []string{"system:authenticated"}}
	resource := authz.Attributes{Verb: "get", IsResource: true, Resource: "pods", Path: "/healthz"}
	for _, row := range []struct {
		user *authn.User
		a    authz.Attributes
		want bool
	}{
		{master, resource, true},
		{master, authz.Attributes{Verb: "delete", Path: "/metrics"}, true},
		{other, resource, false},
		{authn.Anonymous, resource, false},
		{authn.Anonymous, authz.Attributes{Verb: "get", Path: "/healthz"}, true},
		{authn.Anonymous, authz.Attributes{Verb: "get", Path: "/readyz/ping"}, true},
		{other, authz.Attributes{Verb: "get", Path: "/version"}, true},
		{other, authz.Attributes{Verb: "get", Path: "/version/"}, true},
		{other, authz.Attributes{Verb: "post", Path: "/version"}, false},
		{other, authz.Attributes{Verb: "get", Path: "/healthzz"}, false},
		{other, authz.Attributes{Verb: "get", Path: "/metrics"}, false},
		{other, authz.Attributes{Verb: "get", Path: "/"}, false},
		{other, authz.Attributes{Verb: "get", Path: "/apis/apps/v1"}, true},
		{authn.Anonymous, authz.Attributes{Verb: "get", Path: "/apis"}, false},
		{other, authz.Attributes{Verb: "create", IsResource: true, Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}, true},
		{other, authz.Attributes{Verb: "create", IsResource: true, Group: "authentication.k8s.io", Resource: "selfsubjectreviews", Subresource: "x"}, false},
		{other, authz.Attributes{Verb: "create", IsResource: true, Resource: "selfsubjectreviews"}, false},
		{other, authz.Attributes{Verb: "create", IsResource: true, Group: "authentication.k8s.io", Resource: "tokenreviews"}, false},
		{authn.Anonymous, authz.Attributes{Verb: "create", IsResource: true, Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}, false},
		{other, authz.Attributes{Verb: "get", Path: "/openid/v1/jwks"}, false},
		{&authn.User{Groups: []string{"system:serviceaccounts"}}, authz.Attributes{Verb: "get", Path: "/openid/v1/jwks"}, true},
	} {
		row.a.User = row.user
		if d, _, _ := (authz.Masters{}).Authorize(t.Context(), &row.a); (d == authz.Allow) != row.want {
			t.Errorf("%s %s %s: %v, want %v", row.user.Name, row.a.Verb, row.a.Path, d, row.want)
		}
	}
}
