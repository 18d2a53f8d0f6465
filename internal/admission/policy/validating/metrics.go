package validating

import (
	"time"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
)

// Values of the label enforcement_action.
const (
	allow = "allow"
	deny  = "deny"
	audit = "audit"
	warn  = "warn"
)

// NewMetrics returns new metrics of validations. A validation that admits a request counts only if
// it failed and the failure policy ignores that.
func NewMetrics() *policy.Metrics {
	return policy.NewMetrics(policy.MetricsOptions{
		Prefix:      "apiserver_validating_admission_policy_",
		ChecksHelp:  "Validations that failed, by policy, binding and action.",
		SecondsHelp: "Time to evaluate the validations of a policy up to one that failed.",
		Labels:      []string{"enforcement_action"},
	})
}

// observe counts an action. message is that of an error or of a denial.
func (p *plugin) observe(i *invocation, action, message string, took time.Duration) {
	p.Metrics.Observe(policy.Check{Policy: i.Policy.Name, Binding: i.Binding.Name, ErrorType: policy.ErrorType(message), Labels: []string{action}, Took: took})
}
