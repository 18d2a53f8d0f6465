package httpapi

import (
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// metrics have the names that dashboards for Kubernetes expect. No label holds text that a
// client can choose: unknown values are "other" or empty. The metrics of a route are looked
// up once and then kept, so that a request costs a few additions.
type metrics struct {
	gathered prometheus.Gatherer // the metrics of other parts
	exposed  []exposition.Source
	catalog  func() *resource.Catalog

	families families

	authorized   [len(outcomes)]outcome
	validations  map[string]*exposition.Histogram
	healthchecks healthchecks

	mu     sync.RWMutex
	routes map[routeKey]*routeMetrics // guarded by mu, as are the series of families
	// forgot is the catalog of the last call of forget.
	forgot *resource.Catalog
}

// maxRoutes bounds the routes that are kept. Clients make new ones with every custom
// resource that they define. When there would be more, the routes of resources that are not
// served any more are dropped; if that is not enough, later routes are counted together,
// without a resource.
const maxRoutes = 10_000

// routeKey identifies the requests that are counted together. It names a type instead of
// pointing to it, so that deleted definitions are not kept in memory.
type routeKey struct {
	group, version, resource string // empty: not a resource
	sub                      string // of a known subresource, or a known path
	verb, scope              string
	dryRun                   string // "All", "" for none
	one                      bool   // a list or a watch of one object, by its name
}

// routeMetrics are the metrics of a route. A metric that the verb does not have is nil.
type routeMetrics struct {
	key      routeKey
	duration *exposition.Histogram
	sli      *exposition.Histogram
	size     *exposition.Histogram
	body     *exposition.Histogram
	codes    atomic.Pointer[[]codeCounter]

	// Of resources.
	deprecated *atomic.Int64

	// Of lists.
	// inMemory and logged are lists, by where they read objects: how many, objects read, looked at, listed.
	inMemory, logged *[4]*atomic.Uint64
	// logTime is the time of those that read the log.
	logTime *exposition.Histogram

	// Of watches.
	running    *atomic.Int64
	events     *atomic.Uint64
	event      *exposition.Histogram
	initial    *atomic.Uint64
	watchList  *exposition.Histogram
	terminated *atomic.Uint64
}

type codeCounter struct {
	code int
	n    *atomic.Uint64
}

var (
	durationBuckets = exposition.Seconds(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
	sliBuckets      = exposition.Seconds(0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
	listBuckets     = exposition.Seconds(0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
	authzBuckets    = exposition.Seconds(prometheus.ExponentialBuckets(0.001, 2, 15)...)
	sizeBuckets     = exposition.Numbers(prometheus.ExponentialBuckets(1000, 10, 7)...)
	bodyBuckets     = exposition.Numbers(prometheus.LinearBuckets(50_000, 100_000, 31)...)
	eventBuckets    = exposition.Numbers(prometheus.ExponentialBuckets(1024, 2, 8)...)
)

func newMetrics(h *Handler, more []prometheus.Collector) *metrics {
	m := &metrics{routes: map[routeKey]*routeMetrics{}, exposed: h.c.Exposed, catalog: h.c.Catalog, validations: map[string]*exposition.Histogram{}}
	m.families.begin()
	for i := range m.authorized {
		m.authorized[i].took = authzBuckets.New()
	}
	for _, v := range []string{"", metav1.FieldValidationIgnore, metav1.FieldValidationWarn, metav1.FieldValidationStrict, invalidValue} {
		m.validations[v] = sliBuckets.New()
	}
	// The cost of garbage collection: CPU, pauses, live heap.
	garbage := collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/gc/heap/live:|^/cpu/classes/gc/mark/|^/sched/pauses/total/gc:`)}
	r := prometheus.NewRegistry()
	r.MustRegister(inFlight("readOnly", h.gate, false), inFlight("mutating", h.gate, true), waitingBytes(h.gate), buildInfo(&h.c),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(garbage)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(more...)
	if h.flows != nil {
		r.MustRegister(flowMetrics{h.gate, h.flows})
	}
	r.MustRegister(h.c.Collectors...)
	m.gathered = r
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
		Name: "tidemark_waiting_requests_bytes", Help: "Memory held by requests that wait for their clients: bodies, and responses that are not read."},
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

// scrapeBytes estimates the memory for the metrics while they are sent. Those of routes are sent in pieces.
const scrapeBytes = 512 << 10

// ServeHTTP responds with all metrics, in Prometheus' text format.
func (m *metrics) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	gathered, err := m.gathered.Gather()
	if err != nil {
		http.Error(w, "the metrics cannot be gathered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header()["Content-Type"] = []string{exposition.ContentType}
	out := exposition.NewWriter(w)
	for _, f := range gathered {
		if _, err := expfmt.MetricFamilyToText(out, f); err != nil {
			panic(http.ErrAbortHandler) // the client is gone
		}
	}
	m.Expose(out)
	for _, s := range m.exposed {
		s.Expose(out)
	}
	if out.Close() != nil {
		panic(http.ErrAbortHandler)
	}
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
		m.forget()
	}
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

// forget drops the routes and series of resources that are not served. The caller holds mu.
func (m *metrics) forget() {
	c := m.catalog()
	if c == m.forgot {
		return
	}
	m.forgot = c
	gone := func(k *seriesKey) bool { return k.resource != "" && c.Lookup(k.group, k.version, k.resource) == nil }
	for k := range m.routes {
		if gone(&seriesKey{k.group, k.version, k.resource}) {
			delete(m.routes, k)
		}
	}
	m.families.forget(gone)
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
		if s.Connect != nil {
			k.verb = "CONNECT"
		}
	}
	switch {
	case !q.info.collection || q.info.Verb == verbCreate:
		k.scope = "resource"
	case q.info.inNamespace:
		k.scope = "namespace"
	}
	k.one = q.info.Verb == verbWatch && q.info.Name != "" && k.scope != "resource"
	return k
}

const invalidValue = "invalid"

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
	return invalidValue
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
	case path == "/", path == "/version", path == "/metrics", path == slisPath:
		return path
	case isHealth(path):
		for _, p := range []string{"/healthz", "/livez", "/readyz"} {
			if len(path) >= len(p) && path[:len(p)] == p {
				return p
			}
		}
	case path == "/openapi/v3", strings.HasPrefix(path, "/openapi/v3/"): // without the first slash, as in kube-apiserver
		return path[1:min(len(path), len("/openapi/v3/"))]
	case path == "/openapi/v2":
		return path
	}
	return ""
}

// bodyVerbs are the values of the label verb of apiserver_request_body_size_bytes.
var bodyVerbs = map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "APPLY": "patch", "DELETE": "delete"}

func (m *metrics) newRoute(k routeKey) *routeMetrics {
	r := &routeMetrics{key: k}
	r.codes.Store(&[]codeCounter{})
	f := &m.families
	r.duration = f.durations.of(k.series(), k.withComponent("dry_run", k.dryRun))
	if k.verb != "WATCH" {
		r.sli = f.slis.of(k.series(), k.withComponent())
	}
	if k.verb == "GET" || k.verb == "LIST" || k.verb == "WATCH" {
		r.size = f.sizes.of(k.series(), k.withComponent())
	}
	if k.resource == "" {
		return r
	}
	r.deprecated = f.deprecated.of(k.series(), exposition.Labels("group", k.group, "removed_release", "", "resource", k.resource, "subresource", k.sub, "version", k.version))
	if verb := bodyVerbs[k.verb]; verb != "" {
		if k.verb == "DELETE" && k.scope != "resource" {
			verb = "delete_collection"
		}
		r.body = f.bodies.of(k.series(), exposition.Labels("group", k.group, "resource", k.resource, "verb", verb))
	}
	of := exposition.Labels("group", k.group, "resource", k.resource)
	switch k.verb {
	case "LIST":
		r.inMemory, r.logged = k.lists(f, "watchcache"), k.lists(f, "etcd")
		r.logTime = f.logLists.of(k.series(), exposition.Labels("group", k.group, "resource", k.resource, "streamed", "false"))
	case "CONNECT":
		r.running = f.running.of(k.series(), k.withComponent())
	case "WATCH":
		if k.one {
			k.scope = "resource"
		}
		versioned := exposition.Labels("group", k.group, "resource", k.resource, "version", k.version)
		r.running = f.running.of(k.series(), k.withComponent())
		r.events, r.event = f.events.of(k.series(), versioned), f.eventSizes.of(k.series(), versioned)
		r.initial, r.terminated = f.initial.of(k.series(), of), f.terminated.of(k.series(), of)
		r.watchList = f.watchLists.of(k.series(), exposition.Labels("group", k.group, "resource", k.resource, "scope", k.scope, "version", k.version))
	}
	return r
}

// lists returns the counters of lists that read objects from one storage.
func (k *routeKey) lists(f *families, storage string) *[4]*atomic.Uint64 {
	all := new([4]*atomic.Uint64)
	of := exposition.Labels("group", k.group, "resource", k.resource, "storage", storage)
	indexed := exposition.Labels("group", k.group, "index", "", "resource", k.resource, "storage", storage)
	for i, labels := range [...]string{indexed, indexed, of, of} {
		all[i] = f.lists[i].of(k.series(), labels)
	}
	return all
}

// component is the label of resources. Other paths have an empty one.
const component = "apiserver"

// series returns the key by which the series of the route are forgotten.
func (k *routeKey) series() seriesKey { return seriesKey{k.group, k.version, k.resource} }

// labels returns the labels of the route after that of its component.
func (k *routeKey) labels() string {
	return exposition.Labels("group", k.group, "resource", k.resource, "scope", k.scope, "subresource", k.sub, "verb", k.verb, "version", k.version)
}

// withComponent returns the labels of the route, with more behind that of the component.
func (k *routeKey) withComponent(more ...string) string {
	of := component
	if k.resource == "" {
		of = ""
	}
	return exposition.Labels(append([]string{"component", of}, more...)...) + "," + k.labels()
}

// withCode is withComponent after a label for the status.
func (k *routeKey) withCode(code int, more ...string) string {
	return exposition.Labels("code", strconv.Itoa(code)) + "," + k.withComponent(more...)
}

// done counts a request that has ended.
func (m *metrics) done(q *request) (took time.Duration) {
	r := m.route(q)
	took = time.Since(q.start)
	r.duration.Observe(int64(took))
	if r.sli != nil {
		r.sli.Observe(int64(max(0, took-q.parts.queue-q.away)))
	}
	if r.size != nil {
		r.size.Observe(q.bytes)
	}
	if r.body != nil {
		if q.received >= 0 {
			r.body.Observe(q.received)
		}
		if r.key.verb != "DELETE" {
			m.validated(q, took)
		}
	}
	m.code(r, q.code).Add(1)
	return took
}

// validated counts a write with a body.
func (m *metrics) validated(q *request, took time.Duration) {
	value, _ := lookup(q.r.URL.RawQuery, "fieldValidation")
	h := m.validations[value]
	if h == nil {
		h = m.validations[invalidValue]
	}
	h.Observe(int64(took))
}

// code returns the counter of a route and a status.
func (m *metrics) code(r *routeMetrics, code int) *atomic.Uint64 {
	for _, c := range *r.codes.Load() {
		if c.code == code {
			return c.n
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.families.requests.of(r.key.series(), r.key.withCode(code, "dry_run", r.key.dryRun))
	old := *r.codes.Load()
	next := append(old[:len(old):len(old)], codeCounter{code, n})
	r.codes.Store(&next)
	return n
}

// longRunning counts a watch or a connection that begins, and returns the metrics of its route.
func (m *metrics) longRunning(q *request) *routeMetrics {
	r := m.route(q)
	if r.running == nil { // there are too many routes
		r = m.unknownWatch()
	}
	r.running.Add(1)
	return r
}

// unknownWatch returns the metrics of watches beyond maxRoutes.
func (m *metrics) unknownWatch() *routeMetrics {
	return &routeMetrics{running: new(atomic.Int64), events: new(atomic.Uint64), event: eventBuckets.New(), initial: new(atomic.Uint64), terminated: new(atomic.Uint64), watchList: listBuckets.New()}
}

// sent counts an event of a watch.
func (r *routeMetrics) sent(bytes int) {
	r.events.Add(1)
	r.event.Observe(int64(bytes))
}

// began counts events of the beginning of a watch.
func (r *routeMetrics) began(q *request, events []registry.Event) {
	n := uint64(0)
	for i := range events {
		switch e := &events[i]; {
		case e.Type == registry.Added:
			n++
		case e.InitialEventsEnd:
			r.watchList.Observe(int64(time.Since(q.start)))
		}
	}
	r.initial.Add(n)
}

// listedBy counts a list that was sent.
func (m *metrics) listedBy(q *request, l *registry.List) {
	r := m.route(q)
	if r.inMemory == nil {
		return
	}
	to, compared := r.inMemory, uint64(0) // kube-apiserver does not count comparisons in its cache
	if l.FromLog {
		to, compared = r.logged, uint64(l.Read)
		r.logTime.Observe(int64(time.Since(l.Began)))
	}
	for i, n := range [...]uint64{1, uint64(l.Read), compared, uint64(l.Selected)} {
		to[i].Add(n)
	}
}

// usesDeprecated records a request for a deprecated resource.
func (m *metrics) usesDeprecated(q *request) {
	if g := m.route(q).deprecated; g != nil && g.Load() == 0 {
		g.Store(1)
	}
}

// stalled counts a watch that ended because its client did not read.
func (q *request) stalled(err error) {
	if q.route != nil && (err == errNoRoom || os.IsTimeout(err)) {
		q.route.terminated.Add(1)
	}
}

// terminated counts a request that the server ended at its deadline.
func (m *metrics) terminated(q *request) {
	m.terminate(q, http.StatusGatewayTimeout)
}

// overload counts a request that found no free seat.
func (m *metrics) overload(q *request) { m.terminate(q, http.StatusTooManyRequests) }

func (m *metrics) terminate(q *request, code int) {
	k := m.route(q).key
	m.mu.Lock()
	defer m.mu.Unlock()
	m.families.terminations.of(k.series(), k.withCode(code)).Add(1)
}

// abort counts a request whose response was broken off.
func (m *metrics) abort(q *request) {
	k := m.route(q).key
	m.mu.Lock()
	defer m.mu.Unlock()
	m.families.aborts.of(k.series(), k.labels()).Add(1)
}

// outcome is how authorization ended.
type outcome struct {
	attempts atomic.Uint64
	took     *exposition.Histogram
}

var outcomes = [...]string{"allowed", "denied", "no-opinion", "error"}

// decided counts a decision of authorization.
func (m *metrics) decided(d authz.Decision, err error, took time.Duration) {
	i := 2
	switch {
	case d == authz.Allow:
		i = 0
	case err != nil:
		i = 3
	case d == authz.Deny:
		i = 1
	}
	m.authorized[i].attempts.Add(1)
	m.authorized[i].took.Observe(int64(took))
}
