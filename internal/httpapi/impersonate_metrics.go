package httpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// impersonationMetrics count impersonation. It implements impersonation.Observer.
type impersonationMetrics struct {
	attempts, authorizations *prometheus.CounterVec
	took, asked              *prometheus.HistogramVec
}

func newImpersonationMetrics() *impersonationMetrics {
	labels := []string{"mode", "decision"}
	buckets := prometheus.ExponentialBuckets(0.001, 2, 15)
	return &impersonationMetrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_impersonation_attempts_total", Help: "Requests with impersonation headers, by the mode that allowed them, and decision."}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_impersonation_attempts_duration_seconds", Buckets: buckets, Help: "Time to decide about impersonation."}, labels),
		authorizations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_impersonation_authorization_attempts_total", Help: "Authorization decisions that impersonation needed, by mode and decision."}, labels),
		asked: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_impersonation_authorization_attempts_duration_seconds", Buckets: buckets, Help: "Time of an authorization decision that impersonation needed."}, labels),
	}
}

func (m *impersonationMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.attempts, m.took, m.authorizations, m.asked}
}

// Attempt implements impersonation.Observer.
func (m *impersonationMetrics) Attempt(mode string, allowed bool, took time.Duration) {
	m.attempts.WithLabelValues(mode, decision(allowed)).Inc()
	m.took.WithLabelValues(mode, decision(allowed)).Observe(took.Seconds())
}

// Authorization implements impersonation.Observer.
func (m *impersonationMetrics) Authorization(mode string, allowed bool, took time.Duration) {
	m.authorizations.WithLabelValues(mode, decision(allowed)).Inc()
	m.asked.WithLabelValues(mode, decision(allowed)).Observe(took.Seconds())
}

func decision(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}
