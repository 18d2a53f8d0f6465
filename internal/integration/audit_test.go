package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// The recorded events in testdata/audit/events.json are those of kube-apiserver v1.36 with
// testdata/audit/policy.yaml. To record them again, start one in an empty cluster with this
// policy and an audit log, with the user peer in system:masters, and run
//
//	go test ./internal/integration -run TestAuditEvents -audit-record KUBECONFIG -audit-log FILE
var (
	auditRecord = flag.String("audit-record", "", "kubeconfig of a server whose audit events are recorded")
	auditLog    = flag.String("audit-log", "", "audit log of that server")
)

// auditRequest is a request of the table below.
type auditRequest struct {
	name         string // also the audit ID
	method, path string
	media, body  string   // of the body
	headers      []string // "Name: value"
	noToken      bool
	badToken     bool
	cancel       bool // a watch, which is left after its headers
}

const (
	auditJSON   = "application/json"
	inAudit     = "/api/v1/namespaces/aud"
	auditLeases = "/apis/coordination.k8s.io/v1/namespaces/aud/leases"
)

var auditRequests = []auditRequest{
	{name: "create-namespace", method: "POST", path: "/api/v1/namespaces", media: auditJSON, body: `{"metadata":{"name":"aud"}}`},
	{name: "create", method: "POST", path: inAudit + "/configmaps", media: auditJSON, body: `{"metadata":{"name":"a","labels":{"x":"y"},"annotations":{"x":"<&>"}},"data":{"k":"v"}}`},
	{name: "create-conflict", method: "POST", path: inAudit + "/configmaps", media: auditJSON, body: `{"metadata":{"name":"a"}}`},
	{name: "create-invalid", method: "POST", path: inAudit + "/configmaps", media: auditJSON, body: `{"metadata":{"name":"A_B"}}`},
	{name: "create-malformed", method: "POST", path: inAudit + "/configmaps", media: auditJSON, body: `{"metadata":`},
	{name: "create-dry-run", method: "POST", path: inAudit + "/configmaps?dryRun=All", media: auditJSON, body: `{"metadata":{"name":"dry"}}`},
	{name: "create-yaml", method: "POST", path: inAudit + "/configmaps", media: "application/yaml", body: "metadata: {name: quiet}\n"},
	{name: "create-secret", method: "POST", path: inAudit + "/secrets", media: auditJSON, body: `{"metadata":{"name":"s"},"stringData":{"k":"hidden"}}`},
	{name: "create-pod", method: "POST", path: inAudit + "/pods", media: auditJSON, body: `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`},
	{name: "create-service", method: "POST", path: inAudit + "/services", media: auditJSON, body: `{"metadata":{"name":"svc"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`},
	{name: "create-lease", method: "POST", path: auditLeases, media: auditJSON, body: `{"metadata":{"name":"l"}}`},
	{name: "create-no-namespace", method: "POST", path: "/api/v1/namespaces/nope/configmaps", media: auditJSON, body: `{"metadata":{"name":"a"}}`},
	{name: "unsupported-media", method: "POST", path: inAudit + "/configmaps", media: "text/plain", body: `x`},
	{name: "not-acceptable", method: "GET", path: inAudit + "/configmaps/a", headers: []string{"Accept: image/png"}},
	{name: "get", method: "GET", path: inAudit + "/configmaps/a"},
	{name: "get-quiet", method: "GET", path: inAudit + "/configmaps/quiet"},
	{name: "get-protobuf", method: "GET", path: inAudit + "/configmaps/a", headers: []string{"Accept: application/vnd.kubernetes.protobuf"}},
	{name: "get-yaml", method: "GET", path: inAudit + "/configmaps/a", headers: []string{"Accept: application/yaml"}},
	{name: "get-secret", method: "GET", path: inAudit + "/secrets/s"},
	{name: "get-lease", method: "GET", path: auditLeases + "/l"},
	{name: "get-missing", method: "GET", path: inAudit + "/configmaps/nope"},
	{name: "get-unknown-kind", method: "GET", path: inAudit + "/nopes/x"},
	{name: "get-unknown-group", method: "GET", path: "/apis/nope.example.com/v1/things"},
	{name: "get-partial", method: "GET", path: inAudit + "/configmaps/a", headers: []string{"Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}},
	{name: "list", method: "GET", path: inAudit + "/configmaps?labelSelector=x"},
	{name: "list-selected", method: "GET", path: inAudit + "/configmaps?fieldSelector=metadata.name%3Da&limit=1"},
	{name: "list-table", method: "GET", path: inAudit + "/pods?limit=500", headers: []string{"Accept: application/json;as=Table;v=v1;g=meta.k8s.io"}},
	{name: "list-protobuf", method: "GET", path: auditLeases, headers: []string{"Accept: application/vnd.kubernetes.protobuf"}},
	{name: "list-none", method: "GET", path: inAudit + "/events"},
	{name: "watch", method: "GET", path: inAudit + "/configmaps?watch=true&timeoutSeconds=600", cancel: true},
	{name: "watch-malformed", method: "GET", path: inAudit + "/configmaps?watch=true&labelSelector=a%3D%3D%3Db"},
	{name: "update", method: "PUT", path: inAudit + "/configmaps/a", media: auditJSON, body: `{"metadata":{"name":"a","labels":{"x":"y"}},"data":{"k":"w"}}`},
	{name: "update-conflict", method: "PUT", path: inAudit + "/configmaps/a", media: auditJSON, body: `{"metadata":{"name":"a","resourceVersion":"1"}}`},
	{name: "patch-json", method: "PATCH", path: inAudit + "/configmaps/a", media: "application/json-patch+json", body: `[ {"op": "add", "path": "/data/j", "value": "<1>"} ]`},
	{name: "patch-merge", method: "PATCH", path: inAudit + "/configmaps/a", media: "application/merge-patch+json", body: `{"data":{"m":"1"}}`},
	{name: "patch-strategic", method: "PATCH", path: inAudit + "/configmaps/a", media: "application/strategic-merge-patch+json", body: `{"data":{"s":"1"}}`},
	{name: "apply", method: "PATCH", path: inAudit + "/configmaps/b?fieldManager=m", media: "application/apply-patch+yaml", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`},
	{name: "patch-status", method: "PATCH", path: inAudit + "/pods/p/status", media: "application/merge-patch+json", body: `{"status":{"phase":"Running"}}`},
	{name: "log", method: "GET", path: inAudit + "/pods/p/log"},
	{name: "exec", method: "POST", path: inAudit + "/pods/p/exec?command=x"},
	{name: "token", method: "POST", path: inAudit + "/serviceaccounts/nope/token", media: auditJSON, body: `{}`},
	{name: "create-account", method: "POST", path: inAudit + "/serviceaccounts", media: auditJSON, body: `{"metadata":{"name":"bot"}}`},
	{name: "token-issued", method: "POST", path: inAudit + "/serviceaccounts/bot/token", media: auditJSON, body: `{}`},
	{name: "create-audited-namespace", method: "POST", path: "/api/v1/namespaces", media: auditJSON, body: `{"metadata":{"name":"aud2","labels":{"pod-security.kubernetes.io/audit":"baseline"}}}`},
	{name: "create-violating", method: "POST", path: "/api/v1/namespaces/aud2/pods", media: auditJSON, body: `{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`},
	{name: "create-violating-template", method: "POST", path: "/apis/apps/v1/namespaces/aud2/deployments", media: auditJSON, body: `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}}}`},
	{name: "review", method: "POST", path: "/apis/authentication.k8s.io/v1/selfsubjectreviews", media: auditJSON, body: `{}`},
	{name: "deprecated", method: "GET", path: inAudit + "/endpoints/nope"},
	{name: "impersonated", method: "GET", path: inAudit + "/configmaps/a", headers: []string{"Impersonate-User: bob", "Impersonate-Group: system:masters", "Impersonate-Extra-Scope: x"}},
	{name: "forbidden", method: "GET", path: inAudit + "/configmaps/a", headers: []string{"Impersonate-User: bob"}},
	{name: "forbidden-path", method: "GET", path: "/metrics", headers: []string{"Impersonate-User: bob"}},
	{name: "anonymous", method: "GET", path: inAudit + "/configmaps/a", noToken: true},
	{name: "anonymous-create", method: "POST", path: inAudit + "/configmaps", media: auditJSON, body: `{"metadata":{"name":"a"}}`, noToken: true},
	{name: "unauthorized", method: "GET", path: inAudit + "/configmaps/a", badToken: true},
	{name: "version", method: "GET", path: "/version"},
	{name: "api", method: "GET", path: "/api/v1/nope/"},
	{name: "readyz", method: "GET", path: "/readyz"},
	{name: "not-found", method: "GET", path: "/nope"},
	{name: "forwarded", method: "GET", path: "/version", headers: []string{"X-Forwarded-For: 10.0.0.1, junk, 2001:db8::1", "X-Real-Ip: 10.0.0.2"}},
	{name: "long-agent", method: "GET", path: "/version", headers: []string{"User-Agent: " + strings.Repeat("a", 1100)}},
	{name: "delete", method: "DELETE", path: inAudit + "/configmaps/b"},
	{name: "delete-options", method: "DELETE", path: inAudit + "/pods/p", media: auditJSON, body: `{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0,"preconditions":{"uid":"other"}}`},
	{name: "delete-missing", method: "DELETE", path: inAudit + "/configmaps/nope"},
	{name: "delete-collection", method: "DELETE", path: inAudit + "/configmaps?labelSelector=x"},
}

// send sends the request, and returns the code of the response.
func (q *auditRequest) send(t *testing.T, c *rest.Config) int {
	t.Helper()
	c = rest.CopyConfig(c)
	switch {
	case q.noToken:
		c = rest.AnonymousClientConfig(c)
	case q.badToken:
		c.BearerToken = "none"
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, q.method, c.Host+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Audit-ID", q.name)
	r.Header.Set("User-Agent", "audit-test")
	if q.media != "" {
		r.Header.Set("Content-Type", q.media)
	}
	for _, h := range q.headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatalf("%s: %v", q.name, err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Audit-Id"); got != q.name {
		t.Errorf("%s: the response has the audit ID %q", q.name, got)
	}
	if q.cancel {
		cancel()
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// auditEvent is an event whose volatile members are normalized.
type auditEvent = map[string]any

// recordedRequest are the events of a request, in order.
type recordedRequest struct {
	Name   string       `json:"name"`
	Events []auditEvent `json:"events"`
}

var (
	uidText  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	timeText = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	ageText  = regexp.MustCompile(`^\d+s$`)
)

// normalize replaces the parts that differ between two runs.
func normalize(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			if strings.HasPrefix(key, "apiserver.latency.k8s.io/") { // annotations of requests that took half a second
				delete(v, key)
				continue
			}
			switch key {
			case "resourceVersion":
				if value != "1" {
					v[key] = "RV"
				}
			case "uid":
				if value == "peer" { // other administrators have none
					delete(v, key)
					continue
				}
				v[key] = normalize(value)
			case "serverAddressByClientCIDRs", "gitVersion", "token":
				v[key] = "VARIES"
			default:
				v[key] = normalize(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = normalize(v[i])
		}
	case string:
		switch {
		case timeText.MatchString(v):
			return "TIME"
		case ageText.MatchString(v):
			return "AGE"
		}
		switch v {
		case "peer", "admin":
			return "ADMIN"
		case "meta.k8s.io/__internal": // of DeleteOptions; clients cannot know that version
			return "v1"
		}
		return uidText.ReplaceAllString(v, "UID")
	}
	return v
}

// auditEvents returns the events of the table's requests in a log.
func auditEvents(t *testing.T, log []byte) []recordedRequest {
	t.Helper()
	all := make([]recordedRequest, len(auditRequests))
	for i := range all {
		all[i].Name = auditRequests[i].name
	}
	for line := range bytes.Lines(log) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if i := slices.IndexFunc(all, func(r recordedRequest) bool { return r.Name == e["auditID"] }); i >= 0 {
			all[i].Events = append(all[i].Events, normalize(e).(auditEvent))
		}
	}
	return all
}

// TestAuditEvents compares whole events with those of kube-apiserver v1.36.
func TestAuditEvents(t *testing.T) {
	const file = "testdata/audit/events.json"
	if *auditRecord != "" {
		recordAuditEvents(t, file)
		return
	}
	path := filepath.Join(t.TempDir(), "logs", "audit.log")
	s := servertest.Start(t, &tidemark.Server{Audit: tidemark.Audit{PolicyFile: "testdata/audit/policy.yaml", Log: tidemark.AuditLog{Path: path}}})
	for i := range auditRequests {
		auditRequests[i].send(t, s.RESTConfig())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want []recordedRequest
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	got := auditEvents(t, log)
	for i := range got {
		t.Run(got[i].Name, func(t *testing.T) {
			if d := gocmp.Diff(want[i], got[i]); d != "" {
				t.Errorf("the events differ from kube-apiserver's (-want +got):\n%s", d)
			}
		})
	}
}

// recordAuditEvents sends the requests to another server and keeps its events.
func recordAuditEvents(t *testing.T, file string) {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", *auditRecord)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(*auditLog)
	if err != nil {
		t.Fatal(err)
	}
	for i := range auditRequests {
		t.Logf("%s: %d", auditRequests[i].name, auditRequests[i].send(t, c))
	}
	givePeer(2 * time.Second) // until the server has noticed that the watch is left
	log, err := os.ReadFile(*auditLog)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(auditEvents(t, log[len(before):]), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestAuditStrict: with the mode blocking-strict and a full disk, requests are refused before
// they are executed, and counted; with the mode blocking, they succeed.
func TestAuditStrict(t *testing.T) {
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		t.Skip("there is no /dev/full")
	}
	for mode, want := range map[string]int{"blocking-strict": http.StatusInternalServerError, "blocking": http.StatusCreated} {
		s := servertest.Start(t, &tidemark.Server{Audit: tidemark.Audit{PolicyFile: "testdata/audit/policy.yaml", Log: tidemark.AuditLog{Path: full, Mode: mode}}})
		if got := auditRequests[0].send(t, s.RESTConfig()); got != want {
			t.Errorf("%s: a create is %d, want %d", mode, got, want)
		}
		if mode != "blocking-strict" {
			_, metrics := servertest.Get(t, s.RESTConfig(), "/metrics")
			if !strings.Contains(metrics, `apiserver_audit_error_total{plugin="log"} 3`) { // two of the create, one of this request
				t.Errorf("%s: the lost events are not counted:\n%s", mode, metrics)
			}
		}
	}
}
