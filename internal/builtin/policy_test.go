package builtin_test

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/policy"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestPodDisruptionBudget(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: b}}", testkinds.Below("spec", []testkinds.Rule{
		{"valid", "minAvailable: 50%", ""},
		{"one of both", "minAvailable: 1\nmaxUnavailable: 1", `: Invalid value: {"MinAvailable":1,"Selector":null,"MaxUnavailable":1,"UnhealthyPodEvictionPolicy":null}: minAvailable and maxUnavailable cannot be both set`},
		{"minAvailable is not negative", "minAvailable: -1", "minAvailable: Invalid value: -1: must be greater than or equal to 0"},
		{"maxUnavailable is a percentage", "maxUnavailable: a", `maxUnavailable: Invalid value: "a": a valid percent string must be a numeri...`},
		{"maxUnavailable is at most all", "maxUnavailable: 101%", `maxUnavailable: Invalid value: "101%": must not be greater than 100%`},
		{"a selector is valid", "selector: {matchLabels: {a b: c}}", `selector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"unhealthyPodEvictionPolicy is known", "unhealthyPodEvictionPolicy: Any", `unhealthyPodEvictionPolicy: Unsupported value: "Any": supported values: "AlwaysAllow", "IfHealthyBudget"`},
	}), func(b *policyv1.PodDisruptionBudget) []string { return testkinds.Texts(policy.ValidateBudget(b)) })
	testkinds.Updates(t, "{metadata: {name: b}}", []testkinds.Update{
		{"a wrong value of a selector stays", "spec.selector: {matchExpressions: [{key: a, operator: In, values: [b c]}]}", "spec.minAvailable: 1", ""},
	}, func(b, old *policyv1.PodDisruptionBudget) []string {
		return testkinds.Texts(policy.ValidateBudgetUpdate(b, old))
	})
	testkinds.Updates(t, "{metadata: {name: b}}", []testkinds.Update{
		{"status: not negative", "", "status: {disruptionsAllowed: -1, currentHealthy: -1, desiredHealthy: -1, expectedPods: -1}", "status.disruptionsAllowed: Invalid value: -1: must be greater than or equal to 0\nstatus.currentHealthy: Invalid value: -1: must be greater than or equal to 0\nstatus.desiredHealthy: Invalid value: -1: must be greater than or equal to 0\nstatus.expectedPods: Invalid value: -1: must be greater than or equal to 0"},
		{"status: conditions are whole", "", "status: {conditions: [{type: A}], disruptionsAllowed: 0, currentHealthy: 0, desiredHealthy: 0, expectedPods: 0}", "status.conditions[0].status: Required value\nstatus.conditions[0].lastTransitionTime: Required value\nstatus.conditions[0].reason: Required value"},
	}, func(b, old *policyv1.PodDisruptionBudget) []string {
		return testkinds.Texts(policy.ValidateBudgetStatus(b, old))
	})
}
