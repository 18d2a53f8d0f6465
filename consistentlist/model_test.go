package consistentlist_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// age is how a server of some release understands lists and watches.
type age struct {
	name    string
	match   bool // knows resourceVersionMatch
	streams stream
}

// stream is how a server handles sendInitialEvents.
type stream int

const (
	ignored stream = iota
	refused
	works
)

var ages = []age{
	{"1.18", false, ignored},
	{"1.19", true, refused},
	{"1.31", true, refused},
	{"1.36", true, works},
}

// change is one write: an object is there from now on in this version, or gone.
type change struct {
	name    string
	deleted bool
	before  bool // it was there before
}

// response is a page before it is written.
type response struct {
	version, token string
	names          []string
	versions       map[string]int
}

// model is a small API server with one collection of config maps, and its whole
// history. Its first revision is 100; changes[i] made revision 100+i.
type model struct {
	age age

	mu      sync.Mutex
	changes []change      // guarded by mu
	floor   int           // guarded by mu: the oldest revision that is kept
	changed chan struct{} // guarded by mu: closed by each change
	cuts    chan struct{} // guarded by mu: closed by each cut
	seen    []string      // guarded by mu: the requests
	// refusals is how many requests get 503 before one is served; guarded by mu.
	refusals int

	// before responds to a request in place of the model, if it returns true.
	before func(w http.ResponseWriter, r *http.Request) bool
	// tamper spoils a page.
	tamper func(r *http.Request, page *response)
	// spoil spoils a watch event; it returns the events to send in its place.
	spoil func(event map[string]any) []map[string]any
	// opaque writes versions as no integers.
	opaque bool
}

const origin = 100

func newModel(a age) *model {
	m := &model{age: a, floor: origin, changed: make(chan struct{}), cuts: make(chan struct{})}
	m.write("first", false)
	return m
}

func (m *model) now() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return origin + len(m.changes) - 1
}

// write makes a revision, and returns it.
func (m *model) write(name string, deleted bool) int {
	before := m.state(m.now())
	_, was := before[name]
	m.mu.Lock()
	defer m.mu.Unlock()
	if !deleted || was {
		m.changes = append(m.changes, change{name, deleted, was})
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return origin + len(m.changes) - 1
}

// compact forgets everything before a revision.
func (m *model) compact(floor int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = max(m.floor, floor)
}

// cut ends all watches.
func (m *model) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.cuts)
	m.cuts = make(chan struct{})
}

// state is the names of a revision, with their versions.
func (m *model) state(at int) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := map[string]int{}
	for i, c := range m.changes {
		switch {
		case origin+i > at:
		case c.deleted:
			delete(state, c.name)
		default:
			state[c.name] = origin + i
		}
	}
	return state
}

func (m *model) requests() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

func (m *model) text(version int) string {
	if m.opaque {
		return fmt.Sprintf("rev-%x", version)
	}
	return strconv.Itoa(version)
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	m.seen = append(m.seen, r.URL.RawQuery)
	refuse := m.refusals > 0
	m.refusals = max(m.refusals-1, 0)
	m.mu.Unlock()
	switch {
	case refuse:
		w.WriteHeader(http.StatusServiceUnavailable)
	case m.before != nil && m.before(w, r):
	case r.URL.Query().Get("watch") != "":
		m.watch(w, r)
	default:
		m.list(w, r)
	}
}

// list is the table of API Concepts, "Semantics for get and list".
func (m *model) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	asked, match, token := q.Get("resourceVersion"), q.Get("resourceVersionMatch"), q.Get("continue")
	limit, _ := strconv.Atoi(q.Get("limit"))
	if !m.age.match {
		match = ""
	}
	now, start := m.now(), ""
	at := now
	m.mu.Lock()
	floor := m.floor
	m.mu.Unlock()
	number, _ := strconv.Atoi(asked)
	switch {
	case token != "" && (match != "" || asked != "" && asked != "0"):
		fail(w, 422, metav1.StatusReasonInvalid, "not with continue", "", 0)
		return
	case token != "":
		var rev int
		fmt.Sscanf(token, "%d:%s", &rev, &start)
		switch {
		case rev < 0:
		case rev < floor:
			fail(w, 410, metav1.StatusReasonExpired, "the continue token is too old", "-1:"+start, 0)
			return
		default:
			at = rev
		}
	case asked == "" && match != "":
		fail(w, 422, metav1.StatusReasonInvalid, "no match without a version", "", 0)
		return
	case asked == "":
	case asked == "0":
		limit = 0
	case m.opaque:
	case number > now:
		tooLargeVersion(w)
		return
	case match == "Exact" || match == "" && limit > 0:
		if number < floor {
			fail(w, 410, metav1.StatusReasonExpired, "the version is too old", "", 0)
			return
		}
		at = number
	}
	state := m.state(at)
	page := response{version: m.text(at), versions: state}
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if name < start {
			continue
		}
		if limit > 0 && len(page.names) == limit {
			page.token = fmt.Sprintf("%d:%s", at, name)
			break
		}
		page.names = append(page.names, name)
	}
	if m.tamper != nil {
		m.tamper(r, &page)
	}
	items := []any{}
	for _, name := range page.names {
		items = append(items, m.object(name, page.versions[name], r))
	}
	kind, group := "ConfigMapList", "v1"
	if partial(r) {
		kind, group = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	reply(w, 200, map[string]any{"kind": kind, "apiVersion": group, "items": items,
		"metadata": map[string]any{"resourceVersion": page.version, "continue": page.token}})
}

func partial(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "as=Partial") }

func (m *model) object(name string, version int, r *http.Request) map[string]any {
	kind, group := "ConfigMap", "v1"
	if partial(r) {
		kind, group = "PartialObjectMetadata", "meta.k8s.io/v1"
	}
	meta := map[string]any{"resourceVersion": m.text(version)}
	if name != "" {
		meta["name"], meta["namespace"] = name, "default"
	}
	return map[string]any{"kind": kind, "apiVersion": group, "metadata": meta}
}

// watch sends synthetic events if requested, and then the changes.
func (m *model) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	asked, initial := q.Get("resourceVersion"), q.Get("sendInitialEvents") == "true"
	switch {
	case initial && m.age.streams == refused, m.age.match && q.Get("resourceVersionMatch") != "" && !initial:
		fail(w, 422, metav1.StatusReasonInvalid, "forbidden for watch", "", 0)
		return
	}
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	timeout := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timeout.Stop()
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	send := func(kind string, object map[string]any) {
		events := []map[string]any{{"type": kind, "object": object}}
		if m.spoil != nil {
			events = m.spoil(events[0])
		}
		for _, e := range events {
			if out.Encode(e) != nil {
				return
			}
		}
		_ = http.NewResponseController(w).Flush()
	}
	at := m.now()
	number, _ := strconv.Atoi(asked)
	m.mu.Lock()
	floor, cuts := m.floor, m.cuts
	m.mu.Unlock()
	switch {
	case initial && m.age.streams == works || asked == "" || asked == "0":
		if number > at {
			send("ERROR", status(504, metav1.StatusReasonTimeout, "Too large resource version", "", 1))
			return
		}
		state := m.state(at)
		for _, name := range slices.Sorted(maps.Keys(state)) {
			send("ADDED", m.object(name, state[name], r))
		}
		if initial && m.age.streams == works {
			end := m.object("", at, r)
			end["metadata"].(map[string]any)["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
			send("BOOKMARK", end)
		}
	case m.opaque:
	case number < floor-1:
		send("ERROR", status(410, metav1.StatusReasonExpired, "too old resource version", "", 0))
		return
	default:
		at = number
	}
	_ = http.NewResponseController(w).Flush()
	for {
		m.mu.Lock()
		changed := m.changed
		var next []change
		if i := at + 1 - origin; i < len(m.changes) {
			next = m.changes[i:]
		}
		m.mu.Unlock()
		for _, c := range next {
			at++
			kind := "ADDED"
			switch {
			case c.deleted:
				kind = "DELETED"
			case c.before:
				kind = "MODIFIED"
			}
			send(kind, m.object(c.name, at, r))
		}
		select {
		case <-changed:
		case <-timeout.C:
			return
		case <-cuts:
			return
		case <-r.Context().Done():
			return
		case <-time.After(50 * time.Second):
			if q.Get("allowWatchBookmarks") == "true" {
				send("BOOKMARK", m.object("", at, r))
			}
		}
	}
}

func status(code int, reason metav1.StatusReason, message, token string, retryAfter int) map[string]any {
	s := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}
	if token != "" {
		s["metadata"] = map[string]any{"continue": token}
	}
	details := map[string]any{}
	if retryAfter > 0 {
		details["retryAfterSeconds"] = retryAfter
	}
	if code == 504 {
		details["causes"] = []any{map[string]any{"reason": metav1.CauseTypeResourceVersionTooLarge, "message": message}}
	}
	s["details"] = details
	return s
}

func tooLargeVersion(w http.ResponseWriter) {
	fail(w, 504, metav1.StatusReasonTimeout, "Too large resource version", "", 1)
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, message, token string, retryAfter int) {
	if retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	reply(w, code, status(code, reason, message, token, retryAfter))
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// pipes is a network inside a synctest bubble: a listener whose connections are
// pipes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// configMaps is a small typed client: the real one would bring many modules, and the suites of real
// clients use it.
type configMaps struct{ client rest.Interface }

func (c configMaps) List(ctx context.Context, o metav1.ListOptions) (*corev1.ConfigMapList, error) {
	list := &corev1.ConfigMapList{}
	return list, c.get(o).Do(ctx).Into(list)
}

func (c configMaps) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return c.get(o).Watch(ctx)
}

func (c configMaps) get(o metav1.ListOptions) *rest.Request {
	request := c.client.Get().Namespace("default").Resource("configmaps").VersionedParams(&o, scheme.ParameterCodec)
	if o.TimeoutSeconds != nil {
		request.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return request
}

// clients are the three of client-go, for a handler on a network of its own. Both
// end with the test, which must run in a bubble.
type clients struct {
	typed    configMaps
	dynamic  dynamic.ResourceInterface
	metadata metadata.ResourceInterface
}

func serve(t testing.TB, handler http.Handler) clients {
	t.Helper()
	network := &pipes{make(chan net.Conn), make(chan struct{})}
	server := &http.Server{Handler: handler}
	go server.Serve(network)
	transport := &http.Transport{DialContext: network.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		server.Close()
	})
	config := &rest.Config{Host: "http://model", QPS: -1}
	client := &http.Client{Transport: transport}
	core := rest.CopyConfig(config)
	core.APIPath, core.GroupVersion, core.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	typed, err := rest.RESTClientForConfigAndClient(core, client)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		t.Fatal(err)
	}
	md, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
	if err != nil {
		t.Fatal(err)
	}
	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	return clients{configMaps{typed}, dyn.Resource(gvr).Namespace("default"), md.Resource(gvr).Namespace("default")}
}
