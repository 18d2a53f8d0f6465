package webhook

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/series"
)

// metrics have the names, labels and buckets of kube-apiserver.
type metrics struct {
	seconds                       *series.Vector[prometheus.Observer]
	rejections, requests, ignored *series.Vector[prometheus.Counter]
}

func newMetrics() *metrics {
	const prefix = "apiserver_admission_webhook_"
	return &metrics{
		seconds: series.Histograms(prometheus.HistogramOpts{
			Name: prefix + "admission_duration_seconds", Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25},
			Help: "Duration of calls of admission webhooks."}, []string{"name", "type", "operation", "rejected"}),
		rejections: series.Counters(prometheus.CounterOpts{
			Name: prefix + "rejection_count",
			Help: "Requests that an admission webhook refused, or that its failure refused."}, []string{"name", "type", "operation", "error_type", "rejection_code"}),
		requests: series.Counters(prometheus.CounterOpts{
			Name: prefix + "request_total", Help: "Calls of admission webhooks."}, []string{"name", "type", "operation", "code", "rejected"}),
		ignored: series.Counters(prometheus.CounterOpts{
			Name: prefix + "fail_open_count", Help: "Failures of admission webhooks that their failure policy ignored."}, []string{"name", "type"}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.rejections, m.requests, m.ignored}
}

// called counts a call. The code is that of the response to the client, 200 if the webhook allows the
// request.
func (m *metrics) called(h *hook, a *registry.Attributes, seconds float64, code int32, rejected bool) {
	phase, operation, is := string(h.phase), string(a.Operation), strconv.FormatBool(rejected)
	m.requests.With(h.name, phase, operation, codeLabel(code), is).Inc()
	m.seconds.With(h.name, phase, operation, is).Observe(seconds)
}

// rejected counts a refusal. Kind is why: no_error, calling_webhook_error or
// apiserver_internal_error.
func (m *metrics) rejected(h *hook, a *registry.Attributes, kind string, code int32) {
	m.rejections.With(h.name, string(h.phase), string(a.Operation), kind, codeLabel(code)).Inc()
}

// failedOpen counts a failure that the failure policy ignored.
func (m *metrics) failedOpen(h *hook) {
	m.ignored.With(h.name, string(h.phase)).Inc()
}

// codeLabel bounds the number of codes that are counted apart.
func codeLabel(code int32) string { return strconv.Itoa(int(min(code, 600))) }
