package impersonation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/impersonation"
)

// rights are the rights of every user, as "verb resource name", where name * stands for all names. They
// record the rights that were checked.
type rights struct {
	granted []string
	asked   []string
}

// Authorize implements authz.Authorizer.
func (r *rights) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	right := a.Verb + " " + resource + " "
	r.asked = append(r.asked, strings.TrimSpace(right+a.Name))
	if slices.Contains(r.granted, strings.TrimSpace(right+a.Name)) || slices.Contains(r.granted, right+"*") {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// attempts implements impersonation.Observer. It lists the modes of the attempts.
type attempts []string

func (a *attempts) Attempt(mode string, allowed bool, _ time.Duration) {
	*a = append(*a, fmt.Sprint(mode, " ", allowed))
}

func (a *attempts) Authorization(string, bool, time.Duration) {}

func get(by *authn.User) *authz.Attributes {
	return &authz.Attributes{User: by, Verb: "get", IsResource: true, Version: "v1", Resource: "pods", Name: "p"}
}

// TestModes lists the rights that each mode needs, and the groups of the user that it grants.
func TestModes(t *testing.T) {
	const nodeName = "authentication.kubernetes.io/node-name"
	alice := &authn.User{Name: "alice"}
	agent := &authn.User{Name: "system:serviceaccount:n:agent", Extra: map[string][]string{nodeName: {"worker"}}}
	for _, row := range []struct {
		by, want   *authn.User
		granted    []string
		constraint string
		groups     string
	}{
		{alice, &authn.User{Name: "bob", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}},
			[]string{"impersonate users bob", "impersonate uids 1", "impersonate groups g", "impersonate userextras/k v"},
			"", "g system:authenticated"},
		{alice, &authn.User{Name: "bob", Groups: []string{"g"}},
			[]string{"impersonate-on:user-info:get pods p", "impersonate:user-info users bob", "impersonate:user-info groups g"},
			"impersonate:user-info", "g system:authenticated"},
		{alice, &authn.User{Name: "bob", Groups: []string{"a", "b", "c", "d"}},
			[]string{"impersonate-on:user-info:get pods p", "impersonate:user-info users bob", "impersonate:user-info groups *"},
			"impersonate:user-info", "a b c d system:authenticated"},
		{alice, &authn.User{Name: "system:serviceaccount:n:x"},
			[]string{"impersonate-on:serviceaccount:get pods p", "impersonate:serviceaccount serviceaccounts x"},
			"impersonate:serviceaccount", "system:serviceaccounts system:serviceaccounts:n system:authenticated"},
		{alice, &authn.User{Name: "system:node:worker"},
			[]string{"impersonate-on:arbitrary-node:get pods p", "impersonate:arbitrary-node nodes worker"},
			"impersonate:arbitrary-node", "system:nodes system:authenticated"},
		{agent, &authn.User{Name: "system:node:worker"},
			[]string{"impersonate-on:associated-node:get pods p", "impersonate:associated-node nodes *"},
			"impersonate:associated-node", "system:nodes system:authenticated"},
		{alice, &authn.User{Name: authn.Anonymous.Name},
			[]string{"impersonate users " + authn.Anonymous.Name}, "", "system:unauthenticated"},
	} {
		name := fmt.Sprint(row.by.Name, " as ", row.want.Name, " by ", row.constraint)
		g, err := impersonation.New(&rights{granted: row.granted}, nil).Check(t.Context(), row.want, get(row.by))
		if err != nil || g.Constraint != row.constraint || g.User.Name != row.want.Name || strings.Join(g.User.Groups, " ") != row.groups {
			t.Errorf("%s: %+v, %v, want groups %s", name, g, err, row.groups)
		}
		for i := range row.granted { // each right is necessary
			missing := slices.Delete(slices.Clone(row.granted), i, i+1)
			if _, err := impersonation.New(&rights{granted: missing}, nil).Check(t.Context(), row.want, get(row.by)); !apierrors.IsForbidden(err) {
				t.Errorf("%s without %s: %v, want 403", name, row.granted[i], err)
			}
		}
	}
}

// TestNeverConstrained: no constrained mode gives the group system:masters, or values that rules cannot
// name.
func TestNeverConstrained(t *testing.T) {
	all := []string{"impersonate-on:user-info:get pods *", "impersonate:user-info users *", "impersonate:user-info groups *", "impersonate:user-info userextras/*  *"}
	for _, row := range []struct {
		want    authn.User
		refused string
	}{
		{authn.User{Groups: []string{authz.SystemMasters}}, "impersonating the system:masters group is not allowed"},
		{authn.User{Groups: []string{"a", "b", "c", ""}}, "impersonating the empty string group is not allowed"},
		{authn.User{Extra: map[string][]string{"": {"v"}}}, "impersonating the empty string key in extra is not allowed"},
		{authn.User{Extra: map[string][]string{"Key": {"v"}}}, "impersonating a"},
		{authn.User{Extra: map[string][]string{"a.b/Key": {"v"}}}, `impersonating a non-lowercase key in extra is not allowed: "a.b/Key"`},
		{authn.User{Extra: map[string][]string{"a.b/c": {}}}, "impersonating empty values in extra is not allowed"},
	} {
		row.want.Name = "bob"
		if _, err := impersonation.New(&rights{granted: all}, nil).Check(t.Context(), &row.want, get(&authn.User{Name: "alice"})); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), row.refused) {
			t.Errorf("%+v: %v, want %s", row.want, err, row.refused)
		}
	}
}

// TestLastMode checks that the mode of a user's last impersonation is tried first, and that the
// user gets its error.
func TestLastMode(t *testing.T) {
	r := &rights{granted: []string{"impersonate users bob"}}
	var seen attempts
	c := impersonation.New(r, &seen)
	check := func(name string) error {
		r.asked = nil
		_, err := c.Check(t.Context(), &authn.User{Name: name}, get(&authn.User{Name: "alice"}))
		return err
	}
	if err := check("bob"); err != nil || len(r.asked) != 2 {
		t.Errorf("the first time: %v, asked for %q, want two modes", err, r.asked)
	}
	if err := check("bob"); err != nil || len(r.asked) != 1 {
		t.Errorf("the second time: %v, asked for %q, want the legacy mode alone", err, r.asked)
	}
	if err := check("eve"); err == nil || !strings.Contains(err.Error(), `cannot impersonate resource "users" in API group ""`) {
		t.Errorf("refused: %v, want the error of the legacy mode", err)
	}
	if want := []string{"legacy true", "legacy true", " false"}; !slices.Equal(seen, want) {
		t.Errorf("attempts %q, want %q", seen, want)
	}
}
