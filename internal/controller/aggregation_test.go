package controller_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const clusterRoles = "clusterroles.rbac.authorization.k8s.io"

// role makes a ClusterRole with labels of the value "true", and a rule for each
// verb.
func (w *world) role(name, labels string, verbs ...string) {
	w.Helper()
	var rules []string
	for _, v := range verbs {
		rules = append(rules, fmt.Sprintf(`{"apiGroups":[""],"resources":["pods"],"verbs":[%q]}`, v))
	}
	made := map[string]string{}
	for label := range strings.FieldsSeq(labels) {
		made[label] = "true"
	}
	text, _ := json.Marshal(made)
	w.make(clusterRoles, "", fmt.Sprintf(`{"metadata":{"name":%q,"labels":%s},"rules":[%s]}`, name, text, strings.Join(rules, ",")))
}

// verbs are those of a role's rules, in their order.
func (w *world) verbs(name string) (verbs []string) {
	w.Helper()
	w.settle()
	var r rbacv1.ClusterRole
	if err := json.Unmarshal(w.get(clusterRoles, name).Bytes(), &r); err != nil {
		w.Fatal(err)
	}
	for _, rule := range r.Rules {
		verbs = append(verbs, rule.Verbs...)
	}
	return verbs
}

// TestAggregation checks that an aggregated role has the rules of the roles that it selects, after
// any change of these.
func TestAggregation(t *testing.T) {
	w := newWorld(t, "clusterrole-aggregation")
	want := func(name string, verbs ...string) {
		t.Helper()
		if got := w.verbs(name); !slices.Equal(got, verbs) {
			t.Errorf("%s has %q, want %q", name, got, verbs)
		}
	}
	aggregated := func(name, labels, selects string) {
		w.make(clusterRoles, "", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{%s}},"rules":[{"verbs":["own"],"apiGroups":[""],"resources":["x"]}],"aggregationRule":{"clusterRoleSelectors":[%s]}}`, name, labels, selects))
	}
	w.role("z", "to-view", "get", "list")
	w.role("b", "to-view to-edit", "watch", "get")
	aggregated("view", `"to-edit":"true"`, `{"matchLabels":{"to-view":"true"}}`)
	aggregated("edit", "", `{"matchExpressions":[{"key":"to-edit","operator":"Exists"}]},{"matchLabels":{"more":"true"}}`)
	want("view", "watch", "get", "list")
	want("edit", "watch", "get", "list")

	w.role("a", "more", "patch", "get")
	want("edit", "watch", "get", "list", "patch")
	w.role("c", "to-view", "delete")
	want("view", "watch", "get", "delete", "list")
	want("edit", "watch", "get", "delete", "list", "patch")

	if _, err := w.Delete(t.Context(), w.target(clusterRoles, "b"), nil, nil); err != nil {
		t.Fatal(err)
	}
	want("view", "delete", "get", "list")
	want("edit", "delete", "get", "list", "patch")

	w.changeRole("z", func(r *rbacv1.ClusterRole) { r.Labels = nil })
	want("view", "delete")
	w.changeRole("view", func(r *rbacv1.ClusterRole) { r.Rules = nil })
	want("view", "delete")
	w.changeRole("view", func(r *rbacv1.ClusterRole) { r.AggregationRule, r.Rules = nil, r.Rules[:0] })
	want("view")

	before := w.store.Any().Revision()
	w.restart()
	w.settle()
	if after := w.store.Any().Revision(); after != before {
		t.Errorf("a restart wrote %d versions", after-before)
	}
}

func (w *world) changeRole(name string, change func(*rbacv1.ClusterRole)) {
	w.Helper()
	w.change(clusterRoles, name, "", func(o metav1.Object) { change(o.(*rbacv1.ClusterRole)) })
}

// TestAggregationOfMany: the cost of an aggregated role grows with its rules, not with their square.
func TestAggregationOfMany(t *testing.T) {
	tier.Full(t)
	slow := testkinds.Growth(1000, 50*time.Millisecond, func(n int) testkinds.Steps {
		w := newWorld(t, "clusterrole-aggregation")
		var verbs []string
		for i := range n {
			verbs = append(verbs, fmt.Sprint("verb", i))
		}
		steps := testkinds.Steps{}
		steps.Do("aggregation", func() error {
			w.role("many", "to-view", verbs...)
			w.role("again", "to-view", verbs...)
			w.make(clusterRoles, "", `{"metadata":{"name":"view"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"to-view":"true"}}]}}`)
			if got := w.verbs("view"); !slices.Equal(got, verbs) {
				t.Errorf("%d verbs, want %d", len(got), n)
			}
			return nil
		})
		return steps
	})
	if slow != "" {
		t.Error(slow)
	}
}
