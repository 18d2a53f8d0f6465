package authz_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

func TestMasters(t *testing.T) {
	master := &authn.User{Name: "m", Groups: []string{"a", "system:masters"}}
	other := &authn.User{Name: "system:masters", Groups: []string{"system:authenticated"}}
	for _, row := range []struct {
		user *authn.User
		a    authz.Attributes
		want authz.Decision
	}{
		{master, authz.Attributes{Verb: "get", IsResource: true, Resource: "pods"}, authz.Allow},
		{master, authz.Attributes{Verb: "delete", Path: "/metrics"}, authz.Allow},
		{other, authz.Attributes{Verb: "get", IsResource: true, Resource: "pods"}, authz.NoOpinion},
		{authn.Anonymous, authz.Attributes{Verb: "get", Path: "/healthz"}, authz.NoOpinion},
	} {
		row.a.User = row.user
		if d, reason, err := (authz.Masters{}).Authorize(t.Context(), &row.a); d != row.want || reason != "" || err != nil {
			t.Errorf("%s %s: %v, %q, %v; want %v", row.user.Name, row.a.Verb, d, reason, err, row.want)
		}
	}
}
