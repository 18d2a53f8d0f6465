package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
	traceparent = "00-" + clientTrace + "-" + clientSpan + "-"
	sampled     = "01"
	unsampled   = "00"
)

// traces records the spans of a server.
type traces struct {
	*tidemark.Server
	spans *tracetest.SpanRecorder
}

// startTraced starts a server without controllers, whose spans without a parent are sampled by root.
func startTraced(t *testing.T, root trace.Sampler) *traces {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSampler(trace.ParentBased(root)), trace.WithSpanProcessor(recorder))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}, Diagnostics: tidemark.Diagnostics{TracerProvider: provider}})
	return &traces{Server: s, spans: recorder}
}

// send sends a request, and returns the code and the audit ID of the response. flags are those of the header traceparent;
// empty: it has none.
func (s *traces) send(t *testing.T, c *rest.Config, method, path, body, flags string) (code int, auditID string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if flags != "" {
		r.Header.Set("traceparent", traceparent+flags)
	}
	response, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode, response.Header.Get("Audit-Id")
}

// request waits for the span of a request, by its audit ID. A span ends after the response was sent.
func (s *traces) request(t *testing.T, auditID string) trace.ReadOnlySpan {
	t.Helper()
	var found trace.ReadOnlySpan
	await.True(t, "the span of "+auditID, func() bool {
		for _, span := range s.spans.Ended() {
			if attributesOf(span)["audit-id"] == auditID {
				found = span
			}
		}
		return found != nil
	})
	return found
}

// below returns the spans below one, each as the names on the way to it.
func (s *traces) below(top trace.ReadOnlySpan, prefix string) (all []string) {
	for _, span := range s.spans.Ended() {
		if span.Parent().SpanID() == top.SpanContext().SpanID() {
			name := prefix + span.Name()
			all = append(append(all, name), s.below(span, name+" / ")...)
		}
	}
	return all
}

func attributesOf(span trace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// TestSpans: a request has a span, and one for each of its parts. The webhook gets the span of its call.
func TestSpans(t *testing.T) {
	s, hook := startTraced(t, trace.NeverSample()), webhooktest.Start(t)
	admin := s.RESTConfig()
	for _, kind := range []string{"Mutating", "Validating"} {
		configuration := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%[1]sWebhookConfiguration","metadata":{"name":"c"},"webhooks":[{
			"name":"w.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":%[2]s,
			"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`, kind, hook.Config("/"+kind))
		path := "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(kind) + "webhookconfigurations"
		if code, _ := s.send(t, admin, "POST", path, configuration, ""); code != http.StatusCreated {
			t.Fatalf("creating a %sWebhookConfiguration: %d", kind, code)
		}
	}
	const path = "/api/v1/namespaces/default/configmaps"
	code, auditID := s.send(t, admin, "POST", path+"?fieldManager=m&token=secret", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, sampled)
	if code != http.StatusCreated {
		t.Fatalf("creating a ConfigMap: %d", code)
	}
	top := s.request(t, auditID)
	if got, want := top.Name(), "POST /api/v1/namespaces/{:namespace}/configmaps"; got != want {
		t.Errorf("the name is %q, want %q", got, want)
	}
	if p := top.Parent(); p.TraceID().String() != clientTrace || p.SpanID().String() != clientSpan || !p.IsRemote() {
		t.Errorf("the parent is %v, want the client's span", p)
	}
	got := attributesOf(top)
	for name, want := range map[string]string{
		"http.request.method": "POST", "url.path": path, "http.target": path + "?fieldManager=m", "http.response.status_code": "201",
		"server.address": "127.0.0.1", "client.address": "127.0.0.1", "network.protocol.version": "2.0", "url.scheme": "https",
	} {
		if got[name] != want {
			t.Errorf("the attribute %s is %q, want %q", name, got[name], want)
		}
	}
	want := []string{
		"authentication", "authorization", "read body",
		"commit", "commit / log append and sync",
		"mutating admission", "mutating admission / Call mutating webhook",
		"validating admission", "validating admission / Call validating webhook",
		"write response",
	}
	below := s.below(top, "")
	slices.Sort(want)
	slices.Sort(below)
	if !slices.Equal(below, want) {
		t.Errorf("the spans below are\n%s\nwant\n%s", strings.Join(below, "\n"), strings.Join(want, "\n"))
	}
	reviews := hook.Take()
	if len(reviews) != 2 {
		t.Fatalf("the webhook got %d reviews, want 2", len(reviews))
	}
	for i, name := range []string{"Call mutating webhook", "Call validating webhook"} {
		sent := reviews[i].HTTP.Header.Get("traceparent")
		for _, span := range s.spans.Ended() {
			if span.Name() != name {
				continue
			}
			if want := "00-" + clientTrace + "-" + span.SpanContext().SpanID().String() + "-01"; sent != want {
				t.Errorf("%s: traceparent is %q, want %q", name, sent, want)
			}
			if a := attributesOf(span); a["webhook"] != "w.example.com" || a["configuration"] != "c" || a["UID"] != string(reviews[i].Request.UID) {
				t.Errorf("%s: the attributes are %v", name, a)
			}
		}
	}
	for _, span := range s.spans.Ended() {
		if span.EndTime().Before(span.StartTime()) || span.StartTime().Before(top.StartTime()) || span.EndTime().After(top.EndTime()) {
			t.Errorf("%s takes from %v to %v, outside of its request", span.Name(), span.StartTime(), span.EndTime())
		}
		if text := fmt.Sprint(span.Attributes()); strings.Contains(text, "secret") {
			t.Errorf("%s shows a parameter that may be secret: %s", span.Name(), text)
		}
	}
}

// TestSpansWithQuota: a write that is stored together with its charge has the span of the log.
func TestSpansWithQuota(t *testing.T) {
	s := startTraced(t, trace.NeverSample())
	admin := s.RESTConfig()
	if code, _ := s.send(t, admin, "POST", "/api/v1/namespaces/default/resourcequotas",
		`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"5"}}}`, ""); code != http.StatusCreated {
		t.Fatalf("creating a quota: %d", code)
	}
	if code, _ := s.send(t, admin, "PUT", "/api/v1/namespaces/default/resourcequotas/q/status",
		`{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"status":{"hard":{"count/configmaps":"5"},"used":{"count/configmaps":"0"}}}`, ""); code != http.StatusOK {
		t.Fatalf("updating a quota: %d", code)
	}
	code, auditID := s.send(t, admin, "POST", "/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, sampled)
	if code != http.StatusCreated {
		t.Fatalf("creating a ConfigMap: %d", code)
	}
	if all := s.below(s.request(t, auditID), ""); !slices.Contains(all, "commit / log append and sync") {
		t.Errorf("no span of the log in %q", all)
	}
}

// TestSampling: privileged clients decide whether their requests are sampled. The spans of others are roots.
func TestSampling(t *testing.T) {
	const path = "/api/v1/namespaces"
	always, never := startTraced(t, trace.AlwaysSample()), startTraced(t, trace.NeverSample())
	configs := func(s *traces) map[string]*rest.Config {
		monitor, err := s.RESTConfigFor("m", "system:monitoring")
		if err != nil {
			t.Fatal(err)
		}
		user, err := s.RESTConfigFor("u")
		if err != nil {
			t.Fatal(err)
		}
		return map[string]*rest.Config{
			"administrator": s.RESTConfig(), "monitoring": monitor, "user": user, "anonymous": servertest.Anonymous(s.Server),
			"refused": servertest.WithToken(s.Server, "wrong"),
		}
	}
	codes := map[string]string{"administrator": "200", "monitoring": "403", "user": "403", "anonymous": "403", "refused": "401"}
	for name, c := range configs(always) {
		_, auditID := always.send(t, c, "GET", path, "", sampled)
		span := always.request(t, auditID)
		if got := attributesOf(span)["http.response.status_code"]; got != codes[name] {
			t.Errorf("%s: the code is %s, want %s", name, got, codes[name])
		}
		privileged := name == "administrator" || name == "monitoring"
		if privileged != (span.Parent().SpanID().String() == clientSpan) {
			t.Errorf("%s: the parent is %v", name, span.Parent())
		}
		if links := span.Links(); privileged != (len(links) == 0) || !privileged && links[0].SpanContext.SpanID().String() != clientSpan {
			t.Errorf("%s: the links are %v", name, links)
		}
	}
	var last string
	for name, c := range configs(never) {
		if name == "administrator" || name == "monitoring" {
			continue
		}
		never.send(t, c, "GET", path, "", sampled)
		never.send(t, c, "GET", path, "", unsampled)
		never.send(t, c, "GET", path, "", "")
	}
	never.send(t, never.RESTConfig(), "GET", path, "", unsampled)
	never.send(t, never.RESTConfig(), "GET", path, "", "")
	_, last = never.send(t, never.RESTConfig(), "GET", path, "", sampled)
	never.request(t, last)
	for _, span := range never.spans.Ended() {
		if span.SpanContext().TraceID().String() != clientTrace || span.Parent().SpanID().String() == clientSpan && attributesOf(span)["audit-id"] != last {
			t.Errorf("%s is sampled: %v", span.Name(), span.Attributes())
		}
	}
}

// TestSpanNames: names and attributes show no path that is not served, and no method that a client invents.
func TestSpanNames(t *testing.T) {
	s := startTraced(t, trace.AlwaysSample())
	for _, row := range []struct{ method, path, name, target string }{
		{"GET", "/api/v1/namespaces/default/pods/p/log", "GET /api/v1/namespaces/{:namespace}/pods/{:name}/log", "/api/v1/namespaces/default/pods/p/log"},
		{"GET", "/apis/apps/v1/deployments?limit=1", "GET /apis/apps/v1/deployments", "/apis/apps/v1/deployments?limit=1"},
		{"GET", "/version", "GET", "/version"},
		{"GET", "/apis/example.com/v1/secrets/s3cr3t", "GET", "unknown"},
		{"GET", "/s3cr3t", "GET", "unknown"},
		{"BREW", "/version", "_OTHER", "unknown"},
	} {
		_, auditID := s.send(t, s.RESTConfig(), row.method, row.path, "", "")
		span := s.request(t, auditID)
		if got := attributesOf(span)["http.target"]; span.Name() != row.name || got != row.target {
			t.Errorf("%s %s: the span is %q of %q, want %q of %q", row.method, row.path, span.Name(), got, row.name, row.target)
		}
	}
}

// long is how long the headers and the query of sendLong are.
const long = 300 << 10

// sendLong sends requests with long headers and queries, and waits for their spans.
func (s *traces) sendLong(t *testing.T, client *http.Client, requests int) {
	t.Helper()
	value := strings.Repeat("x", long)
	for range requests {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/version?unknown="+value, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Forwarded-For", "192.0.2.1,"+value)
		r.Header.Set("Audit-ID", value)
		r.Header.Set("traceparent", traceparent+sampled)
		r.Header.Set("tracestate", "vendor="+strings.Repeat("y", 200))
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		s.request(t, response.Header.Get("Audit-Id"))
	}
}

// TestSpansAreSmall checks that the size of a span does not depend on the size of the headers and
// queries of clients.
func TestSpansAreSmall(t *testing.T) {
	s := startTraced(t, trace.AlwaysSample())
	s.sendLong(t, servertest.Client(t, servertest.Anonymous(s.Server)), 1)
	for _, span := range s.spans.Ended() {
		for _, a := range span.Attributes() {
			if n := len(a.Value.String()); n > 2<<10 {
				t.Errorf("%s: the attribute %s has %d bytes", span.Name(), a.Key, n)
			}
		}
		for _, l := range span.Links() {
			if n := l.SpanContext.TraceState().Len(); n > 0 {
				t.Errorf("%s: the link has %d values of the client", span.Name(), n)
			}
		}
	}
}

// TestSpansHoldNoHeaders: spans wait for their collector. Meanwhile they do not hold the headers and queries, from which
// their attributes are parts.
func TestSpansHoldNoHeaders(t *testing.T) {
	tier.Full(t)
	const requests = 40
	const most = requests * long / 4 // the last requests may be in buffers
	s := startTraced(t, trace.AlwaysSample())
	config := servertest.Anonymous(s.Server)
	config.NextProtos = []string{"http/1.1"} // the client's HTTP/2 keeps the requests in memory for some time
	client := servertest.Client(t, config)
	heap := func() int64 {
		client.CloseIdleConnections()
		runtime.GC()
		runtime.GC() // frees memory in pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	s.sendLong(t, client, requests)
	// A connection keeps its buffers for a moment after its end. Memory that spans hold stays.
	await.Nil(t, "what connections hold", func() error {
		if held := heap() - before; held > most {
			return fmt.Errorf("the spans of %d requests hold %d bytes, want at most %d", requests, held, most)
		}
		return nil
	})
	runtime.KeepAlive(s.spans)
}
