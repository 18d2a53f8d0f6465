package authn

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count how requests are authenticated, by kube-apiserver's names.
type Metrics struct {
	users    *prometheus.CounterVec
	attempts *prometheus.CounterVec
	took     *prometheus.HistogramVec
	expiry   prometheus.Histogram

	success, failure, wrong outcomeMetrics // looked up once
	other                   prometheus.Counter
}

// outcomeMetrics are the metrics of one outcome.
type outcomeMetrics struct {
	attempts prometheus.Counter
	took     prometheus.Observer
}

// NewMetrics makes Metrics.
func NewMetrics() *Metrics {
	result := []string{"result"}
	const hour, day = 3600, 24 * 3600
	m := &Metrics{
		users: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authenticated_user_requests", Help: "Authenticated requests, by user: a few known names, email_id or other."}, []string{"username"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "authentication_attempts", Help: "Requests, by the result of their authentication: success, failure (no credentials) or error."}, result),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "authentication_duration_seconds", Help: "Time to authenticate a request.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15)}, result),
		expiry: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "apiserver_client_certificate_expiration_seconds", Help: "Remaining lifetime of client certificates, when a connection shows one.",
			Buckets: []float64{0, hour / 2, hour, 2 * hour, 6 * hour, 12 * hour, day, 2 * day, 4 * day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day}}),
	}
	of := func(result string) outcomeMetrics {
		return outcomeMetrics{m.attempts.WithLabelValues(result), m.took.WithLabelValues(result)}
	}
	m.success, m.failure, m.wrong = of("success"), of("failure"), of("error")
	m.other = m.users.WithLabelValues("other")
	return m
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.users, m.attempts, m.took, m.expiry}
}

// done counts a request.
func (m *Metrics) done(u *User, err error, took time.Duration) {
	o := &m.success
	switch {
	case err != nil:
		o = &m.wrong
	case u == nil:
		o = &m.failure
	default:
		m.user(u.Name)
	}
	o.attempts.Inc()
	o.took.Observe(took.Seconds())
}

// user counts a request of a user. No label shows a name that clients can choose.
func (m *Metrics) user(name string) {
	switch {
	case name == "admin", name == "client", name == "kube_proxy", name == "kubelet", name == "system:serviceaccount:kube-system:default":
		m.users.WithLabelValues(name).Inc()
	case strings.Contains(name, "@"):
		m.users.WithLabelValues("email_id").Inc()
	default:
		m.other.Inc()
	}
}
