package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// serve responds to a request, and returns when it has been counted.
func serve(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer admin")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestMetricsOfRequests compares the series of some requests with those that kube-apiserver has for them.
func TestMetricsOfRequests(t *testing.T) {
	t.Parallel() // two watches last a second
	h := filled(t, 3, 100)
	serve(h, "GET", maps, "")
	serve(h, "GET", maps+"?limit=2", "")
	serve(h, "GET", maps+"?labelSelector=a%3Db", "")
	serve(h, "GET", "/api/v1/configmaps", "")
	serve(h, "GET", maps+"/m-00001", "")
	serve(h, "GET", "/api/v1/endpoints", "")
	serve(h, "POST", maps+"?dryRun=All&fieldValidation=Strict", `{"metadata":{"name":"n"}}`)
	serve(h, "PATCH", maps+"/applied?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`, "Content-Type", "application/apply-patch+yaml")
	serve(h, "DELETE", maps+"/none", "")
	serve(h, "DELETE", maps+"?labelSelector=a%3Db", "")
	serve(h, "GET", maps+"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dm-00001", "")
	serve(h, "GET", maps+"?watch=true&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "")
	serve(h, "GET", "/api/v1/namespaces/default/pods/p/exec", "")
	serve(h, "GET", "/openapi/v3/api/v1", "")
	page := serve(h, "GET", "/metrics", "").Body.String()
	route := func(verb, resource, sub, scope string) string {
		return fmt.Sprintf(`group="",resource=%q,scope=%q,subresource=%q,verb=%q,version="v1"`, resource, scope, sub, verb)
	}
	for _, want := range []string{
		`apiserver_request_total{code="200",component="apiserver",dry_run="",` + route("LIST", "configmaps", "", "namespace") + "} 3",
		`apiserver_request_total{code="200",component="apiserver",dry_run="",` + route("LIST", "configmaps", "", "cluster") + "} 1",
		`apiserver_request_total{code="200",component="apiserver",dry_run="",` + route("GET", "configmaps", "", "resource") + "} 1",
		`apiserver_request_total{code="201",component="apiserver",dry_run="All",` + route("POST", "configmaps", "", "resource") + "} 1",
		`apiserver_request_total{code="201",component="apiserver",dry_run="",` + route("APPLY", "configmaps", "", "resource") + "} 1",
		`apiserver_request_total{code="404",component="apiserver",dry_run="",` + route("DELETE", "configmaps", "", "resource") + "} 1",
		`apiserver_request_total{code="200",component="apiserver",dry_run="",` + route("DELETE", "configmaps", "", "namespace") + "} 1",
		`apiserver_request_total{code="200",component="apiserver",dry_run="",` + route("WATCH", "configmaps", "", "namespace") + "} 2",
		`apiserver_request_total{code="404",component="apiserver",dry_run="",` + route("CONNECT", "pods", "exec", "resource") + "} 1",
		`apiserver_request_duration_seconds_count{component="apiserver",dry_run="",` + route("WATCH", "configmaps", "", "namespace") + "} 2",
		`apiserver_request_sli_duration_seconds_bucket{component="apiserver",` + route("LIST", "configmaps", "", "cluster") + `,le="+Inf"} 1`,
		`apiserver_response_sizes_count{component="apiserver",` + route("WATCH", "configmaps", "", "namespace") + "} 2",
		`apiserver_longrunning_requests{component="apiserver",` + route("WATCH", "configmaps", "", "resource") + "} 0",
		`apiserver_longrunning_requests{component="apiserver",` + route("WATCH", "configmaps", "", "namespace") + "} 0",
		`apiserver_request_body_size_bytes_count{group="",resource="configmaps",verb="create"} 1`,
		`apiserver_request_body_size_bytes_count{group="",resource="configmaps",verb="delete_collection"} 1`,
		`apiserver_requested_deprecated_apis{group="",removed_release="",resource="endpoints",subresource="",version="v1"} 1`,
		`apiserver_storage_list_total{group="",index="",resource="configmaps",storage="watchcache"} 4`,
		`apiserver_storage_list_fetched_objects_total{group="",index="",resource="configmaps",storage="watchcache"} 11`,
		`apiserver_storage_list_returned_objects_total{group="",resource="configmaps",storage="watchcache"} 8`,
		`apiserver_watch_list_duration_seconds_count{group="",resource="configmaps",scope="namespace",version="v1"} 1`,
		`apiserver_watch_events_total{group="",resource="configmaps",version="v1"}`,
		`apiserver_init_events_total{group="",resource="configmaps"}`,
		`authorization_attempts_total{result="allowed"} 15`,
		`authorization_duration_seconds_count{result="allowed"} 15`,
		`field_validation_request_duration_seconds_count{field_validation="Strict"} 1`,
		`field_validation_request_duration_seconds_count{field_validation=""} 1`,
		`subresource="openapi/v3/",verb="GET",version=""} 1`,
	} {
		if !strings.Contains(page, want) {
			name, _, _ := strings.Cut(want, "{")
			var there []string
			for line := range strings.Lines(page) {
				if strings.HasPrefix(line, name+"{") {
					there = append(there, line)
				}
			}
			t.Errorf("no %s, but\n%s", want, strings.Join(there[:min(len(there), 12)], ""))
		}
	}
	if strings.Contains(page, `apiserver_request_sli_duration_seconds_bucket{component="apiserver",`+route("WATCH", "configmaps", "", "namespace")) {
		t.Error("the durations of watches count as an indicator of the service")
	}
}

// TestMetricsForget checks that the series of a kind that is served outlive those of many kinds that are not.
func TestMetricsForget(t *testing.T) {
	var now atomic.Pointer[resource.Catalog]
	whole := builtin.Catalog().Lookup("", "v1", "configmaps")
	serveOnly := func(group string) {
		kind := *whole
		kind.Group, kind.Collection = group, ""
		now.Store(resource.NewCatalog([]resource.Group{
			{Name: group, Versions: []resource.Version{{Name: "v1", Types: []*resource.Type{&kind}}}},
			{Name: "", Versions: []resource.Version{{Name: "v1", Types: []*resource.Type{whole}}}},
		}))
	}
	serveOnly("first.example.com")
	c := newConfig(newStore(t))
	c.Catalog = now.Load
	h := httpapi.New(c)
	t.Cleanup(h.Drain)
	bob := []string{"Authorization", "Bearer bob"} // 403 is cheap
	serve(h, "GET", maps, "", bob...)
	for i := range 10_500 {
		group := fmt.Sprintf("g%d.example.com", i)
		serveOnly(group)
		serve(h, "GET", "/apis/"+group+"/v1/configmaps", "", bob...)
	}
	serve(h, "GET", maps, "", bob...)
	page := serve(h, "GET", "/metrics", "").Body.String()
	count := func(group, scope string) string {
		return fmt.Sprintf(`apiserver_request_total{code="403",component="apiserver",dry_run="",group=%q,resource="configmaps",scope=%q,subresource="",verb="LIST",version="v1"} `, group, scope)
	}
	if !strings.Contains(page, count("", "namespace")+"2\n") {
		t.Error("the requests for the kind that is always served are not counted together")
	}
	if !strings.Contains(page, count("g10499.example.com", "cluster")+"1\n") {
		t.Error("the newest kind has no series of its own")
	}
	if strings.Contains(page, count("g0.example.com", "cluster")) {
		t.Error("the first kind that is gone still has a series")
	}
}

// TestRefuse checks the responses of a server that stops.
func TestRefuse(t *testing.T) {
	h := filled(t, 1, 10)
	h.Leave()
	if w := serve(h, "GET", maps, ""); w.Code != 200 {
		t.Errorf("a server that will stop: %d", w.Code)
	}
	if w := serve(h, "GET", "/readyz", ""); w.Code != 500 || !strings.Contains(w.Body.String(), "[-]shutdown failed") {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	h.Refuse()
	w := serve(h, "GET", maps, "")
	if w.Code != 429 || w.Header().Get("Retry-After") != "5" || w.Header().Get("Connection") != "close" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	for path, code := range map[string]int{"/livez": 200, "/healthz": 200, "/readyz": 500, "/metrics": 200, "/metrics/slis": 200} {
		if w := serve(h, "GET", path, ""); w.Code != code {
			t.Errorf("%s: %d, want %d", path, w.Code, code)
		}
	}
}

// TestSources checks that the metrics of other parts are in the response.
func TestSources(t *testing.T) {
	c := newConfig(newStore(t))
	c.Exposed = []exposition.Source{source{}}
	h := httpapi.New(c)
	t.Cleanup(h.Drain)
	w := serve(h, "GET", "/metrics", "")
	if got := w.Header().Get("Content-Type"); got != exposition.ContentType {
		t.Errorf("the media type is %s", got)
	}
	if !strings.Contains(w.Body.String(), "# HELP many_things Things.\n# TYPE many_things gauge\nmany_things{a=\"b\"} 7\n") {
		t.Error("no many_things")
	}
}

type source struct{}

func (source) Expose(w *exposition.Writer) {
	w.Family("many_things", exposition.GaugeKind, "Things.")
	w.Uint(exposition.Labels("a", "b"), 7)
}
