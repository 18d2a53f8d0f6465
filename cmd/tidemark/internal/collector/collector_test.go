package collector

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

func TestRead(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	for _, row := range []struct {
		text string
		want Config
		err  string // a part of the error; empty: there is none
	}{
		{head, Config{}, ""},
		{head + "samplingRatePerMillion: 1000000", Config{RatePerMillion: 1000000}, ""},
		{head + "endpoint: collector.example.com:4317", Config{Endpoint: "collector.example.com:4317"}, ""},
		{head + "endpoint: unix:///run/collector.sock", Config{Endpoint: "unix:///run/collector.sock"}, ""},
		{strings.Replace(head, "/v1", "/v1beta1", 1) + "endpoint: dns://c:1\nsamplingRatePerMillion: 7", Config{Endpoint: "dns://c:1", RatePerMillion: 7}, ""},
		{`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"TracingConfiguration"}`, Config{}, ""},
		{head + "samplingRatePerMillion: -1", Config{}, "samplingRatePerMillion: -1: want 0 to 1000000"},
		{head + "samplingRatePerMillion: 1000001", Config{}, "samplingRatePerMillion: 1000001: want 0 to 1000000"},
		{head + "samplingRatePerMillion: 10000000000", Config{}, "samplingRatePerMillion"},
		{head + "endpoint: http://localhost:4317", Config{}, `endpoint: "http://localhost:4317": the scheme is http: want none, dns, unix or unix-abstract`},
		{head + "endpoint: dn%2s://localhost:4317", Config{}, "endpoint: "},
		{head + "samplingRate: 1", Config{}, `unknown field "samplingRate"`},
		{head + "endpoint: a:1\nendpoint: b:1", Config{}, `"endpoint" already set`},
		{strings.Replace(head, "/v1", "/v2", 1), Config{}, `no kind "TracingConfiguration" is registered`},
		{"", Config{}, "Kind"},
		{strings.Repeat(" ", maxFileBytes+1), Config{}, "has more than 1048576 bytes"},
	} {
		path := filepath.Join(t.TempDir(), "tracing.yaml")
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := Read(path)
		switch {
		case row.err != "":
			if err == nil || !strings.Contains(err.Error(), row.err) {
				t.Errorf("%.100s\nerror %v, want %s", row.text, err, row.err)
			}
		case err != nil:
			t.Errorf("%s\nerror %v", row.text, err)
		case *got != row.want:
			t.Errorf("%s\n%+v, want %+v", row.text, *got, row.want)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent file is no error")
	}
}

// fake is a collector.
type fake struct {
	collectorv1.UnimplementedTraceServiceServer
	address string

	mu       sync.Mutex
	received []*tracev1.ResourceSpans
}

// Export implements collectorv1.TraceServiceServer.
func (f *fake) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received = append(f.received, r.ResourceSpans...)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// startFake starts a collector, and stops it when the test ends.
func startFake(t *testing.T) *fake {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, s := &fake{address: l.Addr().String()}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(s, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return f
}

// TestCollector: a collector gets the spans of a request, also those that wait when the server stops.
func TestCollector(t *testing.T) {
	f, hook := startFake(t), webhooktest.Start(t)
	p, err := Open(t.Context(), &Config{Endpoint: f.address, RatePerMillion: maxRate}, Service{Version: "1.2.3", Instance: "i"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &tidemark.Server{TracerProvider: p, Controllers: []string{"-*"}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := servertest.Client(t, s.RESTConfig())
	post := func(path, body string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", path, answer.Status)
		}
	}
	post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"c"},"webhooks":[{
		"name":"w.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":%s,
		"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`, hook.Config("/")))
	post("/api/v1/namespaces/default/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`)
	servertest.Stop(t, s)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, r := range f.received {
		if text := r.Resource.String(); !strings.Contains(text, "tidemark") || !strings.Contains(text, "1.2.3") {
			t.Errorf("the resource is %s", text)
		}
		for _, scope := range r.ScopeSpans {
			for _, span := range scope.Spans {
				names = append(names, span.Name)
			}
		}
	}
	for _, want := range []string{
		"POST /api/v1/namespaces/{:namespace}/configmaps", "authentication", "authorization", "validating admission",
		"Call validating webhook", "commit", "log append and sync", "write response",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("the collector got no span %q, but %q", want, names)
		}
	}
}

// TestUnreachable: requests do not wait for a collector that accepts connections and never answers, and the last flush
// ends.
func TestUnreachable(t *testing.T) {
	t.Parallel() // it takes flushTimeout
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p, err := Open(t.Context(), &Config{Endpoint: l.Addr().String(), RatePerMillion: maxRate}, Service{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tracer := p.Tracer("test")
	for range 3 * queuedSpans { // more than wait
		_, span := tracer.Start(t.Context(), "s")
		span.End()
	}
	if err := p.Close(); err == nil {
		t.Error("Close reports no error: the spans were not sent")
	}
}
