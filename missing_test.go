package tidemark_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestMissingBackEnd: a policy of the audit log without a place for events is in the log of the server.
func TestMissingBackEnd(t *testing.T) {
	t.Parallel()
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	s := &tidemark.Server{Audit: tidemark.Audit{PolicyFile: policy}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	servertest.Start(t, s)
	servertest.Stop(t, s)
	if !strings.Contains(log.String(), "nothing is audited: there is an audit policy") {
		t.Errorf("the log says %q", log.String())
	}
}

// TestMissingWorlds: requests for forks and replicas that do not exist are authenticated, authorized and recorded
// like those for other paths, and one that is not authenticated ends its connection.
func TestMissingWorlds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policy, path := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, &tidemark.Server{Audit: tidemark.Audit{PolicyFile: policy, Log: tidemark.AuditLog{Path: path}}})
	mustFork(t, s.Root(), tidemark.ForkOptions{Name: "try"})
	bob, err := s.RESTConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int{}
	for _, world := range []string{"/fork/NONE", "/replica/NONE", "/fork/NONE/replica/NONE", "/fork/try/replica/NONE", "/fork/", "/replica/"} {
		for _, rest := range []string{"", "/", configMaps, "/healthz"} {
			p := world + rest
			must(t, servertest.WithToken(s, "wrong"), http.StatusUnauthorized, "GET", p, "")
			must(t, servertest.Anonymous(s), http.StatusForbidden, "GET", p, "")
			must(t, bob, http.StatusForbidden, "POST", p, `{}`)
			got := must(t, s.RESTConfig(), http.StatusNotFound, "POST", p, strings.Repeat("x", 1<<10))
			if !strings.Contains(got, `"reason":"NotFound"`) || !strings.Contains(got, "not found") {
				t.Errorf("%s: %s", p, got)
			}
			want[p] = []int{401, 403, 403, 404}
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL()+"/fork/NONE/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := servertest.Client(t, servertest.WithToken(s, "wrong")).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("Connection") != "close" && !resp.Close && resp.ProtoMajor == 1 {
		t.Errorf("the connection of a wrong token goes on: %v", resp.Header)
	}
	want["/fork/NONE/api"] = []int{401}
	servertest.Stop(t, s)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]int{}
	for line := range strings.Lines(string(b)) {
		var e struct {
			RequestURI     string
			Stage          string
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.ResponseStatus.Code == 401 || e.Stage == "ResponseComplete" {
			got[e.RequestURI] = append(got[e.RequestURI], e.ResponseStatus.Code)
		}
	}
	for p, codes := range want {
		if len(got[p]) != len(codes) {
			t.Errorf("%s: audit events with %v, want %v", p, got[p], codes)
		}
	}
}
