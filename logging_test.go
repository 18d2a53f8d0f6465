package tidemark_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// logBuffer collects a log in JSON.
type logBuffer struct{ servertest.Buffer }

// of returns the lines of requests whose URI contains a text.
func (b *logBuffer) of(t *testing.T, uri string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(b.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if text, _ := one["URI"].(string); one["component"] == "requests" && strings.Contains(text, uri) {
			all = append(all, one)
		}
	}
	return all
}

func TestRequestLog(t *testing.T) {
	const unreachable = `{"metadata":{"name":"x"},"webhooks":[{"name":"x.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},
		"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"]}]}]}`
	for _, test := range []struct {
		name          string
		level         slog.Level
		slow          time.Duration
		failed, other string // messages of a failed request and of another one; empty: it is not logged
	}{
		{name: "default", level: slog.LevelInfo},
		{name: "v=2", level: -2, failed: "failed request"},
		{name: "v=4", level: slog.LevelDebug, failed: "failed request", other: "request"},
		{name: "trace-slow", level: slog.LevelInfo, slow: 1, failed: "slow request", other: "slow request"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var log logBuffer
			s := servertest.Start(t, &tidemark.Server{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: test.level})), Diagnostics: tidemark.Diagnostics{SlowRequest: test.slow}})
			config := s.RESTConfig()
			client := servertest.Client(t, config)
			post := func(path, body string, want int) {
				t.Helper()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("User-Agent", "logger/1.0")
				response, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != want {
					t.Fatalf("POST %s: %d, want %d", path, response.StatusCode, want)
				}
			}
			post("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", unreachable, http.StatusCreated)
			post("/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`, http.StatusCreated)
			post("/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"},"stringData":{"k":"hidden-value"}}`, http.StatusInternalServerError)
			post("/apis/hidden-value.example.com/v1/hidden-value?hidden-value", `{}`, http.StatusNotFound)
			if err := s.Close(); err != nil { // all lines are written
				t.Fatal(err)
			}
			check := func(uri, message string, code float64) {
				t.Helper()
				lines := log.of(t, uri)
				if message == "" {
					if len(lines) > 0 {
						t.Fatalf("%s was logged: %v", uri, lines)
					}
					return
				}
				if len(lines) != 1 {
					t.Fatalf("%s has %d lines, want 1: %v", uri, len(lines), lines)
				}
				line := lines[0]
				if line["msg"] != message || line["resp"] != code || line["verb"] != "create" || line["user"] != "admin" || line["userAgent"] != "logger/1.0" {
					t.Errorf("%v", line)
				}
				for _, key := range []string{"audit-ID", "srcIP", "latency", "authentication", "authorization", "body", "response"} {
					if line[key] == nil || line[key] == "" {
						t.Errorf("%s is missing: %v", key, line)
					}
				}
				if part := map[bool]string{true: "admission", false: "commit"}[code >= 500]; line[part] == nil {
					t.Errorf("%s is missing: %v", part, line)
				}
			}
			check("/secrets", test.failed, http.StatusInternalServerError)
			check("/configmaps", test.other, http.StatusCreated)
			if strings.Contains(log.String(), "hidden-value") {
				t.Error("the log has the value of a Secret, or a path that is not served")
			}
		})
	}
}
