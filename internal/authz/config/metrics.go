package config

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/webhook"
)

// metrics count decisions and reloads.
type metrics struct {
	webhooks  *webhook.Metrics
	decisions *prometheus.CounterVec
	reloads   *prometheus.CounterVec
	last      *prometheus.GaugeVec
	info      configInfo
	server    string // the hash that identifies this server
}

func newMetrics() *metrics {
	host, _ := os.Hostname()
	const prefix = "apiserver_authorization_config_controller_"
	labels := []string{"status", "apiserver_id_hash"}
	return &metrics{
		webhooks: webhook.NewMetrics(),
		server:   hash([]byte(host)),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_decisions_total", Help: "Decisions of authorizers that allowed or denied a request, by type, name and decision."},
			[]string{"type", "name", "decision"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "automatic_reloads_total", Help: "Reloads of the authorization configuration, by status."}, labels),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "automatic_reload_last_timestamp_seconds", Help: "Time of the last reload of the authorization configuration, by status."}, labels),
		info: configInfo{desc: prometheus.NewDesc(prefix+"last_config_info", "1; the label hash identifies the authorization configuration in use.",
			[]string{"apiserver_id_hash", "hash"}, nil)},
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return append(m.webhooks.Collectors(), m.decisions, m.reloads, m.last, &m.info)
}

// counted counts the decisions of an authorizer.
func (m *metrics) counted(mode, name string, a authz.Authorizer) authz.Authorizer {
	return &counted{a, name, m.decisions.WithLabelValues(mode, name, "allowed"), m.decisions.WithLabelValues(mode, name, "denied")}
}

// reloaded counts a reload.
func (m *metrics) reloaded(ok bool) {
	status := "failure"
	if ok {
		status = "success"
	}
	m.reloads.WithLabelValues(status, m.server).Inc()
	m.last.WithLabelValues(status, m.server).SetToCurrentTime()
}

// uses records the file in use.
func (m *metrics) uses(data []byte) {
	one := [2]string{m.server, hash(data)}
	m.info.current.Store(&one)
}

func hash(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// configInfo collects the metric about the file in use.
type configInfo struct {
	desc    *prometheus.Desc
	current atomic.Pointer[[2]string] // nil: no file is in use
}

// Describe implements prometheus.Collector.
func (c *configInfo) Describe(to chan<- *prometheus.Desc) { to <- c.desc }

// Collect implements prometheus.Collector.
func (c *configInfo) Collect(to chan<- prometheus.Metric) {
	if one := c.current.Load(); one != nil {
		to <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1, one[0], one[1])
	}
}
