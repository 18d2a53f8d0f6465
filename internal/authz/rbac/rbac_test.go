package rbac_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestAllowZero: a decision allocates nothing, also for a user with many groups.
func TestAllowZero(t *testing.T) {
	z := rbac.New(filled(t))
	user := &authn.User{Name: "v7"}
	for i := range 40 {
		user.Groups = append(user.Groups, fmt.Sprint("other", i))
	}
	a := authz.Attributes{User: user, Verb: "get", IsResource: true, Resource: "pods", Subresource: "log", Namespace: "n7", Name: "p"}
	if n := testing.AllocsPerRun(100, func() {
		if d, reason, err := z.Authorize(t.Context(), &a); d != authz.Allow || reason != `RBAC: allowed by RoleBinding "b7/n7" of Role "r7" to User "v7"` || err != nil {
			t.Fatal(d, reason, err)
		}
	}); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}

// decide returns the decision about a user's request for pods in a namespace.
func decide(t *testing.T, z *rbac.Authorizer, u *authn.User, namespace string) (bool, string) {
	t.Helper()
	d, reason, err := z.Authorize(t.Context(), &authz.Attributes{User: u, Verb: "get", IsResource: true, Resource: "pods", Namespace: namespace})
	if err != nil || d == authz.Deny {
		t.Errorf("%v, %v", d, err)
	}
	return d == authz.Allow, reason
}

// TestReason: the reason names the binding, and the first of its subjects that is the user.
func TestReason(t *testing.T) {
	s := open(t)
	z := rbac.New(s)
	pods := `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`
	put(t, s, rbac.ClusterRoles, "c", pods, 0)
	put(t, s, rbac.Roles, "n/r", pods, 0)
	put(t, s, rbac.RoleBindings, "n/b", `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"Group","name":"x"},{"kind":"ServiceAccount","name":"bot"},
		{"kind":"Group","name":"g2"},{"kind":"Group","name":"g1"},{"kind":"User","name":"u"},{"kind":"Robot","name":"u2"}]}`, 0)
	put(t, s, rbac.ClusterRoleBindings, "b", `{"roleRef":{"kind":"ClusterRole","name":"c"},"subjects":[{"kind":"ServiceAccount","name":"a","namespace":"m"},{"kind":"ServiceAccount","name":"none"}]}`, 0)
	put(t, s, rbac.ClusterRoleBindings, "gone", `{"roleRef":{"kind":"ClusterRole","name":"none"},"subjects":[{"kind":"User","name":"v"},{"kind":"User","name":"u"}]}`, 0)
	put(t, s, rbac.RoleBindings, "n/gone", `{"roleRef":{"kind":"Role","name":"none"},"subjects":[{"kind":"User","name":"v"}]}`, 0)
	for _, row := range []struct {
		user      authn.User
		namespace string
		allowed   bool
		reason    string
	}{
		{authn.User{Name: "u"}, "n", true, `RBAC: allowed by RoleBinding "b/n" of Role "r" to User "u"`},
		{authn.User{Name: "u", Groups: []string{"g1"}}, "n", true, `RBAC: allowed by RoleBinding "b/n" of Role "r" to Group "g1"`},
		{authn.User{Name: "u", Groups: []string{"g1", "g2"}}, "n", true, `RBAC: allowed by RoleBinding "b/n" of Role "r" to Group "g2"`},
		{authn.User{Name: "system:serviceaccount:n:bot"}, "n", true, `RBAC: allowed by RoleBinding "b/n" of Role "r" to ServiceAccount "bot/n"`},
		{authn.User{Name: "system:serviceaccount:m:bot"}, "n", false, ""},
		{authn.User{Name: "system:serviceaccount:m:a"}, "", true, `RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "c" to ServiceAccount "a/m"`},
		{authn.User{Name: "system:serviceaccount::none"}, "", false, ""},
		{authn.User{Name: "u2"}, "n", false, ""},
		{authn.User{Name: "x"}, "n", false, ""},
		{authn.User{Name: "u"}, "m", false, `RBAC: clusterrole.rbac.authorization.k8s.io "none" not found`},
		{authn.User{Name: "v"}, "n", false, `RBAC: [clusterrole.rbac.authorization.k8s.io "none" not found, role.rbac.authorization.k8s.io "none" not found]`},
	} {
		if allowed, reason := decide(t, z, &row.user, row.namespace); allowed != row.allowed || reason != row.reason {
			t.Errorf("%s %q in %q: %v, %q; want %v, %q", row.user.Name, row.user.Groups, row.namespace, allowed, reason, row.allowed, row.reason)
		}
	}
}

// TestRules: rules come in the order of the bindings' names, those of the cluster first, and once
// for each role.
func TestRules(t *testing.T) {
	s := open(t)
	z := rbac.New(s)
	put(t, s, rbac.ClusterRoles, "c", `{"rules":[{"apiGroups":["c"],"resources":["x"],"verbs":["get"],"resourceNames":["n"]},{"nonResourceURLs":["/c"],"verbs":["get"]}]}`, 0)
	put(t, s, rbac.Roles, "n/r", `{"rules":[{"apiGroups":["r"],"resources":["x"],"verbs":["get"]}]}`, 0)
	put(t, s, rbac.RoleBindings, "n/a", `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"}]}`, 0)
	put(t, s, rbac.RoleBindings, "m/a", `{"roleRef":{"kind":"ClusterRole","name":"c"},"subjects":[{"kind":"User","name":"u"}]}`, 0)
	put(t, s, rbac.ClusterRoleBindings, "z", `{"roleRef":{"kind":"ClusterRole","name":"c"},"subjects":[{"kind":"User","name":"u"},{"kind":"Group","name":"g"}]}`, 0)
	put(t, s, rbac.ClusterRoleBindings, "y", `{"roleRef":{"kind":"ClusterRole","name":"none"},"subjects":[{"kind":"User","name":"u"}]}`, 0)
	put(t, s, rbac.RoleBindings, "n/again", `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"}]}`, 0)
	got := z.Rules(t.Context(), &authn.User{Name: "u", Groups: []string{"g"}}, "n")
	want := authz.Rules{
		Resources: []authz.ResourceRule{
			{Verbs: []string{"get"}, Groups: []string{"c"}, Resources: []string{"x"}, Names: []string{"n"}},
			{Verbs: []string{"get"}, Groups: []string{"r"}, Resources: []string{"x"}},
		},
		NonResources: []authz.NonResourceRule{{Verbs: []string{"get"}, Paths: []string{"/c"}}},
	}
	if got.Err == nil || got.Err.Error() != `clusterrole.rbac.authorization.k8s.io "none" not found` {
		t.Errorf("the error is %v", got.Err)
	}
	if got.Err = nil; !reflect.DeepEqual(got, want) {
		t.Errorf("the rules are %+v, want %+v", got, want)
	}
}

// words are the parts of rules and requests in random tests.
var words = []string{"", "*", "a", "b", "a/b", "*/b", "a/*", "b/c", "a/b/c", "get", "list", "/x", "/x*", "/x/y**"}

// allows reports whether a rule allows a request, in the simplest way.
func allows(r *rbacv1.PolicyRule, a *authz.Attributes) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	if !a.IsResource {
		return has(r.Verbs, a.Verb) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool {
			return url == a.Path || strings.HasSuffix(url, "*") && strings.HasPrefix(a.Path, strings.TrimRight(url, "*"))
		})
	}
	resource := has(r.Resources, a.Resource)
	if a.Subresource != "" {
		resource = has(r.Resources, a.Resource+"/"+a.Subresource) || slices.Contains(r.Resources, "*/"+a.Subresource)
	}
	return has(r.Verbs, a.Verb) && has(r.APIGroups, a.Group) && resource && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.Name))
}

// checkRule compares a decision by one rule with the simple one.
func checkRule(t *testing.T, s *store.Store, z *rbac.Authorizer, r rbacv1.PolicyRule, a authz.Attributes, last *store.Revision) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"rules": []rbacv1.PolicyRule{r}})
	if err != nil {
		t.Fatal(err)
	}
	*last = put(t, s, rbac.ClusterRoles, "c", string(text), *last)
	a.User = &authn.User{Name: "u"}
	d, _, _ := z.Authorize(t.Context(), &a)
	if want := allows(&r, &a); (d == authz.Allow) != want {
		t.Errorf("%+v by %+v: %v, want %v", a, r, d, want)
	}
}

func oneRole(t testing.TB) (*store.Store, *rbac.Authorizer) {
	s := open(t)
	put(t, s, rbac.ClusterRoleBindings, "b", `{"roleRef":{"kind":"ClusterRole","name":"c"},"subjects":[{"kind":"User","name":"u"}]}`, 0)
	return s, rbac.New(s)
}

func randomRule(chance *rand.Rand) rbacv1.PolicyRule {
	some := func() (all []string) {
		for range chance.IntN(4) {
			all = append(all, words[chance.IntN(len(words))])
		}
		for i := range chance.IntN(8) / 7 * 20 { // now and then many
			all = append(all, fmt.Sprint("many", i))
		}
		return all
	}
	return rbacv1.PolicyRule{APIGroups: some(), Resources: some(), Verbs: some(), ResourceNames: some(), NonResourceURLs: some()}
}

// TestRuleLikeSimple compares random rules and requests with the simple decision.
func TestRuleLikeSimple(t *testing.T) {
	chance := testrand.New(t)
	s, z := oneRole(t)
	var last store.Revision
	one := func() string { return words[chance.IntN(len(words))] }
	for range 5000 {
		a := authz.Attributes{Verb: one(), IsResource: chance.IntN(4) > 0, Group: one(), Resource: one(), Subresource: one(), Name: one(), Path: one()}
		checkRule(t, s, z, randomRule(chance), a, &last)
	}
}

// TestRoleLikeSimple compares random roles, some of which have many rules, with the simple decision.
func TestRoleLikeSimple(t *testing.T) {
	chance := testrand.New(t)
	s, z := oneRole(t)
	var last store.Revision
	one := func() string { return words[chance.IntN(len(words))] }
	allowed := 0
	for range 100 {
		rules := make([]rbacv1.PolicyRule, 1+chance.IntN(40))
		for i := range rules {
			rules[i] = randomRule(chance)
			rules[i].Verbs = []string{fmt.Sprint("v", chance.IntN(40))} // so that few rules allow a request
		}
		text, err := json.Marshal(map[string]any{"rules": rules})
		if err != nil {
			t.Fatal(err)
		}
		last = put(t, s, rbac.ClusterRoles, "c", string(text), last)
		for range 100 {
			a := authz.Attributes{Verb: rules[chance.IntN(len(rules))].Verbs[0], IsResource: chance.IntN(4) > 0, Group: one(), Resource: one(), Subresource: one(), Name: one(), Path: one()}
			a.User = &authn.User{Name: "u"}
			d, _, _ := z.Authorize(t.Context(), &a)
			want := slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return allows(&r, &a) })
			if (d == authz.Allow) != want {
				t.Fatalf("%+v by %+v: %v, want %v", a, rules, d, want)
			}
			if want {
				allowed++
			}
		}
	}
	if allowed < 200 || allowed > 9_800 {
		t.Errorf("%d of 10,000 are allowed", allowed)
	}
}

// bound returns an authorizer with a role of some rules, to which bindings grant all users the rights in namespace n.
func bound(t *testing.T, rules, bindings int) (*store.Store, *rbac.Authorizer) {
	t.Helper()
	s := open(t)
	var all []rbacv1.PolicyRule
	for i := range rules {
		all = append(all, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{fmt.Sprint("p", i)}})
	}
	text, err := json.Marshal(map[string]any{"rules": all})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, rbac.Roles, "n/r", string(text), 0)
	for i := range bindings {
		put(t, s, rbac.RoleBindings, fmt.Sprint("n/b", i), `{"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"Group","name":"all"}]}`, 0)
	}
	return s, rbac.New(s)
}

var anybody = &authn.User{Name: "u", Groups: []string{"all"}}

// TestManyBindings: a role to which many bindings refer counts once.
func TestManyBindings(t *testing.T) {
	const rules = 1000
	s, z := bound(t, rules, 300)
	if got := z.Rules(t.Context(), anybody, "n"); len(got.Resources) != rules || got.Incomplete || got.Err != nil {
		t.Errorf("%d rules, incomplete: %v, %v; want %d", len(got.Resources), got.Incomplete, got.Err, rules)
	}
	// Another 300 roles of 100 kB each are too much for one list.
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprint(1_000_000_000_000+i))
	}
	text, err := json.Marshal(map[string]any{"rules": []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: names}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		put(t, s, rbac.Roles, fmt.Sprint("n/large", i), string(text), 0)
		put(t, s, rbac.RoleBindings, fmt.Sprint("n/large", i), fmt.Sprintf(`{"roleRef":{"kind":"Role","name":"large%d"},"subjects":[{"kind":"Group","name":"all"}]}`, i), 0)
		put(t, s, rbac.RoleBindings, fmt.Sprint("n/missing", i), fmt.Sprintf(`{"roleRef":{"kind":"Role","name":"missing%d"},"subjects":[{"kind":"Group","name":"all"}]}`, i), 0)
	}
	got := z.Rules(t.Context(), anybody, "n")
	if !got.Incomplete || got.Err == nil || !strings.Contains(got.Err.Error(), "larger than 4 MiB") || !strings.Contains(got.Err.Error(), `"missing0" not found`) || len(got.Resources) < rules {
		t.Errorf("%d rules, incomplete: %v, %v", len(got.Resources), got.Incomplete, got.Err)
	}
	allowed, reason := decide(t, z, &authn.User{Name: "u", Groups: []string{"all"}}, "n")
	if allowed || !strings.HasSuffix(reason, ", 80 more roles not found]") || strings.Count(reason, "not found") != 21 {
		t.Errorf("%v, %q", allowed, reason)
	}
	s2, z2 := bound(t, 20, 300)
	if err := z2.MayGrant(rbac.Scope{State: s2.Any(), User: anybody, Namespace: "n"}, []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"p7", "p19"}}}); err != nil {
		t.Error(err)
	}
}

// TestRulesTimesBindings: the cost of a decision, of a list of rules and of a check of escalation does not grow with
// the product of rules and bindings.
func TestRulesTimesBindings(t *testing.T) {
	tier.Full(t)
	slow := testkinds.Growth(1000, 50*time.Millisecond, func(n int) testkinds.Steps {
		s, z := bound(t, n, n/2)
		steps := testkinds.Steps{}
		decide(t, z, anybody, "n") // makes the indexes
		steps.Do("decisions", func() error {
			for range 200 {
				decide(t, z, anybody, "n")
			}
			return nil
		})
		steps.Do("lists", func() error {
			for range 20 {
				z.Rules(t.Context(), anybody, "n")
			}
			return nil
		})
		steps.Do("grants", func() error {
			for range 20 {
				if z.MayGrant(rbac.Scope{State: s.Any(), User: anybody, Namespace: "n"}, []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}}}) == nil {
					t.Error("granted")
				}
			}
			return nil
		})
		return steps
	})
	if slow != "" {
		t.Error(slow)
	}
}

// FuzzRule compares rules and requests with the simple decision.
func FuzzRule(f *testing.F) {
	f.Add("get,list", ",apps", "pods/log,*/scale", "a", "/x*", "get", "", "pods", "log", "a", "/x/y", true)
	f.Add("*", "*", "*", "", "*", "get", "", "pods", "", "", "/", false)
	f.Fuzz(func(t *testing.T, verbs, groups, resources, names, urls, verb, group, resource, subresource, name, path string, isResource bool) {
		list := func(text string) []string {
			if text = strings.ToValidUTF8(text, "?"); text == "" {
				return nil
			}
			return strings.Split(text, ",")
		}
		s, z := oneRole(t)
		var last store.Revision
		checkRule(t, s, z, rbacv1.PolicyRule{Verbs: list(verbs), APIGroups: list(groups), Resources: list(resources), ResourceNames: list(names), NonResourceURLs: list(urls)},
			authz.Attributes{Verb: verb, IsResource: isResource, Group: group, Resource: resource, Subresource: subresource, Name: name, Path: path}, &last)
	})
}

// mayGrant returns the error of a user with some rules who grants others.
func mayGrant(t *testing.T, own, wanted []rbacv1.PolicyRule) error {
	t.Helper()
	s, z := oneRole(t)
	text, err := json.Marshal(map[string]any{"rules": own})
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, rbac.ClusterRoles, "c", string(text), 0)
	return z.MayGrant(rbac.Scope{State: s.Any(), User: &authn.User{Name: "u"}, Resource: schema.GroupResource{Group: rbacv1.GroupName, Resource: "roles"}}, wanted)
}

// texts are rules of single permissions as messages have them.
func texts(all []rbacv1.PolicyRule) (texts []string) {
	verbs := map[string][]string{}
	for _, r := range all {
		switch {
		case len(r.NonResourceURLs) > 0:
			texts = append(texts, fmt.Sprintf("{NonResourceURLs:%q, Verbs:%q}", r.NonResourceURLs, r.Verbs))
			continue
		case len(r.ResourceNames) > 0:
			of := fmt.Sprintf("{APIGroups:%q, Resources:%q, ResourceNames:%q, Verbs:", r.APIGroups, r.Resources, r.ResourceNames)
			verbs[of] = append(verbs[of], r.Verbs...)
		default:
			of := fmt.Sprintf("{APIGroups:%q, Resources:%q, Verbs:", r.APIGroups, r.Resources)
			verbs[of] = append(verbs[of], r.Verbs...)
		}
	}
	for of, v := range verbs {
		texts = append(texts, fmt.Sprintf("%s%q}", of, v))
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// TestMayGrantLikeSimple compares random grants with a comparison of all single permissions.
func TestMayGrantLikeSimple(t *testing.T) {
	chance := testrand.New(t)
	rules := func(n int) (all []rbacv1.PolicyRule) {
		for range chance.IntN(n) {
			all = append(all, randomRule(chance))
		}
		return all
	}
	granted, all := 0, 200
	if tier.IsFull(t) {
		all = 1000
	}
	for range all {
		own, wanted := rules(8), rules(3)
		if chance.IntN(3) == 0 { // in parts, the rights that users have
			for _, r := range own {
				wanted = append(wanted, validation.BreakdownRule(r)...)
			}
		}
		covered, missing := validation.Covers(own, wanted)
		err := mayGrant(t, own, wanted)
		if (err == nil) != covered {
			t.Fatalf("a user with %v grants %v: %v, want %v", own, wanted, err, missing)
		}
		if covered {
			granted++
			continue
		}
		want := "user \"u\" (groups=[]) is attempting to grant RBAC permissions not currently held:\n" + strings.Join(texts(missing), "\n")
		if len(missing) < 5000 && err.Error() != want {
			t.Fatalf("a user with %v grants %v: %v, want %v", own, wanted, err, want)
		}
	}
	if granted < all/10 {
		t.Errorf("only %d of %d are granted", granted, all)
	}
}

// TestMayGrantLimits checks that rules with very many combinations are compared quickly, or
// rejected.
func TestMayGrantLimits(t *testing.T) {
	many := func(prefix string) (all []string) {
		for i := range 20_000 {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	huge := []rbacv1.PolicyRule{{APIGroups: many("g"), Resources: many("r"), Verbs: many("v"), ResourceNames: many("n")}}
	names := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}, ResourceNames: many("n")}}
	all := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}
	halfNames := []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}, ResourceNames: many("n")[:10_000]},
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}, ResourceNames: many("n")[10_000:]},
	}
	halves := []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: many("v")[:10_000]},
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: many("v")[10_000:]},
	}
	for _, row := range []struct {
		own     []rbacv1.PolicyRule
		refusal string // empty: it is granted
	}{
		{all, ""},
		{nil, "not currently held:\n{APIGroups:[\"g0\"], Resources:[\"r0\"], ResourceNames:[\"n0\"], Verbs:[\"v0\"]}\n"},
		{names, ""},
		{halves, "combine too many"},
		{huge, ""},
		{halfNames, "combine too many"},
	} {
		err := mayGrant(t, row.own, huge)
		if row.refusal == "" && err != nil || row.refusal != "" && (err == nil || !strings.Contains(err.Error(), row.refusal)) {
			t.Errorf("with %d rules: %.200v, want %q", len(row.own), err, row.refusal)
		}
	}
}
