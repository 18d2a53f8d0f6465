package builtin_test

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/scheduling"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestPriorityClass(t *testing.T) {
	const class = "{metadata: {name: c}, value: 5}"
	testkinds.Rules(t, class, []testkinds.Rule{
		{"valid", "value: 1000000000", ""},
		{"high values are the system's", "value: 1000000001", "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"},
		{"names of the system are known", "metadata.name: system-a", "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-a is not a known system priority class"},
		{"a class of the system", "metadata.name: system-node-critical\nvalue: 2000001000", ""},
		{"a class of the system has its value", "metadata.name: system-cluster-critical", "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-cluster-critical PriorityClass must be 2000000000"},
		{"a class of the system is not the default", "metadata.name: system-node-critical\nvalue: 2000001000\nglobalDefault: true", "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: globalDefault of system-node-critical PriorityClass must be false"},
		{"preemptionPolicy is known", "preemptionPolicy: Any", `preemptionPolicy: Unsupported value: "Any": supported values: "PreemptLowerPriority", "Never"`},
		{"preemptionPolicy is not empty", "preemptionPolicy: ''", "preemptionPolicy: Required value"},
	}, func(c *schedulingv1.PriorityClass) []string {
		scheduling.DefaultPriorityClass(c)
		return testkinds.Texts(scheduling.ValidatePriorityClass(c))
	})
	testkinds.Updates(t, class, []testkinds.Update{
		{"a description changes", "", "description: a", ""},
		{"the value stays", "", "value: 6", "value: Forbidden: may not be changed in an update."},
		{"the policy stays", "preemptionPolicy: Never", "preemptionPolicy: PreemptLowerPriority", `preemptionPolicy: Invalid value: "PreemptLowerPriority": field is immutable`},
	}, func(c, old *schedulingv1.PriorityClass) []string {
		return testkinds.Texts(scheduling.ValidatePriorityClassUpdate(c, old))
	})
	testkinds.Rules(t, class, []testkinds.Rule{
		{"default: the policy", "value: 6", "preemptionPolicy: PreemptLowerPriority"},
	}, func(c *schedulingv1.PriorityClass) []string {
		return testkinds.Changes(c, scheduling.DefaultPriorityClass)
	})
}
