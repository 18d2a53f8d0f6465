package validating

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
)

// Metrics count what validations decide. They count a validation that admits a request only if it
// failed and the failure policy ignores that.
type Metrics struct {
	checks  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// Values of the label enforcement_action.
const (
	allow = "allow"
	deny  = "deny"
	audit = "audit"
	warn  = "warn"
)

// NewMetrics makes Metrics.
func NewMetrics() *Metrics {
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	const prefix = "apiserver_validating_admission_policy_"
	return &Metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "check_total", Help: "Validations that failed, by policy, binding and action."}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "check_duration_seconds", Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1},
			Help: "Time to evaluate the validations of a policy up to one that failed."}, labels),
	}
}

// Collectors returns what collects the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.checks, m.seconds}
}

// observe counts an action. message is that of an error or of a denial.
func (m *Metrics) observe(i *invocation, action, message string, took time.Duration) {
	if m == nil {
		return
	}
	labels := []string{i.Policy.Name, i.Binding.Name, policy.ErrorType(message), action}
	m.checks.WithLabelValues(labels...).Inc()
	m.seconds.WithLabelValues(labels...).Observe(took.Seconds())
}
