package abac_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/abac"
)

const policyFile = `# comments and blank lines are ignored

{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "ann", "namespace": "*", "resource": "*", "apiGroup": "*"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"user": "bob", "namespace": "shop", "resource": "pods", "readonly": true}}
  {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "ops", "user": "eve", "namespace": "shop", "resource": "secrets"}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"group": "*", "nonResourcePath": "/version*", "readonly": true}}
{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"namespace": "*", "resource": "*", "apiGroup": "*"}}
{"user": "old", "resource": "nodes"}
{"user": "older", "readonly": true}
`

func load(t testing.TB, text string) (abac.Policies, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return abac.Load(path)
}

func TestAuthorize(t *testing.T) {
	all, err := load(t, policyFile)
	if err != nil {
		t.Fatal(err)
	}
	resource := func(user, verb, group, name, namespace string, groups ...string) *authz.Attributes {
		return &authz.Attributes{User: &authn.User{Name: user, Groups: groups}, Verb: verb, IsResource: true, Group: group, Resource: name, Namespace: namespace, Path: "/version"}
	}
	path := func(user, verb, path string, groups ...string) *authz.Attributes {
		return &authz.Attributes{User: &authn.User{Name: user, Groups: groups}, Verb: verb, Path: path}
	}
	for _, row := range []struct {
		a    *authz.Attributes
		want bool
	}{
		{resource("ann", "delete", "apps", "deployments", "x"), true},
		{path("ann", "get", "/metrics"), false},
		{resource("bob", "list", "", "pods", "shop"), true},
		{resource("bob", "list", "", "pods", ""), false},
		{resource("bob", "create", "", "pods", "shop"), false},
		{resource("bob", "list", "apps", "pods", "shop"), false},
		{resource("eve", "create", "", "secrets", "shop", "ops"), true},
		{resource("eve", "create", "", "secrets", "shop"), false},
		{resource("mallory", "create", "", "secrets", "shop", "ops"), false},
		{path("x", "get", "/version/", authn.Authenticated), true},
		{path("x", "post", "/version", authn.Authenticated), false},
		{path("x", "get", "/version"), false}, // "*" is all authenticated users
		{path("x", "get", "/healthz", authn.Authenticated), false},
		{resource("x", "get", "", "pods", "shop", authn.Authenticated), false}, // a rule for no user
		{resource("old", "patch", "any", "nodes", ""), true},
		{path("old", "get", "/metrics"), false},
		{path("older", "get", "/metrics"), true},
		{resource("older", "watch", "x", "y", "z"), true},
		{resource("older", "update", "x", "y", "z"), false},
	} {
		want, reason := authz.NoOpinion, "No policy matched."
		if row.want {
			want, reason = authz.Allow, ""
		}
		if d, why, err := all.Authorize(t.Context(), row.a); d != want || why != reason || err != nil {
			t.Errorf("%+v: %v %q %v, want %v", row.a, d, why, err, want)
		}
	}
}

func TestRules(t *testing.T) {
	all, err := load(t, policyFile)
	if err != nil {
		t.Fatal(err)
	}
	got := all.Rules(t.Context(), &authn.User{Name: "older"}, "shop")
	want := authz.Rules{
		Resources:    []authz.ResourceRule{{Verbs: []string{"get", "list", "watch"}, Groups: []string{"*"}, Resources: []string{"*"}}},
		NonResources: []authz.NonResourceRule{{Verbs: []string{"get", "list", "watch"}, Paths: []string{"*"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := all.Rules(t.Context(), &authn.User{Name: "bob"}, "other"); len(got.Resources)+len(got.NonResources) > 0 {
		t.Errorf("rules of another namespace: %+v", got)
	}
}

func TestErrors(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"\n{", "line 2: {: couldn't get version/kind; json parse error: "},
		{`{"apiVersion":"v1","kind":"Pod"}`, `line 1: {"apiVersion":"v1","kind":"Pod"}: no kind "Pod" is registered for version "v1"`},
		{`{"user":1}`, "line 1: "},
		{`{"user":"` + strings.Repeat("a", 70_000) + `"}`, "token too long"},
	} {
		if _, err := load(t, row.text); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.40s: %.200v, want %q", row.text, err, row.want)
		}
	}
	if _, err := abac.Load("/does/not/exist"); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func FuzzLoad(f *testing.F) {
	for line := range strings.Lines(policyFile) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := load(t, text)
		if err != nil {
			return
		}
		for i := range all {
			if all[i].User == "*" || all[i].Group == "*" {
				t.Errorf("a rule for %q %q", all[i].User, all[i].Group)
			}
		}
		stranger := &authn.User{Name: "\x00"}
		if d, _, _ := all.Authorize(t.Context(), &authz.Attributes{User: stranger, Verb: "get", Path: "/x"}); d == authz.Allow && !strings.Contains(text, "u0000") {
			t.Errorf("%q allows everything to a user without groups", text)
		}
	})
}
