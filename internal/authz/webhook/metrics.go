package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the calls of webhooks, and their conditions. All webhooks share one.
type Metrics struct {
	calls    *prometheus.CounterVec
	took     *prometheus.HistogramVec
	failOpen *prometheus.CounterVec

	conditionErrors, excluded *prometheus.CounterVec
	conditionTook             *prometheus.HistogramVec
}

// NewMetrics makes Metrics.
func NewMetrics() *Metrics {
	result, kind := []string{"name", "result"}, []string{"type", "name"}
	const prefix = "apiserver_authorization_"
	counter := func(name, help string, labels []string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	return &Metrics{
		calls:           counter("webhook_evaluations_total", "Calls of authorization webhooks, by name and result.", result),
		failOpen:        counter("webhook_evaluations_fail_open_total", "Calls of authorization webhooks that failed and left the decision to others.", result),
		conditionErrors: counter("match_condition_evaluation_errors_total", "Errors of match conditions of authorizers.", kind),
		excluded:        counter("match_condition_exclusions_total", "Requests that a match condition kept from an authorizer.", kind),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "webhook_duration_seconds", Buckets: prometheus.DefBuckets, Help: "Time of a call of an authorization webhook."}, result),
		conditionTook: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "match_condition_evaluation_seconds", Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
			Help: "Time to evaluate the match conditions of an authorizer."}, kind),
	}
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.calls, m.took, m.failOpen, m.conditionErrors, m.excluded, m.conditionTook}
}

func (m *Metrics) called(name, result string, took time.Duration) {
	m.calls.WithLabelValues(name, result).Inc()
	m.took.WithLabelValues(name, result).Observe(took.Seconds())
}
