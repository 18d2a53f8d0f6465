package issuers

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of kube-apiserver. Issuers, servers and documents are shown by their hashes.
type metrics struct {
	server string // hash

	reloads    *prometheus.CounterVec
	reloadedAt *prometheus.GaugeVec
	config     *prometheus.GaugeVec
	latency    *prometheus.HistogramVec
	fetchedAt  *prometheus.GaugeVec
	keySet     *prometheus.GaugeVec

	mu   sync.Mutex
	keys map[string]string // the label hash of keySet, by jwt_issuer_hash; guarded by mu
}

const (
	configPrefix = "apiserver_authentication_config_controller_"
	tokenPrefix  = "apiserver_authentication_jwt_authenticator_"

	success = "success"
	failure = "failure"
)

func newMetrics(server string) *metrics {
	return &metrics{
		keys:   map[string]string{},
		server: hash([]byte(server)),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: configPrefix + "automatic_reloads_total",
			Help: "Reloads of the authentication configuration after its file changed.",
		}, []string{"status", "apiserver_id_hash"}),
		reloadedAt: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: configPrefix + "automatic_reload_last_timestamp_seconds",
			Help: "Time of the last reload of the authentication configuration.",
		}, []string{"status", "apiserver_id_hash"}),
		config: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: configPrefix + "last_config_info",
			Help: "1; the label hash identifies the authentication configuration in use.",
		}, []string{"apiserver_id_hash", "hash"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    tokenPrefix + "latency_seconds",
			Help:    "Time to authenticate a JWT whose result was not kept.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"result", "jwt_issuer_hash"}),
		fetchedAt: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: tokenPrefix + "jwks_fetch_last_timestamp_seconds",
			Help: "Time of the last request for the keys of an issuer.",
		}, []string{"result", "jwt_issuer_hash", "apiserver_id_hash"}),
		keySet: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: tokenPrefix + "jwks_fetch_last_key_set_info",
			Help: "1; the label hash identifies the keys that an issuer sent last.",
		}, []string{"jwt_issuer_hash", "apiserver_id_hash", "hash"}),
	}
}

// Collectors collect the metrics.
func (i *Issuers) Collectors() []prometheus.Collector {
	m := i.metrics
	return []prometheus.Collector{m.reloads, m.reloadedAt, m.config, m.latency, m.fetchedAt, m.keySet}
}

// loaded records the configuration in use.
func (m *metrics) loaded(file []byte) {
	m.config.Reset()
	m.config.WithLabelValues(m.server, hash(file)).Set(1)
}

func (m *metrics) reloaded(file []byte) {
	m.countReload(success)
	m.loaded(file)
}

func (m *metrics) reloadFailed() { m.countReload(failure) }

func (m *metrics) countReload(status string) {
	m.reloads.WithLabelValues(status, m.server).Inc()
	m.reloadedAt.WithLabelValues(status, m.server).SetToCurrentTime()
}

func (m *metrics) authenticated(issuer string, took time.Duration, err error) {
	result := success
	if err != nil {
		result = failure
	}
	m.latency.WithLabelValues(result, hash([]byte(issuer))).Observe(took.Seconds())
}

// fetched records a request for keys; no document: it failed.
func (m *metrics) fetched(issuer string, document []byte) {
	id := hash([]byte(issuer))
	if document == nil {
		m.fetchedAt.WithLabelValues(failure, id, m.server).SetToCurrentTime()
		return
	}
	m.fetchedAt.WithLabelValues(success, id, m.server).SetToCurrentTime()
	m.mu.Lock()
	defer m.mu.Unlock()
	former, now := m.keys[id], hash(document)
	m.keySet.WithLabelValues(id, m.server, now).Set(1) // before the former is removed, so that each scrape has one
	if m.keys[id] = now; former != "" && former != now {
		m.keySet.DeleteLabelValues(id, m.server, former)
	}
}

// removed forgets the keys of an issuer that is not configured any more.
func (m *metrics) removed(issuer string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := prometheus.Labels{"jwt_issuer_hash": hash([]byte(issuer))}
	m.fetchedAt.DeletePartialMatch(id)
	m.keySet.DeletePartialMatch(id)
	delete(m.keys, hash([]byte(issuer)))
}

func hash(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(b))
}
