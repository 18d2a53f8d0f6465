package webhook

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the uses of the cache and the calls, by kube-apiserver's names.
type Metrics struct {
	requests *prometheus.CounterVec
	fetches  *prometheus.CounterVec
	took     *prometheus.HistogramVec
	active   prometheus.Gauge
}

// NewMetrics makes Metrics.
func NewMetrics() *Metrics {
	const prefix = "authentication_token_cache_"
	status := []string{"status"}
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "request_total", Help: "Tokens that were looked up in the cache of the token webhook's responses: hit or miss."}, status),
		fetches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "fetch_total", Help: "Calls of the token webhook, with retries: ok or error."}, status),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "request_duration_seconds", Help: "Time of calls of the token webhook, with retries.", Buckets: prometheus.DefBuckets}, status),
		active: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "active_fetch_count", ConstLabels: prometheus.Labels{"status": "in_flight"}, Help: "Calls of the token webhook under way."}),
	}
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.fetches, m.took, m.active}
}

func (m *Metrics) asked(status string) { m.requests.WithLabelValues(status).Inc() }

// fetching counts the start of a call, and returns the function that counts its end.
func (m *Metrics) fetching() (end func(error)) {
	m.active.Inc()
	began := time.Now()
	return func(err error) {
		m.active.Dec()
		status := "ok"
		if err != nil {
			status = "error"
		}
		m.fetches.WithLabelValues(status).Inc()
		m.took.WithLabelValues(status).Observe(time.Since(began).Seconds())
	}
}
