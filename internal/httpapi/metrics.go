package httpapi

import (
	"net/http"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// metrics have the names that dashboards for Kubernetes expect. No label holds text that a
// client can choose: unknown values are "other" or empty. The metrics of a route are looked
// up once and then kept, so that a request costs a few additions.
type metrics struct {
	handler http.Handler

	requests     *prometheus.CounterVec
	durations    *prometheus.HistogramVec
	sizes        *prometheus.HistogramVec
	longrunning  *prometheus.GaugeVec
	terminations *prometheus.CounterVec
	events       *prometheus.CounterVec
	eventSizes   *prometheus.HistogramVec

	mu     sync.RWMutex
	routes map[routeKey]*routeMetrics // guarded by mu
}

// maxRoutes bounds the routes that are kept. Clients make new ones with every custom
// resource that they define. Later routes are counted together, without a resource.
const maxRoutes = 10_000

// routeKey identifies the requests that are counted together. It names a type instead of
// pointing to it, so that deleted definitions are not kept in memory.
type routeKey struct {
	group, version, resource string // empty: not a resource
	sub                      string // of a known subresource, or a known path
	verb, scope              string
	dryRun                   string // "All", "" for none
}

// routeMetrics are the metrics of a route.
type routeMetrics struct {
	labels   []string // verb, group, version, resource, subresource, scope
	dryRun   string
	duration prometheus.Observer
	size     prometheus.Observer // nil: not measured for this verb
	running  prometheus.Gauge
	events   prometheus.Counter
	event    prometheus.Observer
	codes    atomic.Pointer[[]codeCounter]
}

type codeCounter struct {
	code int
	n    prometheus.Counter
}

var (
	durationBuckets = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	sizeBuckets     = prometheus.ExponentialBuckets(1000, 10, 7)
	eventBuckets    = prometheus.ExponentialBuckets(1024, 2, 8)
	routeLabels     = []string{"verb", "group", "version", "resource", "subresource", "scope", "component"}
	requestLabels   = []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component", "code"}
	durationLabels  = []string{"verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component"}
	eventLabels     = []string{"group", "version", "resource"}
)

func newMetrics(h *Handler, more []prometheus.Collector) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests, by verb, dry run, group, version, resource, scope, component and code."}, requestLabels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_request_duration_seconds", Buckets: durationBuckets,
			Help: "Time from the headers of a request to the end of its answer; watches are not in it."}, durationLabels),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_response_sizes", Buckets: sizeBuckets,
			Help: "Bytes of the answers to get and list."}, routeLabels),
		longrunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches under way."}, routeLabels),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total",
			Help: "Requests that the server ended in self-defence."}, append(routeLabels[:len(routeLabels):len(routeLabels)], "code")),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total", Help: "Events sent to watches."}, eventLabels),
		eventSizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_watch_events_sizes", Buckets: eventBuckets, Help: "Bytes of events sent to watches."}, eventLabels),
	}
	m.routes = map[routeKey]*routeMetrics{}
	// The cost of garbage collection: CPU, pauses, live heap.
	garbage := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:|^/cpu/classes/gc/mark/|^/sched/pauses/total/gc:`)}
	r := prometheus.NewRegistry()
	r.MustRegister(m.requests, m.durations, m.sizes, m.longrunning, m.terminations, m.events, m.eventSizes,
		inFlight("readOnly", h.gate, false), inFlight("mutating", h.gate, true), waitingBytes(h.gate), buildInfo(&h.c),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(garbage)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(more...)
	if h.flows != nil {
		r.MustRegister(flowMetrics{h.gate, h.flows})
	}
	r.MustRegister(h.c.Collectors...)
	if h.c.Metrics != nil {
		r.MustRegister(further(h.c.Metrics))
	}
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

func inFlight(kind string, g *fairness.Gate, writes bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "apiserver_current_inflight_requests", ConstLabels: prometheus.Labels{"request_kind": kind},
		Help: "Requests that execute. Requests that wait for their client do not, nor do watches that have begun."},
		func() float64 { return float64(g.Executing(writes)) })
}

func waitingBytes(g *fairness.Gate) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tidemark_waiting_requests_bytes", Help: "Memory held by requests that wait for their clients: bodies, and answers that are not read."},
		func() float64 { return float64(g.Bytes()) })
}

func buildInfo(c *Config) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kubernetes_build_info", Help: "1; the labels tell the build.",
		ConstLabels: prometheus.Labels{
			"major": major, "minor": minor, "git_version": c.Version, "git_commit": c.Commit, "git_tree_state": "",
			"build_date": c.buildDate(), "go_version": runtime.Version(), "compiler": runtime.Compiler, "platform": platform,
		}})
	g.Set(1)
	return g
}

// further collects the metrics of Config.Metrics.
type further func() []Metric

// Describe implements prometheus.Collector. It describes nothing: the metrics are those of
// the scrape.
func (further) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f further) Collect(to chan<- prometheus.Metric) {
	for _, m := range f() {
		kind := prometheus.GaugeValue
		if m.Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(m.Name, m.Help, nil, m.Labels), kind, m.Value)
	}
}

// routeBytes estimates the memory for a route while its metrics are sent.
const routeBytes = 6 << 10

// bytes estimates the memory for all metrics while they are sent.
func (m *metrics) bytes() int {
	const others = 256 << 10
	m.mu.RLock()
	defer m.mu.RUnlock()
	return others + len(m.routes)*routeBytes
}

// route returns the metrics that a request counts in.
func (m *metrics) route(q *request) *routeMetrics {
	k := keyOf(q)
	m.mu.RLock()
	r := m.routes[k]
	m.mu.RUnlock()
	if r != nil {
		return r
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.routes) >= maxRoutes {
		k = routeKey{verb: k.verb, scope: k.scope, dryRun: k.dryRun}
	}
	if r := m.routes[k]; r != nil {
		return r
	}
	r = m.newRoute(k)
	m.routes[k] = r
	return r
}

// keyOf returns the key of a request. It names only resources and paths that exist.
func keyOf(q *request) routeKey {
	k := routeKey{verb: metricVerb(q), scope: "cluster", dryRun: q.dryRun()}
	if q.typ == nil {
		k.scope = ""
		if q.info.kind == otherPath {
			k.sub = knownPath(q.r.URL.Path)
		}
		return k
	}
	k.group, k.version, k.resource = q.typ.Group, q.typ.Version, q.typ.Resource
	if s := q.typ.Subresource(q.info.Subresource); s != nil {
		k.sub = s.Name
	}
	switch {
	case q.info.Name != "" || q.info.Verb == verbCreate:
		k.scope = "resource"
	case q.info.inNamespace:
		k.scope = "namespace"
	}
	return k
}

// dryRun returns the value of the dryRun label.
func (q *request) dryRun() string {
	switch q.info.Verb {
	case verbCreate, verbUpdate, verbPatch, verbDelete, verbDeleteCollection:
	default:
		return ""
	}
	switch value, _ := lookup(q.r.URL.RawQuery, "dryRun"); value {
	case "", metav1.DryRunAll:
		return value
	}
	return "invalid"
}

func metricVerb(q *request) string {
	switch q.info.Verb {
	case verbGet:
		return "GET"
	case verbList:
		return "LIST"
	case verbWatch:
		return "WATCH"
	case verbCreate, "post":
		return "POST"
	case verbUpdate, "put":
		return "PUT"
	case verbPatch:
		if q.isApply() {
			return "APPLY"
		}
		return "PATCH"
	case verbDelete, verbDeleteCollection: // the scope distinguishes them
		return "DELETE"
	}
	return "other"
}

// knownPath returns the path of a page without its variable part, or "".
func knownPath(path string) string {
	switch {
	case path == "/", path == "/version", path == "/metrics":
		return path
	case isHealth(path):
		for _, p := range []string{"/healthz", "/livez", "/readyz"} {
			if len(path) >= len(p) && path[:len(p)] == p {
				return p
			}
		}
	case path == "/openapi/v3", strings.HasPrefix(path, "/openapi/v3/"):
		return "/openapi/v3"
	case path == "/openapi/v2":
		return path
	}
	return ""
}

func (m *metrics) newRoute(k routeKey) *routeMetrics {
	r := &routeMetrics{labels: []string{k.verb, k.group, k.version, k.resource, k.sub, k.scope}, dryRun: k.dryRun}
	r.codes.Store(&[]codeCounter{})
	if k.verb == "WATCH" {
		r.running = m.longrunning.WithLabelValues(append(r.labels, component)...)
		r.events = m.events.WithLabelValues(k.group, k.version, k.resource)
		r.event = m.eventSizes.WithLabelValues(k.group, k.version, k.resource)
		return r
	}
	r.duration = m.durations.WithLabelValues(k.verb, k.dryRun, k.group, k.version, k.resource, k.sub, k.scope, component)
	if k.verb == "GET" || k.verb == "LIST" {
		r.size = m.sizes.WithLabelValues(append(r.labels, component)...)
	}
	return r
}

const component = "apiserver"

// done counts a request that has ended.
func (m *metrics) done(q *request) {
	r := m.route(q)
	if r.duration != nil {
		r.duration.Observe(time.Since(q.start).Seconds())
	}
	if r.size != nil {
		r.size.Observe(float64(q.bytes))
	}
	for _, c := range *r.codes.Load() {
		if c.code == q.code {
			c.n.Inc()
			return
		}
	}
	m.newCode(r, q.code).Inc()
}

func (m *metrics) newCode(r *routeMetrics, code int) prometheus.Counter {
	l := r.labels
	n := m.requests.WithLabelValues(l[0], r.dryRun, l[1], l[2], l[3], l[4], l[5], component, strconv.Itoa(code))
	m.mu.Lock()
	defer m.mu.Unlock()
	old := *r.codes.Load()
	next := append(old[:len(old):len(old)], codeCounter{code, n})
	r.codes.Store(&next)
	return n
}

// longRunning counts a watch that begins, and returns the metrics of its route.
func (m *metrics) longRunning(q *request) *routeMetrics {
	r := m.route(q)
	r.running.Inc()
	return r
}

// sent counts an event of a watch.
func (r *routeMetrics) sent(bytes int) {
	r.events.Inc()
	r.event.Observe(float64(bytes))
}

// terminated counts a request that the server ended at its deadline.
func (m *metrics) terminated(q *request) {
	m.terminate(q, http.StatusGatewayTimeout)
}

// overload counts a request that found no free seat.
func (m *metrics) overload(q *request) { m.terminate(q, http.StatusTooManyRequests) }

func (m *metrics) terminate(q *request, code int) {
	r := m.route(q)
	m.terminations.WithLabelValues(append(r.labels[:6:6], component, strconv.Itoa(code))...).Inc()
}
