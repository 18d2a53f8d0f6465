package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// receiver is an audit webhook that keeps the events.
type receiver struct {
	mu     sync.Mutex
	events []auditv1.Event // guarded by mu
}

// ServeHTTP implements http.Handler.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var l auditv1.EventList
	if err := json.NewDecoder(q.Body).Decode(&l); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, l.Items...)
}

// startAudited starts a server whose audit log has all objects. events closes the log, and returns
// the events of the file and of the webhook, by audit ID.
func startAudited(t *testing.T, w wiring) (s *server, events func() [2]map[string][]auditv1.Event) {
	t.Helper()
	dir, hook := t.TempDir(), &receiver{}
	target := httptest.NewServer(hook)
	t.Cleanup(target.Close)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	policy, err := audit.ReadPolicy(write("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config := write("webhook.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u}]}`, target.URL))
	log := filepath.Join(dir, "audit.log")
	a, err := audit.New(audit.Config{
		Policy: policy,
		Log:    &audit.LogConfig{Path: log, Backend: audit.Backend{Mode: audit.Blocking}, File: audit.FileConfig{MaxBytes: 1 << 18}},
		Webhook: &audit.WebhookConfig{ConfigFile: config, InitialBackoff: time.Millisecond, Backend: audit.Backend{
			Mode: audit.Batch, Batch: audit.BatchConfig{BufferSize: 100_000, MaxSize: 7, MaxWait: time.Millisecond},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	inner := w.config
	w.config = func(c *httpapi.Config) {
		c.Audit = a
		if inner != nil {
			inner(c)
		}
	}
	return start(t, w), func() (all [2]map[string][]auditv1.Event) {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		all[0], all[1] = byID(readLogs(t, dir)), byID(hook.events)
		return all
	}
}

// readLogs reads the log and the files that it has rotated.
func readLogs(t *testing.T, dir string) (all []auditv1.Event) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "audit*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var e auditv1.Event
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, e)
		}
	}
	return all
}

func byID(all []auditv1.Event) map[string][]auditv1.Event {
	m := map[string][]auditv1.Event{}
	for _, e := range all {
		m[string(e.AuditID)] = append(m[string(e.AuditID)], e)
	}
	return m
}

// stages returns the stages of events in the order of stages, not of arrival: senders of batches
// overtake each other.
func stages(events []auditv1.Event) string {
	order := []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted, auditv1.StageResponseComplete, auditv1.StagePanic}
	all := make([]string, 0, len(events))
	for _, e := range events {
		all = append(all, fmt.Sprint(slices.Index(order, e.Stage), " ", e.Stage))
	}
	slices.Sort(all)
	for i := range all {
		all[i] = all[i][2:]
	}
	return strings.Join(all, " ")
}

// TestAuditOfStrangers: the events of requests that are not authenticated, or anonymous, have no long texts of the client. Those of
// a user have the whole URI.
func TestAuditOfStrangers(t *testing.T) {
	s, events := startAudited(t, wiring{})
	long := strings.Repeat("x", 100_000)
	for _, path := range []string{"/" + long, "/api/v1/namespaces/" + long + "/" + long + "/" + long + "?x=" + long, "/apis/" + long + "/" + long + "/x"} {
		for auth, code := range map[string]int{"Bearer wrong": 401, "none": 403, "Bearer bob": 403} {
			if a := s.do(t, "GET", path, "", "Authorization: "+auth, "User-Agent: "+long); a.code != code {
				t.Fatalf("%s: %d %s", auth, a.code, a.body)
			}
		}
	}
	largest := map[string]int{}
	for _, all := range events()[0] {
		for _, e := range all {
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			largest[e.User.Username] = max(largest[e.User.Username], len(text))
			if whole := strings.HasSuffix(e.RequestURI, "x"); whole != (e.User.Username == "bob") {
				t.Errorf("%q: a URI of %d bytes", e.User.Username, len(e.RequestURI))
			}
		}
	}
	if len(largest) != 3 || largest[""] > 20_000 || largest["system:anonymous"] > 20_000 || largest["bob"] < 300_000 {
		t.Errorf("bytes of the largest event of each user: %v", largest)
	}
}

// TestAuditPanic: a request that panics has the stage Panic instead of ResponseComplete, also if
// its response has begun.
func TestAuditPanic(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		s, events := startAudited(t, wiring{http1: http1, config: panics})
		s.do(t, "GET", "/openapi/v2", "", "Audit-Id: early")
		resp := s.open(t, t.Context(), "GET", "/openapi/v2?late", nil, "Audit-Id: late")
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Error("a response that is broken off looks complete")
		}
		resp.Body.Close()
		s.waitEnded(t, "GET /openapi/v2")
		s.waitEnded(t, "GET /openapi/v2")
		for _, log := range events() {
			for _, id := range []string{"early", "late"} {
				got := log[id]
				if s := stages(got); s != "RequestReceived Panic" {
					t.Errorf("%s: stages %s", id, s)
					continue
				}
				i := slices.IndexFunc(got, func(e auditv1.Event) bool { return e.Stage == auditv1.StagePanic })
				if s := got[i].ResponseStatus; s.Code != 500 || s.Reason != "InternalError" || s.Message != "APIServer panic'd: a bug" {
					t.Errorf("%s: %+v", id, s)
				}
			}
		}
	}
}

// panics configures a page that panics; with ?late after a part of its response.
func panics(c *httpapi.Config) {
	c.OpenAPI = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "late" {
			_, _ = io.WriteString(w, "a part")
			_ = http.NewResponseController(w).Flush()
		}
		panic("a bug")
	})
}

// TestAuditConcurrent: each event has the fields of its own request, and none is lost or doubled,
// while requests of all sorts share the memory of earlier ones.
func TestAuditConcurrent(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP1=%t", http1), func(t *testing.T) { testAuditConcurrent(t, http1) })
	}
}

func testAuditConcurrent(t *testing.T, http1 bool) {
	const workers, bigMaps, requests = 8, 10, 10 // requests of a turn
	each := 2
	if tier.IsFull(t) {
		each = 20
	}
	s, events := startAudited(t, wiring{http1: http1, config: panics})
	const maps = "/api/v1/namespaces/default/configmaps"
	for i := range bigMaps {
		s.create(t, "default", fmt.Sprintf("big-%d", i), 20_000)
	}
	want, mu := map[string]string{}, sync.Mutex{}
	expect := func(id, stages string) string {
		mu.Lock()
		defer mu.Unlock()
		want[id] = stages
		return "Audit-Id: " + id
	}
	const short, long = "RequestReceived ResponseComplete", "RequestReceived ResponseStarted ResponseComplete"
	var all sync.WaitGroup
	all.Go(func() {
		for range bigMaps + workers*each*requests {
			await.Value(t, "the end of a handler", s.ended)
		}
	})
	for w := range workers {
		all.Go(func() {
			for i := range each {
				name := fmt.Sprintf("m-%d-%d", w, i)
				body := fmt.Sprintf(`{"metadata":{"name":%q},"data":{"k":%q}}`, name, name)
				s.do(t, "POST", maps, body, expect("create."+name, short))
				s.do(t, "PUT", maps+"/"+name, strings.Replace(body, "k", "l", 1), expect("update."+name, short))
				s.do(t, "PATCH", maps+"/"+name, fmt.Sprintf(`{"data":{"p":%q}}`, name), "Content-Type: application/merge-patch+json", expect("patch."+name, short))
				s.do(t, "GET", maps+"/"+name, "", expect("get."+name, short))
				s.do(t, "GET", maps+"/none-"+name, "", expect("missing."+name, short))
				s.do(t, "GET", "/openapi/v2?"+name, "", expect("panic."+name, "RequestReceived Panic"))
				s.do(t, "GET", maps+"?fieldSelector=metadata.name%3D"+name, "", "Authorization: Bearer wrong", expect("refused."+name, "ResponseStarted"))
				ctx, cancel := context.WithCancel(t.Context())
				watch := s.open(t, ctx, "GET", maps+"?watch=1&fieldSelector=metadata.name%3D"+name, nil, expect("watch."+name, long))
				left := s.open(t, ctx, "GET", maps+"?x="+name, nil, expect("left."+name, short))
				cancel()
				watch.Body.Close()
				left.Body.Close()
				s.do(t, "DELETE", maps+"/"+name, "", expect("delete."+name, short))
			}
		})
	}
	all.Wait()
	for i, log := range events() {
		for id, stage := range want {
			if got := stages(log[id]); got != stage {
				t.Errorf("back end %d: %s: got %q want %q", i, id, got, stage)
			}
			for _, e := range log[id] {
				checkOwn(t, id, &e)
			}
		}
	}
}

// checkOwn checks that an event names no other object than that of its audit ID.
func checkOwn(t *testing.T, id string, e *auditv1.Event) {
	t.Helper()
	verb, name, _ := strings.Cut(id, ".")
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	if verb != "create" && !strings.Contains(e.RequestURI, name) {
		t.Errorf("%s: the URI is %s", id, e.RequestURI)
	}
	for rest := string(text); verb != "left"; { // a list has all objects
		_, after, found := strings.Cut(rest, `m-`)
		if !found {
			break
		}
		rest = after
		if !strings.HasPrefix("m-"+rest, name) || len(rest) > len(name)-2 && rest[len(name)-2] >= '0' && rest[len(name)-2] <= '9' {
			t.Errorf("%s: another request's %.20s: %.1000s", id, "m-"+rest, text)
			return
		}
	}
	whole := e.Stage == auditv1.StageResponseComplete
	if sent := slices.Contains([]string{"create", "update", "patch"}, verb); sent && whole && (e.RequestObject == nil || e.ResponseObject == nil) {
		t.Errorf("%s: no objects", id)
	}
}

// TestHangingAuditWebhook: while a webhook of the mode blocking-strict hangs, health checks and requests of the
// level None are served without it, and a request whose client leaves ends. The server would have counted
// the event as lost before the response, had it waited.
func TestHangingAuditWebhook(t *testing.T) {
	called, resume := make(chan struct{}, 100), make(chan struct{})
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-resume
	}))
	defer target.Close()
	defer close(resume)
	dir := t.TempDir()
	policyFile, configFile := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "webhook.yaml")
	for name, text := range map[string]string{
		policyFile: "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, nonResourceURLs: [/version]}, {level: Metadata}]\n",
		configFile: fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q}}], users: [{name: u}]}`, target.URL),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policy, err := audit.ReadPolicy(policyFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := audit.New(audit.Config{Policy: policy, Webhook: &audit.WebhookConfig{
		ConfigFile: configFile, InitialBackoff: time.Millisecond, Backend: audit.Backend{Mode: audit.BlockingStrict},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Audit = a }})
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/v1/namespaces/default", nil)
		if err == nil {
			_, err = s.client.Do(r)
		}
		ended <- err
	}()
	<-called
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/readyz/ping", "/version"} {
		if got := s.do(t, "GET", path, ""); got.code != 200 {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	leave()
	if err := <-ended; err == nil {
		t.Error("the request of a client that left has a response")
	}
	if lost := a.Counters().Errors["webhook"]; lost > 0 {
		t.Errorf("%d events were lost", lost)
	}
}
