package collector

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
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

// TestUnreachable: requests do not wait for a collector that accepts connections and never responds, and the last flush
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
