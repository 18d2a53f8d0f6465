package manifest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count the reloads of directories. Make them with NewMetrics. They are safe for concurrent
// use. A nil Metrics counts nothing.
type Metrics struct {
	reloads *prometheus.CounterVec
	last    *prometheus.GaugeVec
	info    *prometheus.Desc
	server  string // the hash that identifies this server

	mu          sync.Mutex // guards the field below
	directories []*Directory
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	host, _ := os.Hostname()
	const prefix = "apiserver_manifest_admission_config_controller_"
	labels := []string{"status", "plugin", "apiserver_id_hash"}
	return &Metrics{
		server: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(host))),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "automatic_reloads_total", Help: "Reloads of the manifests of admission plugins, by status and plugin."}, labels),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "automatic_reload_last_timestamp_seconds", Help: "Time of the last reload of the manifests of admission plugins, by status and plugin."}, labels),
		info: prometheus.NewDesc(prefix+"last_config_info", "1; the label hash identifies the manifests of an admission plugin that are in use.",
			[]string{"plugin", "apiserver_id_hash", "hash"}, nil),
	}
}

// Collectors returns the collectors of the metrics.
func (m *Metrics) Collectors() []prometheus.Collector { return []prometheus.Collector{m} }

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.reloads.Describe(to)
	m.last.Describe(to)
	to <- m.info
}

// Collect implements prometheus.Collector. It looks for changes of the files first, which no request
// may have done for a while.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	all := m.directories
	m.mu.Unlock()
	for _, d := range all {
		to <- prometheus.MustNewConstMetric(m.info, prometheus.GaugeValue, 1, d.plugin, m.server, d.Get().hash)
	}
	m.reloads.Collect(to)
	m.last.Collect(to)
}

// watch adds a directory that is in use.
func (m *Metrics) watch(d *Directory) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.directories = append(m.directories, d)
	m.count("success", d.plugin)
}

// loaded counts a set of files that is in use from now on.
func (m *Metrics) loaded(plugin string) {
	if m != nil {
		m.count("success", plugin)
	}
}

// failed counts files that cannot be used.
func (m *Metrics) failed(plugin string) {
	if m != nil {
		m.count("failure", plugin)
	}
}

func (m *Metrics) count(status, plugin string) {
	m.reloads.WithLabelValues(status, plugin, m.server).Inc()
	m.last.WithLabelValues(status, plugin, m.server).SetToCurrentTime()
}
