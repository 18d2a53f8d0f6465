package mutating

import (
	"time"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
)

// NewMetrics returns metrics of evaluated mutations that have counted nothing.
func NewMetrics() *policy.Metrics {
	return policy.NewMetrics(policy.MetricsOptions{
		Prefix:      "apiserver_mutating_admission_policy_",
		ChecksHelp:  "Mutations that were evaluated, by policy, binding and type of error.",
		SecondsHelp: "Time to evaluate a mutation and to apply its patch.",
	})
}

// observe counts a mutation. err is nil for one that was applied.
func (p *plugin) observe(i *invocation, err error, took time.Duration) {
	c := policy.Check{Policy: i.Policy.Name, Binding: i.Binding.Name, ErrorType: policy.NoError, Took: took}
	if err != nil {
		c.ErrorType = policy.ErrorType(err.Error())
	}
	p.Metrics.Observe(c)
}
