package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const (
	flowGroup = "/apis/flowcontrol.apiserver.k8s.io/v1"
	schemas   = flowGroup + "/flowschemas"
	levels    = flowGroup + "/prioritylevelconfigurations"
	flowDebug = "/debug/api_priority_and_fairness/"
)

// flows is a server whose responses name their flow schema and level.
type flows struct {
	*testing.T
	admin *rest.Config
}

func startFlows(t *testing.T, s *tidemark.Server) *flows {
	return &flows{t, servertest.Start(t, s).RESTConfig()}
}

// as returns a configuration of another user.
func (f *flows) as(user string, groups ...string) *rest.Config {
	c := rest.CopyConfig(f.admin)
	c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
	return c
}

// do sends a request of the administrator.
func (f *flows) do(method, path, body string, want int) string {
	f.Helper()
	code, _, resp := exchange(f.T, f.admin, method, path, body)
	if code != want {
		f.Fatalf("%s %s: %d %s, want %d", method, path, code, resp, want)
	}
	return string(resp)
}

// uid returns the UID of a stored object.
func (f *flows) uid(path string) string {
	f.Helper()
	var o struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(f.do("GET", path, "", 200)), &o); err != nil || o.Metadata.UID == "" {
		f.Fatalf("%s: %v", path, err)
	}
	return o.Metadata.UID
}

// want compares the headers of a response with the UIDs of a schema and a level.
func (f *flows) want(c *rest.Config, method, path, schema, level string) {
	f.Helper()
	_, header, _ := exchange(f.T, c, method, path, "")
	got := header.Get("X-Kubernetes-PF-FlowSchema-UID") + " " + header.Get("X-Kubernetes-PF-PriorityLevel-UID")
	if want := f.uid(schemas+"/"+schema) + " " + f.uid(levels+"/"+level); got != want {
		f.Errorf("%s %s as %s: %q, want %s %s: %q", method, path, c.Impersonate.UserName, got, schema, level, want)
	}
}

// metric returns the lines of a metric that contain all of the words.
func (f *flows) metric(words ...string) (lines []string) {
	f.Helper()
	_, text := servertest.Get(f.T, f.admin, "/metrics")
	for line := range strings.Lines(text) {
		has := !strings.HasPrefix(line, "#")
		for _, w := range words {
			has = has && strings.Contains(line, w)
		}
		if has {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// TestFlowHeaders: requests belong to the flow schemas to which kube-apiserver assigns them. A
// change of a schema is in effect with the next request.
func TestFlowHeaders(t *testing.T) {
	server := &tidemark.Server{}
	f := startFlows(t, server)
	anonymous := servertest.Anonymous(server)
	kcm := f.as("system:kube-controller-manager")
	node := f.as("system:node:n1", "system:nodes")
	for _, row := range []struct {
		c                           *rest.Config
		method, path, schema, level string
	}{
		{f.admin, "GET", "/api/v1/pods", "exempt", "exempt"},
		{anonymous, "GET", "/healthz", "probes", "exempt"},
		{anonymous, "GET", "/livez/ping", "probes", "exempt"},
		{anonymous, "GET", "/version", "global-default", "global-default"},
		{anonymous, "GET", "/api/v1/pods", "global-default", "global-default"}, // 403
		{kcm, "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x", "system-leader-election", "leader-election"},
		{kcm, "GET", "/api/v1/pods", "kube-controller-manager", "workload-high"},
		{node, "GET", "/api/v1/nodes/n1", "system-node-high", "node-high"},
		{node, "GET", "/api/v1/pods", "system-nodes", "system"},
		{f.as("system:serviceaccount:kube-system:a", "system:serviceaccounts"), "GET", "/api/v1/pods", "kube-system-service-accounts", "workload-high"},
		{f.as("system:serviceaccount:shop:a", "system:serviceaccounts"), "GET", "/api/v1/pods", "service-accounts", "workload-low"},
		{f.as("bob"), "POST", "/api/v1/namespaces/default/pods", "global-default", "global-default"},
		{f.as("bob"), "GET", "/nope", "global-default", "global-default"},
		{f.as("bob", "system:masters"), "GET", "/nope", "exempt", "exempt"}, // 404
	} {
		f.want(row.c, row.method, row.path, row.schema, row.level)
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods/p/log", "/api/v1/namespaces/default/pods/p/exec"} {
		if _, header, _ := exchange(t, f.as("bob"), "GET", path, ""); header["X-Kubernetes-Pf-Flowschema-Uid"] != nil {
			t.Errorf("%s is a connection, and belongs to a flow: %v", path, header)
		}
	}
	if code, header, _ := exchange(t, servertest.WithToken(server, "wrong"), "GET", "/version", ""); code != 401 || header["X-Kubernetes-Pf-Flowschema-Uid"] != nil {
		t.Errorf("a request that is not authenticated: %d %v", code, header)
	}
	bob, err := server.RESTConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	bob.Impersonate = rest.ImpersonationConfig{UserName: "eve"}
	if code, header, _ := exchange(t, bob, "GET", "/version", ""); code != 403 || header["X-Kubernetes-Pf-Flowschema-Uid"] != nil {
		t.Errorf("a refused impersonation: %d %v", code, header)
	}

	f.do("POST", schemas, `{"metadata":{"name":"bob"},"spec":{"matchingPrecedence":9000,"priorityLevelConfiguration":{"name":"system"},"rules":[{"subjects":[{"kind":"User","user":{"name":"bob"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["/version"]}]}]}}`, 201)
	f.want(f.as("bob"), "GET", "/version", "bob", "system")
	f.want(f.as("bob"), "GET", "/apis", "global-default", "global-default")
	f.do("MERGE", schemas+"/bob", `{"spec":{"priorityLevelConfiguration":{"name":"nope"}}}`, 200)
	f.want(f.as("bob"), "GET", "/version", "global-default", "global-default")
	f.do("MERGE", schemas+"/bob", `{"spec":{"priorityLevelConfiguration":{"name":"workload-low"}}}`, 200)
	f.want(f.as("bob"), "GET", "/version", "bob", "workload-low")
	f.do("DELETE", schemas+"/bob", "", 200)
	f.want(f.as("bob"), "GET", "/version", "global-default", "global-default")
}

// ownLevel is a level for bob that gives no seats: zero shares, and nothing to borrow.
func (f *flows) ownLevel(name, response string) {
	f.Helper()
	f.do("POST", levels, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,"limitResponse":%s}}}`, name, response), 201)
	f.do("POST", schemas, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"matchingPrecedence":500,"priorityLevelConfiguration":{"name":%q},"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"User","user":{"name":"bob"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}]}]}}`, name, name), 201)
}

// wantRejected compares a response with that of kube-apiserver to a rejected request.
func (f *flows) wantRejected(c *rest.Config, path, level string) {
	f.Helper()
	code, header, body := exchange(f.T, c, "GET", path, "")
	if code != http.StatusTooManyRequests || string(body) != "Too many requests, please try again later." || header.Get("Retry-After") != "1" ||
		header.Get("Content-Type") != "text/plain; charset=utf-8" || header.Get("X-Content-Type-Options") != "nosniff" {
		f.Errorf("%d %v %q", code, header, body)
	}
	if got, want := header.Get("X-Kubernetes-PF-PriorityLevel-UID"), f.uid(levels+"/"+level); got != want {
		f.Errorf("the level is %q, want %q", got, want)
	}
}

// TestFlowsRejected: a request waits in its queue for a quarter of its time, and is rejected if the
// queue is full. Other users are served meanwhile.
func TestFlowsRejected(t *testing.T) { synctest.Test(t, testFlowsRejected) }

func testFlowsRejected(t *testing.T) {
	f := startFlows(t, &tidemark.Server{InProcess: true})
	f.ownLevel("narrow", `{"type":"Queue","queuing":{"queues":1,"handSize":1,"queueLengthLimit":1}}`)
	bob := f.as("bob")
	began := time.Now()
	f.wantRejected(bob, "/version?timeout=400ms", "narrow")
	if d := time.Since(began); d != 100*time.Millisecond {
		t.Errorf("it waited for %v", d)
	}
	var waits sync.WaitGroup
	waits.Go(func() {
		if code, _, _ := exchange(t, bob, "GET", "/version", ""); code != 200 {
			t.Errorf("a request that waits: %d", code)
		}
	})
	synctest.Wait()
	if len(f.metric("apiserver_flowcontrol_current_inqueue_requests{", `flow_schema="narrow"`, "} 1")) == 0 {
		t.Error("no request waits in the queue")
	}
	f.wantRejected(bob, "/version", "narrow") // the queue is full
	f.wantRows("dump_requests?includeRequestDetails=1", "narrow, narrow, 0, 0, , ", ", bob, get, /version, , , , ,")
	f.wantRows("dump_queues", "narrow, 0, 1, 0, 0, ")
	f.wantRows("dump_priority_levels", "narrow, 1, false, false, 1, 0, 0, 1, 1, 0")
	if code, _, _ := exchange(t, f.as("ann"), "GET", "/version", ""); code != 200 {
		t.Errorf("another user: %d", code)
	}
	for _, reason := range []string{"time-out", "queue-full"} {
		if len(f.metric("apiserver_flowcontrol_rejected_requests_total{", `flow_schema="narrow"`, `reason="`+reason+`"`, "} 1")) != 1 {
			t.Errorf("no request was rejected: %s", reason)
		}
	}
	f.do("MERGE", levels+"/narrow", `{"spec":{"limited":{"nominalConcurrencyShares":30}}}`, 200)
	f.want(f.as("ann"), "GET", "/version", "global-default", "global-default") // the level has seats now
	waits.Wait()
	f.want(bob, "GET", "/version", "narrow", "narrow")
	f.do("DELETE", levels+"/narrow", "", 200)
	f.want(bob, "GET", "/version", "global-default", "global-default")
}

// wantRows looks for words in a page about priority and fairness, whose columns are aligned with
// blanks.
func (f *flows) wantRows(page string, words ...string) {
	f.Helper()
	text := strings.Join(strings.Fields(f.do("GET", flowDebug+page, "", 200)), " ")
	for _, w := range words {
		if !strings.Contains(text, strings.TrimSpace(w)) {
			f.Errorf("%s has no %q:\n%s", page, w, text)
		}
	}
}

// TestFlowPages: the pages have kube-apiserver's columns, are not listed, and need the right to read
// them.
func TestFlowPages(t *testing.T) {
	f := startFlows(t, &tidemark.Server{})
	text := f.do("GET", flowDebug+"dump_priority_levels", "", 200)
	lines := strings.Split(text, "\n")
	if lines[0] != "PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests" ||
		len(lines) != 9 || !strings.HasPrefix(lines[1], "catch-all,         0,            true,   false,       0,               0,                 0,") || !strings.HasPrefix(lines[2], "exempt,            0,            false,  false,       0,               1,") {
		t.Errorf("levels:\n%s", text)
	}
	text = f.do("GET", flowDebug+"dump_queues", "", 200)
	if !strings.HasPrefix(text, "PriorityLevelName, Index,  PendingRequests, ExecutingRequests, SeatsInUse, NextDispatchR, InitialSeatsSum, MaxSeatsSum, TotalWorkSum\nglobal-default,    0,      0,               0,                 0,          0.00000000ss,  0,               0,           0.00000000ss\n") || strings.Count(text, "\n") != 128+16+64+64+128+128 {
		t.Errorf("queues:\n%.500s", text)
	}
	f.wantRows("dump_requests", "exempt, exempt, -1, -1, , ", ", 1, 0, 0s, ")
	f.do("GET", flowDebug+"nope", "", 404)
	if strings.Contains(f.do("GET", "/", "", 200), "debug") {
		t.Error("the pages are listed")
	}
	if code, _, _ := exchange(t, f.as("bob"), "GET", flowDebug+"dump_queues", ""); code != 403 {
		t.Errorf("without the right to read it: %d", code)
	}
}

// TestFlowObjects: objects that every server has cannot be changed or return at once.
func TestFlowObjects(t *testing.T) {
	f := startFlows(t, &tidemark.Server{})
	for _, path := range []string{schemas + "/exempt", schemas + "/catch-all"} {
		resp := f.do("MERGE", path, `{"spec":{"matchingPrecedence":5000}}`, 422)
		if !strings.Contains(resp, "must equal the fixed value") {
			t.Error(resp)
		}
	}
	for _, path := range []string{schemas + "/exempt", schemas + "/global-default", levels + "/catch-all", levels + "/system"} {
		before := f.uid(path)
		f.do("DELETE", path, "", 200)
		for after := before; after == before; {
			if code, _, resp := exchange(t, f.admin, "GET", path, ""); code == 200 {
				var o struct{ Metadata struct{ UID string } }
				if err := json.Unmarshal(resp, &o); err != nil {
					t.Fatal(err)
				}
				after = o.Metadata.UID
			}
		}
	}
	f.want(f.admin, "GET", "/version", "exempt", "exempt")
}

// TestFlowsOff: without priority and fairness, no response has its headers, and there are no pages and
// metrics of it.
func TestFlowsOff(t *testing.T) {
	f := startFlows(t, &tidemark.Server{Fairness: tidemark.Fairness{Disabled: true, MaxRequests: -1}})
	f.ownLevel("narrow", `{"type":"Reject"}`)
	if code, header, _ := exchange(t, f.as("bob"), "GET", "/version", ""); code != 200 || header["X-Kubernetes-Pf-Flowschema-Uid"] != nil || header["X-Kubernetes-Pf-Prioritylevel-Uid"] != nil {
		t.Errorf("%d %v", code, header)
	}
	f.do("GET", flowDebug+"dump_queues", "", 404)
	if lines := f.metric("flowcontrol_"); len(lines) > 0 {
		t.Errorf("metrics: %s", lines)
	}
	s := &tidemark.Server{Fairness: tidemark.Fairness{MaxRequests: -1, MaxMutatingRequests: -1}}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "no seats are left") {
		t.Errorf("a server without seats: %v", err)
	}
}

// TestFlowWork: lists take seats by the bytes that they return, and writes by the watches that get
// their events. Watches keep their seats until they have sent their first events.
func TestFlowWork(t *testing.T) { synctest.Test(t, testFlowWork) }

func testFlowWork(t *testing.T) {
	f := startFlows(t, &tidemark.Server{InProcess: true})
	f.do("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"all"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"Group","name":"system:authenticated"}]}`, 201)
	const maps = "/api/v1/namespaces/default/configmaps"
	for i := range 30 {
		f.do("POST", maps, fmt.Sprintf(`{"metadata":{"name":"m%d"},"data":{"k":%q}}`, i, strings.Repeat("x", 21_000)), 201)
	}
	bob := f.as("bob")
	seats := func() string {
		for _, line := range f.metric("work_estimated_seats_sum{", `flow_schema="global-default"`) {
			return line[strings.LastIndex(line, " ")+1:]
		}
		return "0"
	}
	sum := 0
	for _, row := range []struct {
		method, path string
		seats        int
	}{
		{"GET", maps, 7}, // 620 kB, and a seat is for 100
		{"GET", "/api/v1/namespaces/kube-system/configmaps", 1},
		{"GET", maps + "?limit=10", 3},
		{"GET", maps + "?limit=10&resourceVersion=1", 3},
		{"GET", maps + "?fieldSelector=metadata.name%3Dm1", 1},
		{"GET", maps + "?labelSelector=a", 7},
		{"GET", maps + "/m1", 1},
		{"GET", "/api/v1/namespaces/none/configmaps", 1},
		{"GET", maps + "?watch=1&timeoutSeconds=1&resourceVersion=1", 1},
		{"GET", maps + "?watch=1&timeoutSeconds=1", 7},
		{"DELETE", maps + "/m1", 1},
		{"GET", "/apis", 1},
	} {
		exchange(t, bob, row.method, row.path, "")
		if sum += row.seats; seats() != fmt.Sprint(sum) {
			t.Fatalf("%s %s: %s seats in all, want %d", row.method, row.path, seats(), sum)
		}
	}
	client := servertest.Client(t, bob)
	for range 20 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", bob.Host+maps+"?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
	}
	executing := `apiserver_flowcontrol_current_executing_requests{flow_schema="global-default",priority_level="global-default"} 0`
	synctest.Wait()
	if len(f.metric(executing)) == 0 {
		t.Error("watches that have sent their first events keep their seats")
	}
	exchange(t, bob, "DELETE", maps+"/m2", "") // takes two seats for its 20 events
	if sum += 20*7 + 2; seats() != fmt.Sprint(sum) {
		t.Errorf("with 20 watches and a write: %s seats in all, want %d", seats(), sum)
	}
	const watchers = `apiserver_flowcontrol_watch_count_samples_%s{flow_schema="global-default",priority_level="global-default"%s} %d`
	for _, want := range []string{fmt.Sprintf(watchers, "bucket", `,le="10"`, 1), fmt.Sprintf(watchers, "bucket", `,le="100"`, 2), fmt.Sprintf(watchers, "sum", "", 20)} {
		if len(f.metric(want)) != 1 {
			t.Errorf("two writes, one with 20 watches: no metric %s in %q", want, f.metric("watch_count_samples", `"global-default"`))
		}
	}
}
