package controller

import (
	"fmt"
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
)

// TestKindsOf: the kinds of a rule have the order of its names, however many there are.
func TestKindsOf(t *testing.T) {
	var many []string
	for i := range 20_000 {
		many = append(many, fmt.Sprint("n", i))
	}
	with := func(name string) []string { return append(slices.Clone(many), name) }
	for _, c := range []struct {
		rule admissionregistrationv1.Rule
		want string
	}{
		{admissionregistrationv1.Rule{APIGroups: []string{"apps", ""}, APIVersions: []string{"v1"}, Resources: []string{"pods", "deployments", "pods/status"}}, "[Deployment Pod Deployment]"},
		{admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"v1"}, Resources: []string{"pods"}}, "[]"},
		{admissionregistrationv1.Rule{APIGroups: with("apps"), APIVersions: with("v1"), Resources: with("deployments")}, "[Deployment]"},
	} {
		kinds := []string{}
		for _, k := range kindsOf(builtin.Catalog(), &c.rule) {
			kinds = append(kinds, k.Kind)
		}
		if got := fmt.Sprint(kinds); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
