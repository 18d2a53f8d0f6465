package policy

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/series"
)

// Metrics count the checks of the policies of a kind, and measure their time. They are safe for
// concurrent use. A nil Metrics counts nothing.
type Metrics struct {
	checks  *series.Vector[prometheus.Counter]
	seconds *series.Vector[prometheus.Observer]
}

// MetricsOptions describe Metrics.
type MetricsOptions struct {
	// Prefix begins the names of the metrics.
	Prefix string
	// ChecksHelp and SecondsHelp describe the counter and the histogram.
	ChecksHelp, SecondsHelp string
	// Labels are added to policy, policy_binding and error_type.
	Labels []string
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics(o MetricsOptions) *Metrics {
	labels := append([]string{"policy", "policy_binding", "error_type"}, o.Labels...)
	return &Metrics{
		checks: series.Counters(prometheus.CounterOpts{Name: o.Prefix + "check_total", Help: o.ChecksHelp}, labels),
		seconds: series.Histograms(prometheus.HistogramOpts{
			Name: o.Prefix + "check_duration_seconds", Help: o.SecondsHelp, Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1},
		}, labels),
	}
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.checks, m.seconds}
}

// Check is one check of a policy.
type Check struct {
	// Policy and Binding are names.
	Policy, Binding string
	// ErrorType is NoError, or a result of ErrorType.
	ErrorType string
	// Labels are the values of MetricsOptions.Labels.
	Labels []string
	// Took is the time that the check took.
	Took time.Duration
}

// Observe counts a check.
func (m *Metrics) Observe(c Check) {
	if m == nil {
		return
	}
	labels := append([]string{c.Policy, c.Binding, c.ErrorType}, c.Labels...)
	m.checks.With(labels...).Inc()
	m.seconds.With(labels...).Observe(c.Took.Seconds())
}

// NoError is the value of the label error_type for a check without an error.
const NoError = "no_error"

// ErrorType returns the value of the label error_type for the message of an error, as
// kube-apiserver chooses it.
func ErrorType(message string) string {
	switch {
	case strings.HasPrefix(message, "compilation"):
		return "compile_error"
	case strings.HasPrefix(message, "validation failed due to running out of cost budget"):
		return "out_of_budget"
	}
	return "invalid_error"
}
