package mutating

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/admission/policy"
)

// Metrics count evaluated mutations.
type Metrics struct {
	checks  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// NewMetrics makes Metrics.
func NewMetrics() *Metrics {
	labels := []string{"policy", "policy_binding", "error_type"}
	const prefix = "apiserver_mutating_admission_policy_"
	return &Metrics{
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "check_total", Help: "Mutations that were evaluated, by policy, binding and type of error."}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "check_duration_seconds", Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1},
			Help: "Time to evaluate a mutation and to apply its patch."}, labels),
	}
}

// Collectors returns what collects the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.checks, m.seconds}
}

// observe counts a mutation. err is nil for one that was applied.
func (m *Metrics) observe(i *invocation, err error, took time.Duration) {
	if m == nil {
		return
	}
	labels := []string{i.Policy.Name, i.Binding.Name, errorType(err)}
	m.checks.WithLabelValues(labels...).Inc()
	m.seconds.WithLabelValues(labels...).Observe(took.Seconds())
}

func errorType(err error) string {
	if err == nil {
		return "no_error"
	}
	return policy.ErrorType(err.Error())
}
