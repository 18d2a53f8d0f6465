package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

const (
	aggregated   = "application/json" + asAggregated
	asAggregated = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

func TestDiscoveryForms(t *testing.T) {
	s := start(t, wiring{})
	tests := []struct {
		path, accept string
		contentType  string
		starts       string
	}{
		{"/api", "", "application/json", `{"kind":"APIVersions","versions":["v1"]`},
		{"/api/", "", "application/json", `{"kind":"APIVersions"`},
		{"/apis", "", "application/json", `{"kind":"APIGroupList"`},
		{"/apis/", "", "application/json", `{"kind":"APIGroupList"`},
		{"/apis/apps", "", "application/json", `{"kind":"APIGroup"`},
		{"/apis/apps/", "application/yaml", "application/yaml", "apiVersion: v1\nkind: APIGroup\n"},
		{"/apis/apps/v1", "", "application/json", `{"kind":"APIResourceList"`},
		{"/api/v1/", "", "application/json", `{"kind":"APIResourceList"`},
		{"/api", aggregated, aggregated, `{"kind":"APIGroupDiscoveryList"`},
		{"/apis", aggregated + ",application/json", aggregated, `{"kind":"APIGroupDiscoveryList"`},
		{"/apis", "application/json," + aggregated, aggregated, `{"kind":"APIGroupDiscoveryList"`},
		{"/api", "application/yaml" + asAggregated, "application/yaml" + asAggregated, "apiVersion: apidiscovery.k8s.io/v2\nitems:\n- metadata:"},
		{"/apis", "application/vnd.kubernetes.protobuf" + asAggregated, "application/vnd.kubernetes.protobuf" + asAggregated, "k8s\x00\n/\n\x16apidiscovery.k8s.io/v2\x12\x15APIGroupDiscoveryList"},
		{"/api", "application/vnd.kubernetes.protobuf" + asAggregated, "application/vnd.kubernetes.protobuf" + asAggregated, "k8s\x00\n/\n\x16apidiscovery.k8s.io/v2\x12\x15APIGroupDiscoveryList"},
		{"/apis", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json", "application/json", `{"kind":"APIGroupList"`},
	}
	for _, tt := range tests {
		a := s.do(t, "GET", tt.path, "", "Accept: "+tt.accept)
		if a.code != 200 || a.header.Get("Content-Type") != tt.contentType || !strings.HasPrefix(a.body, tt.starts) {
			t.Errorf("GET %s, %s: %d %q %.80s", tt.path, tt.accept, a.code, a.header.Get("Content-Type"), a.body)
		}
		if root := tt.path == "/api" || tt.path == "/apis"; root && a.header.Get("Vary") != "Accept" {
			t.Errorf("GET %s: Vary %q", tt.path, a.header.Get("Vary"))
		}
	}
	a := s.do(t, "GET", "/apis", "", "Accept: application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
	if a.code != http.StatusNotAcceptable {
		t.Errorf("a version of the aggregated form that is gone: %d", a.code)
	}
	if a := s.do(t, "HEAD", "/apis", ""); a.code != 200 {
		t.Errorf("HEAD /apis: %d", a.code)
	}
}

// TestAggregatedProtobuf checks that the aggregated documents are the same in JSON and in protobuf.
func TestAggregatedProtobuf(t *testing.T) {
	s := start(t, wiring{})
	for _, path := range []string{"/api", "/apis"} {
		text := s.do(t, "GET", path, "", "Accept: "+aggregated)
		binary := s.do(t, "GET", path, "", "Accept: application/vnd.kubernetes.protobuf"+asAggregated)
		var envelope runtime.Unknown
		var want, got apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal([]byte(text.body), &want); err != nil {
			t.Fatal(err)
		}
		if err := envelope.Unmarshal([]byte(strings.TrimPrefix(binary.body, "k8s\x00"))); err != nil {
			t.Fatal(err)
		}
		if err := got.Unmarshal(envelope.Raw); err != nil {
			t.Fatal(err)
		}
		want.TypeMeta = metav1.TypeMeta{}
		if len(got.Items) == 0 || !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s differs in protobuf: %v", path, got)
		}
		if tag := binary.header.Get("Etag"); tag != text.header.Get("Etag") {
			t.Errorf("%s has the tag %s in protobuf", path, tag)
		}
	}
}

func TestDiscoveryIsAskedForAgainByItsTag(t *testing.T) {
	s := start(t, wiring{})
	first := s.do(t, "GET", "/apis", "", "Accept: "+aggregated)
	tag := first.header.Get("Etag")
	if tag == "" || first.header.Get("Cache-Control") != "public" {
		t.Fatalf("headers %v", first.header)
	}
	for match, want := range map[string]int{tag: 304, `"x", ` + tag: 304, `"x"`: 200} {
		a := s.do(t, "GET", "/apis", "", "Accept: "+aggregated, "If-None-Match: "+match)
		if a.code != want || want == 304 && a.body != "" || a.header.Get("Etag") != tag {
			t.Errorf("If-None-Match %s: %d, %d bytes", match, a.code, len(a.body))
		}
	}
}

func TestIndexAndVersion(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Checks = []httpapi.Check{{Name: "log", Live: true, Probe: func() error { return nil }}}
		c.OpenAPI = http.NotFoundHandler()
	}})
	var index struct{ Paths []string }
	if err := json.Unmarshal([]byte(s.do(t, "GET", "/", "").body), &index); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, p := range index.Paths {
		have[p] = true
	}
	for _, p := range []string{"/api", "/api/v1", "/apis/apps/v1", "/healthz/log", "/readyz/shutdown", "/openapi/v3", "/metrics", "/statusz", "/version"} {
		if !have[p] {
			t.Errorf("the index lacks %s", p)
		}
	}
	if html := s.do(t, "GET", "/index.html", ""); html.code != 200 || html.body != s.do(t, "GET", "/", "").body {
		t.Errorf("/index.html: %d %s", html.code, html.body)
	}
	for _, path := range []string{"/version", "/version/"} {
		var v map[string]string
		if err := json.Unmarshal([]byte(s.do(t, "GET", path, "").body), &v); err != nil {
			t.Fatal(err)
		}
		if v["major"] != "1" || v["minor"] != "37" || v["minCompatibilityMinor"] != "36" || v["gitVersion"] != "v1.37.2+tidemark.0.0.0" || v["platform"] == "" {
			t.Errorf("version %v", v)
		}
	}
}

// TestStatusz checks the representations of /statusz.
func TestStatusz(t *testing.T) {
	s := start(t, wiring{})
	const kind = ";g=config.k8s.io;v=v1beta1;as=Statusz"
	for accept, want := range map[string]struct {
		code         int
		media, start string
	}{
		"":                        {200, "text/plain; charset=utf-8", "\napiserver statusz\n"},
		"*/*":                     {200, "text/plain; charset=utf-8", "\napiserver statusz\n"},
		"text/plain":              {200, "text/plain; charset=utf-8", "\napiserver statusz\n"},
		"application/json" + kind: {200, "application/json" + kind, `{"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"apiserver"},"startTime":"`},
		"application/yaml" + kind: {200, "application/yaml" + kind, "apiVersion: config.k8s.io/v1beta1\nbinaryVersion: "},
		"application/json":        {406, "application/json", "{"},
		"application/json;g=config.k8s.io;v=v9;as=Statusz": {406, "application/json", "{"},
		"application/vnd.kubernetes.protobuf" + kind:       {406, "application/json", "{"},
	} {
		a := s.do(t, "GET", "/statusz", "", "Accept: "+accept)
		if a.code != want.code || a.header.Get("Content-Type") != want.media || !strings.HasPrefix(a.body, want.start) {
			t.Errorf("%q: %d %q %s, want %v", accept, a.code, a.header.Get("Content-Type"), a.body, want)
		}
	}
	old := s.do(t, "GET", "/statusz", "", "Accept: application/json;g=config.k8s.io;v=v1alpha1;as=Statusz")
	var status struct {
		UptimeSeconds *int64
		Paths         []string
	}
	if err := json.Unmarshal([]byte(old.body), &status); err != nil || old.header.Get("Warning") == "" {
		t.Errorf("the old version: %v %v", err, old.header)
	}
	if status.UptimeSeconds == nil || strings.Join(status.Paths, " ") != "/healthz /livez /metrics /readyz /statusz /version" {
		t.Errorf("%+v", status)
	}
}

func TestHealth(t *testing.T) {
	broken := errors.New("it holds a secret")
	var log strings.Builder
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
		c.Checks = []httpapi.Check{
			{Name: "log", Live: true, Probe: func() error { return nil }},
			{Name: "store", Probe: func() error { return broken }},
		}
	}})
	tests := []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/livez", 200, "ok"},
		{"GET", "/livez/log", 200, "ok"},
		{"GET", "/livez/store", 404, "404 page not found\n"},
		{"GET", "/livez?verbose", 200, "[+]ping ok\n[+]log ok\nlivez check passed\n"},
		{"GET", "/livez?verbose&exclude=nope&exclude=log", 200, "[+]ping ok\n[+]log excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"nope\"\nlivez check passed\n"},
		{"GET", "/livez?verbose&exclude=" + strings.Repeat("%ff", 1000) + "&exclude=b&exclude=a", 200, "[+]ping ok\n[+]log ok\nwarn: some health checks cannot be excluded: no matches for \"a\",\"b\",...\nlivez check passed\n"},
		{"GET", "/livez?exclude=log", 200, "ok"},
		{"GET", "/readyz", 500, "[+]ping ok\n[+]log ok\n[-]store failed: reason withheld\n[+]shutdown ok\nreadyz check failed\n"},
		{"GET", "/readyz?exclude=store", 200, "ok"},
		{"GET", "/readyz/store", 500, "[-]store failed: reason withheld\nreadyz check failed\n"},
	}
	for _, tt := range tests {
		a := s.do(t, tt.method, tt.path, "", "Authorization: none")
		if a.code != tt.code || a.body != tt.body || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s %s: %d %q, want %d %q", tt.method, tt.path, a.code, a.body, tt.code, tt.body)
		}
	}
	broken = nil
	s.do(t, "GET", "/readyz", "")
	s.do(t, "GET", "/readyz", "")
	for text, times := range map[string]int{"health check failed": 1, "it holds a secret": 1, "passes again": 1} {
		if got := strings.Count(log.String(), text); got != times {
			t.Errorf("the log has %q %d times, want %d\n%s", text, got, times, log.String())
		}
	}
	if a := s.do(t, "POST", "/healthz", "{}"); a.code != 200 || a.body != "ok" {
		t.Errorf("POST: %d %s", a.code, a.body)
	}
	s.handler.Drain()
	if a := s.do(t, "GET", "/readyz?exclude=store", ""); a.code != 500 || !strings.Contains(a.body, "[-]shutdown failed") {
		t.Errorf("while draining: %d %s", a.code, a.body)
	}
	if a := s.do(t, "GET", "/livez", ""); a.code != 200 {
		t.Errorf("alive while draining: %d", a.code)
	}
}

func TestOpenAPIIsDelegated(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.OpenAPI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "public, immutable")
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, r.URL.Path)
		})
	}})
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"} {
		a := s.do(t, "GET", path, "")
		if a.code != http.StatusTeapot || a.body != path || a.header.Get("Cache-Control") != "public, immutable" {
			t.Errorf("GET %s: %d %q %v", path, a.code, a.body, a.header)
		}
	}
	if a := s.do(t, "POST", "/openapi/v2", ""); a.code != 405 {
		t.Errorf("POST: %d", a.code)
	}
}

func TestPanics(t *testing.T) {
	var v any
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.OpenAPI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawQuery == "late" {
				_, _ = io.WriteString(w, "a part")
				_ = http.NewResponseController(w).Flush()
			}
			panic(v)
		})
	}})
	v = "a bug"
	for range 3 {
		a := s.do(t, "GET", "/openapi/v2", "")
		if code, reason, _ := a.status(t); code != 500 || reason != "InternalError" || strings.Contains(a.body, "a bug") {
			t.Errorf("%d %s", a.code, a.body)
		}
	}
	for _, v = range []any{"a bug", http.ErrAbortHandler} {
		resp := s.open(t, t.Context(), "GET", "/openapi/v2?late", nil)
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("panic(%v) in the middle of a response looks like its end", v)
		}
		resp.Body.Close()
	}
	if a := s.do(t, "GET", "/livez", ""); a.code != 200 {
		t.Errorf("afterwards: %d", a.code)
	}
}

// authnFunc is an authn.Authenticator.
type authnFunc func(*http.Request) (*authn.User, error)

func (f authnFunc) Authenticate(r *http.Request) (*authn.User, error) { return f(r) }

// TestPathsInLog: paths that are not served may be secret. The log has them neither after a panic nor after an error.
func TestPathsInLog(t *testing.T) {
	var mu sync.Mutex
	var log bytes.Buffer
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Log = slog.New(slog.NewJSONHandler(writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(p)
		}), &slog.HandlerOptions{Level: slog.LevelDebug}))
		c.Authn = authnFunc(func(r *http.Request) (*authn.User, error) {
			if strings.Contains(r.URL.RawQuery, "panic") {
				panic("a bug")
			}
			return nil, errors.New("a wrong token")
		})
	}})
	for _, path := range []string{"/hidden-value", "/apis/hidden-value/v1/hidden-value", "/api/v1/namespaces/shown-value/configmaps/a"} {
		if a := s.do(t, "GET", path+"?panic", ""); a.code != 500 {
			t.Errorf("%s: %d", path, a.code)
		}
		if a := s.do(t, "GET", path, ""); a.code != 401 {
			t.Errorf("%s: %d", path, a.code)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if text := log.String(); strings.Contains(text, "hidden-value") || strings.Count(text, "panic in a request") != 3 || strings.Count(text, `"path":"/api/v1/namespaces/shown-value/configmaps/a"`) != 3 {
		t.Errorf("the log is %s", text)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestMountTimeout: the time of a request to a mount ends with that of the mount, also while the client reads.
func TestMountTimeout(t *testing.T) {
	found := make(chan time.Duration, 1) // how much time is left
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Mounts = []httpapi.Mount{
			{Path: "/short", Timeout: time.Nanosecond, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })},
			{Path: "/long", Timeout: time.Hour, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				end, _ := r.Context().Deadline()
				found <- time.Until(end)
			})},
		}
	}})
	s.do(t, "GET", "/short", "")
	s.do(t, "GET", "/long?timeout=1s", "")
	if left := <-found; left < 30*time.Minute || left > time.Hour {
		t.Errorf("a request has %v, want an hour", left)
	}
}

func TestMetrics(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Exposed = []exposition.Source{exposition.Func(func(w *exposition.Writer) {
			w.Gauge("tidemark_store_revision", 42, "The newest revision.")
		})}
	}})
	s.do(t, "GET", "/api/v1/namespaces/default/secret-words/secret-name", "")
	s.do(t, "GET", "/secret-path", "")
	s.do(t, "SECRETVERB", "/api/v1/pods", "")
	s.do(t, "GET", "/apis/apps/v1/namespaces/secret-ns/deployments/d/secret-sub", "")
	s.do(t, "GET", "/healthz", "")
	wanted := []string{
		`apiserver_request_total{code="404",component="",dry_run="",group="",resource="",scope="",subresource="",verb="GET",version=""} 2`,
		`apiserver_request_total{code="405",component="apiserver",dry_run="",group="",resource="pods",scope="cluster",subresource="",verb="other",version="v1"} 1`,
		`apiserver_request_total{code="200",component="",dry_run="",group="",resource="",scope="",subresource="/healthz",verb="GET",version=""} 1`,
		`apiserver_request_duration_seconds_bucket{component="apiserver",dry_run="",group="apps",resource="deployments",scope="resource",subresource="",verb="GET",version="v1",le="0.005"}`,
		`apiserver_response_sizes_bucket`,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 1`,
		`apiserver_current_inflight_requests{request_kind="mutating"} 0`,
		`kubernetes_build_info{build_date=`,
		`tidemark_store_revision 42`,
		`process_start_time_seconds`,
		`go_goroutines`,
	}
	var body string
	await.Nil(t, "the metrics", func() error { // a request is counted after its response is sent
		body = s.do(t, "GET", "/metrics", "").body
		for _, want := range wanted {
			if !strings.Contains(body, want) {
				return fmt.Errorf("no %s", want)
			}
		}
		return nil
	})
	if i := strings.Index(strings.ToLower(body), "secret"); i >= 0 && !strings.Contains(body[i:i+10], "secrets") {
		t.Errorf("a client's own words are in the metrics: %.100s", body[i:])
	}
}

// TestMetricsOfKindsThatGo: kinds that come and go leave a bounded number of metrics, and
// cost as much each.
func TestMetricsOfKindsThatGo(t *testing.T) {
	var now atomic.Pointer[resource.Catalog]
	builtins := builtin.Catalog()
	now.Store(builtins)
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Catalog = now.Load }})
	ask := func(path string) {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)
		r.Header.Set("Authorization", "Bearer bob")
		s.handler.ServeHTTP(w, r)
		if w.Code != 403 {
			t.Fatalf("%s: %d", path, w.Code)
		}
	}
	whole := builtins.Lookup("", "v1", "configmaps")
	for i := range 12_000 {
		kind := *whole
		kind.Group, kind.Collection = fmt.Sprintf("g%d.example.com", i), ""
		now.Store(resource.NewCatalog([]resource.Group{{Name: kind.Group, Versions: []resource.Version{{Name: "v1", Types: []*resource.Type{&kind}}}}}))
		ask("/apis/" + kind.Group + "/v1/configmaps")
	}
	now.Store(builtins)
	lines := strings.Count(s.do(t, "GET", "/metrics", "").body, `apiserver_request_total{`)
	if lines > 10_500 {
		t.Errorf("%d routes", lines)
	}
}
