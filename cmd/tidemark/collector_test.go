package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/collector"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

// fakeCollector is a collector.
type fakeCollector struct {
	collectorv1.UnimplementedTraceServiceServer
	address string

	mu       sync.Mutex
	received []*tracev1.ResourceSpans
}

// Export implements collectorv1.TraceServiceServer.
func (f *fakeCollector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.received = append(f.received, r.ResourceSpans...)
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// startCollector starts a collector, and stops it when the test ends.
func startCollector(t *testing.T) *fakeCollector {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, s := &fakeCollector{address: l.Addr().String()}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(s, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() { s.Stop(); serving.Wait() })
	return f
}

// TestCollector: a collector gets the spans of a request, also those that wait when the server stops.
func TestCollector(t *testing.T) {
	f, hook := startCollector(t), webhooktest.Start(t)
	p, err := collector.Open(t.Context(), &collector.Config{Endpoint: f.address, RatePerMillion: 1_000_000}, collector.Service{Version: "1.2.3", Instance: "i"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &tidemark.Server{Diagnostics: tidemark.Diagnostics{TracerProvider: p}, Controllers: []string{"-*"}}
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
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", path, response.Status)
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
