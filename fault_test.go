package tidemark_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// settle waits for the world.
func settle(t testing.TB, w *tidemark.World) {
	t.Helper()
	if _, err := w.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func addFault(t testing.TB, w *tidemark.World, f tidemark.Fault) tidemark.FaultState {
	t.Helper()
	added, err := w.AddFault(f)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// request sends a request whose connection may break.
func request(t testing.TB, c *rest.Config, method, path, body string) (*http.Response, string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

// reached runs a test with a server behind a port, and with one in the process.
func reached(t *testing.T, test func(t *testing.T, w *tidemark.World)) {
	t.Run("port", func(t *testing.T) { test(t, servertest.Start(t, new(tidemark.Server)).Root()) })
	t.Run("process", func(t *testing.T) { test(t, servertest.Start(t, &tidemark.Server{InProcess: true}).Root()) })
	t.Run("fork", func(t *testing.T) {
		root := servertest.Start(t, new(tidemark.Server)).Root()
		settle(t, root) // the fork's controllers find nothing to do
		test(t, mustFork(t, root, tidemark.ForkOptions{}))
	})
}

// TestFaultResponses: the responses are those of a server that has a reason for them.
func TestFaultResponses(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	c := w.RESTConfig()
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	for _, test := range []struct {
		fault              tidemark.Fault
		method, path, body string
		code               int
		reason, retry      string
	}{
		{tidemark.Fault{Fault: "conflict"}, "PUT", configMaps + "/a", configMap("a", "2"), 409, "Conflict", ""},
		{tidemark.Fault{Fault: "status", Code: 429, RetryAfterSeconds: 2}, "GET", configMaps + "/a", "", 429, "TooManyRequests", "2"},
		{tidemark.Fault{Fault: "status", Code: 500, RetryAfterSeconds: 3}, "GET", configMaps, "", 500, "ServerTimeout", "3"},
		{tidemark.Fault{Fault: "status", Code: 500}, "GET", configMaps, "", 500, "InternalError", ""},
		{tidemark.Fault{Fault: "status", Code: 503, RetryAfterSeconds: 1}, "DELETE", configMaps + "/a", "", 503, "ServiceUnavailable", "1"},
		{tidemark.Fault{Fault: "status", Code: 504}, "POST", configMaps, configMap("b", "1"), 504, "Timeout", ""},
		{tidemark.Fault{Fault: "gone"}, "GET", configMaps + "?resourceVersion=1&resourceVersionMatch=Exact", "", 410, "Expired", ""},
		{tidemark.Fault{Fault: "webhookTimeout", Webhook: "x.example.com"}, "POST", configMaps, configMap("b", "1"), 500, "InternalError", ""},
	} {
		test.fault.Times = 1
		added := addFault(t, w, test.fault)
		resp, text, err := request(t, c, test.method, test.path, test.body)
		if err != nil {
			t.Fatalf("%+v: %v", test.fault, err)
		}
		var status struct{ Reason string }
		if err := json.Unmarshal([]byte(text), &status); err != nil {
			t.Fatalf("%+v: %v: %s", test.fault, err, text)
		}
		if resp.StatusCode != test.code || status.Reason != test.reason || resp.Header.Get("Retry-After") != test.retry {
			t.Errorf("%+v: %d, Retry-After %q: %s", test.fault, resp.StatusCode, resp.Header.Get("Retry-After"), text)
		}
		if got := w.Faults(); len(got) != 1 || got[0].ID != added.ID || got[0].Fired != 1 {
			t.Errorf("the faults are %+v", got)
		}
		if err := w.RemoveFault(added.ID); err != nil {
			t.Error(err)
		}
	}
	// None of the writes was executed.
	list := must(t, c, http.StatusOK, "GET", configMaps, "")
	if strings.Contains(list, `"name":"b"`) || strings.Contains(list, `"v":"2"`) || !strings.Contains(list, `"name":"a"`) {
		t.Errorf("a request with a fault was executed: %s", list)
	}
}

// TestFaultContinue: a token that is gone comes with one that goes on in the newest state.
func TestFaultContinue(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	c := w.RESTConfig()
	for _, name := range []string{"a", "b", "c"} {
		must(t, c, http.StatusCreated, "POST", configMaps, configMap(name, "1"))
	}
	type list struct {
		Metadata struct{ Continue string }
		Items    []json.RawMessage
	}
	first := get[list](t, c, configMaps+"?limit=1")
	addFault(t, w, tidemark.Fault{Fault: "gone", Resource: "configmaps", Times: 1})
	text := must(t, c, http.StatusGone, "GET", configMaps+"?limit=1&continue="+first.Metadata.Continue, "")
	var gone list
	if err := json.Unmarshal([]byte(text), &gone); err != nil || gone.Metadata.Continue == "" {
		t.Fatalf("%v: the response has no token: %s", err, text)
	}
	if rest := get[list](t, c, configMaps+"?limit=100&continue="+gone.Metadata.Continue); len(rest.Items) < 2 {
		t.Errorf("the token of the response continues with %d objects", len(rest.Items))
	}
}

// TestFaultLostResponse: the write is stored, and the client does not know.
func TestFaultLostResponse(t *testing.T) {
	reached(t, func(t *testing.T, w *tidemark.World) {
		c := w.RESTConfig()
		addFault(t, w, tidemark.Fault{Fault: "lostResponse", Verbs: []string{"create"}, Resource: "configmaps", Times: 1})
		if resp, text, err := request(t, c, "POST", configMaps, configMap("a", "1")); err == nil {
			t.Fatalf("the client has a response: %v %s", resp.Status, text)
		}
		must(t, c, http.StatusOK, "GET", configMaps+"/a", "")
		must(t, c, http.StatusConflict, "POST", configMaps, configMap("a", "1"))
	})
}

// TestFaultDrop: a request breaks and is not executed, a watch breaks after some events or while it
// waits.
func TestFaultDrop(t *testing.T) {
	reached(t, func(t *testing.T, w *tidemark.World) {
		c := w.RESTConfig()
		addFault(t, w, tidemark.Fault{Fault: "drop", Verbs: []string{"create"}, Times: 1})
		if resp, _, err := request(t, c, "POST", configMaps, configMap("a", "1")); err == nil {
			t.Fatalf("the client has a response: %v", resp.Status)
		}
		must(t, c, http.StatusNotFound, "GET", configMaps+"/a", "")

		settle(t, w) // no write of a controller must come in between
		waits := openWatch(t, c, fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, w.Revision()))
		other := openWatch(t, c, fmt.Sprintf("/api/v1/secrets?watch=1&resourceVersion=%d", w.Revision()))
		open := addFault(t, w, tidemark.Fault{Fault: "drop", Verbs: []string{"watch"}, Resource: "configmaps", Times: 1})
		if event := waits(); event != "" {
			t.Errorf("a watch that was dropped sends %s", event)
		}
		if got := w.Faults(); got[1].ID != open.ID || got[1].Fired != 1 {
			t.Errorf("the faults are %+v", got)
		}

		addFault(t, w, tidemark.Fault{Fault: "drop", Verbs: []string{"watch"}, Resource: "configmaps", Events: 2, Times: 1})
		counted := openWatch(t, c, fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, w.Revision()))
		for _, name := range []string{"x", "y", "z"} {
			must(t, c, http.StatusCreated, "POST", configMaps, configMap(name, "1"))
		}
		if a, b, end := counted(), counted(), counted(); !strings.Contains(a, `"x"`) || !strings.Contains(b, `"y"`) || end != "" {
			t.Errorf("the watch sends %s, %s, %s", a, b, end)
		}
		must(t, c, http.StatusCreated, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`)
		if event := other(); !strings.Contains(event, `"s"`) {
			t.Errorf("a watch that is not selected sends %q", event)
		}
	})
}

// TestFaultGoneWatch: a watch from a revision gets the event that a reflector lists after; others are no
// concern of it.
func TestFaultGoneWatch(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	addFault(t, w, tidemark.Fault{Fault: "gone", Verbs: []string{"watch"}, Times: 1})
	c := w.RESTConfig()
	newest := openWatch(t, c, configMaps+"?watch=1&resourceVersion=0&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
	if event := newest(); strings.Contains(event, "ERROR") || event == "" {
		t.Errorf("a watch from any state sends %q", event)
	}
	next := openWatch(t, c, fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, w.Revision()))
	if event := next(); !strings.Contains(event, `"ERROR"`) || !strings.Contains(event, `"code":410`) {
		t.Errorf("the watch sends %q", event)
	}
	if event := next(); event != "" {
		t.Errorf("after its error the watch sends %q", event)
	}
}

// TestFaultSelection: the requests that a rule selects, counts and chooses.
func TestFaultSelection(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	admin := w.RESTConfig()
	alice, err := w.RESTConfigFor("alice", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	agent := w.RESTConfig()
	agent.UserAgent = "db-controller/v1"
	must(t, admin, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	broken := func(c *rest.Config, path string) bool {
		code, _ := send(t, c, "GET", path, "")
		return code == http.StatusServiceUnavailable
	}
	status := tidemark.Fault{Fault: "status", Code: 503}
	for _, test := range []struct {
		name       string
		change     func(f *tidemark.Fault)
		hit, spare func() bool
	}{
		{"user", func(f *tidemark.Fault) { f.User = "alice" }, func() bool { return broken(alice, configMaps) }, func() bool { return broken(admin, configMaps) }},
		{"user agent", func(f *tidemark.Fault) { f.UserAgent = "db-controller" }, func() bool { return broken(agent, configMaps) }, func() bool { return broken(admin, configMaps) }},
		{"name", func(f *tidemark.Fault) { f.Name = "a" }, func() bool { return broken(admin, configMaps+"/a") }, func() bool { return broken(admin, configMaps+"/b") }},
		{"namespace", func(f *tidemark.Fault) { f.Namespace = "default" }, func() bool { return broken(admin, configMaps) }, func() bool { return broken(admin, "/api/v1/configmaps") }},
		{"subresource", func(f *tidemark.Fault) { f.Resource = "namespaces/*" }, func() bool { return broken(admin, "/api/v1/namespaces/default/status") }, func() bool { return broken(admin, "/api/v1/nodes") }},
		{"no subresource", func(f *tidemark.Fault) { f.Resource = "namespaces" }, func() bool { return broken(admin, "/api/v1/namespaces/default") }, func() bool { return broken(admin, "/api/v1/namespaces/default/status") }},
		{"group", func(f *tidemark.Fault) { f.Group = "apps" }, func() bool { return broken(admin, "/apis/apps/v1/deployments") }, func() bool { return broken(admin, configMaps) }},
		{"no resource", func(f *tidemark.Fault) {}, func() bool { return broken(admin, configMaps) }, func() bool { return broken(admin, "/version") }},
	} {
		f := status
		test.change(&f)
		addFault(t, w, f)
		if !test.hit() || test.spare() {
			t.Errorf("%s: hit %v, spared %v", test.name, test.hit(), !test.spare())
		}
		w.ClearFaults()
	}
	f := status
	f.After, f.Times = 1, 2
	addFault(t, w, f)
	var got []bool
	for range 4 {
		got = append(got, broken(admin, configMaps))
	}
	if fmt.Sprint(got) != "[false true true false]" {
		t.Errorf("after 1, times 2: %v", got)
	}
	w.ClearFaults()
	f = status
	f.Probability, f.Seed = 0.5, 7
	var runs [2]string
	for i := range runs {
		addFault(t, w, f)
		for range 40 {
			runs[i] += fmt.Sprint(broken(admin, configMaps), " ")
		}
		w.ClearFaults()
	}
	if runs[0] != runs[1] || !strings.Contains(runs[0], "true") || !strings.Contains(runs[0], "false") {
		t.Errorf("with one seed: %s; then %s", runs[0], runs[1])
	}
}

// TestFaultRefused: rules that the API does not allow are refused, and there is a limit.
func TestFaultRefused(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	for _, f := range []tidemark.Fault{
		{},
		{Fault: "fire"},
		{Fault: "conflict", Verbs: []string{"get"}},
		{Fault: "lostResponse", Verbs: []string{"watch"}},
		{Fault: "status", Code: 404},
		{Fault: "status", Code: 503, RetryAfterSeconds: -1},
		{Fault: "latency"},
		{Fault: "drop", Events: 1},
		{Fault: "drop", Probability: 2},
		{Fault: "drop", Verbs: []string{"eat"}},
		{Fault: "drop", User: strings.Repeat("a", 2000)},
	} {
		if added, err := w.AddFault(f); err == nil {
			t.Errorf("added %+v", added)
		}
	}
	for range 100 {
		addFault(t, w, tidemark.Fault{Fault: "drop", Name: "none"})
	}
	if _, err := w.AddFault(tidemark.Fault{Fault: "drop"}); err == nil {
		t.Error("there is no limit")
	}
}

// TestFaultLatency: a delayed request is under way, and is executed afterwards.
func TestFaultLatency(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	c := w.RESTConfig()
	addFault(t, w, tidemark.Fault{Fault: "latency", DelayMilliseconds: 600_000, Times: 1})
	must(t, c, http.StatusGatewayTimeout, "GET", configMaps+"?timeout=20ms", "") // it is not executed late
	must(t, c, http.StatusOK, "GET", configMaps, "")
	addFault(t, w, tidemark.Fault{Fault: "latency", DelayMilliseconds: 1})
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
}

// TestSettle: the revision of Settle has all that controllers write, and its watches have sent it.
func TestSettle(t *testing.T) {
	reached(t, func(t *testing.T, w *tidemark.World) {
		c := w.RESTConfig()
		next := openWatch(t, c, fmt.Sprintf("/api/v1/configmaps?watch=1&resourceVersion=%d", w.Revision()))
		must(t, c, http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
		go func() { // a client that reads
			for next() != "" {
			}
		}()
		revision, err := w.Settle(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if revision != w.Revision() {
			t.Errorf("settled at %d, the revision is %d", revision, w.Revision())
		}
		// The controllers have made the default objects of the namespace.
		must(t, c, http.StatusOK, "GET", "/api/v1/namespaces/n/configmaps/kube-root-ca.crt", "")
		must(t, c, http.StatusOK, "GET", "/api/v1/namespaces/n/serviceaccounts/default", "")
	})
}

// TestSettleWaits: a request under way, and events that a client in the process has not read, keep a world from
// settling.
func TestSettleWaits(t *testing.T) { synctest.Test(t, settleWaits) }

func settleWaits(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	c := w.RESTConfig()
	unsettled := func(why string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := w.Settle(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), why) {
			t.Errorf("Settle: %d, %v; want %q", r, err, why)
		}
	}
	settle(t, w)
	next := openWatch(t, c, fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, w.Revision()))
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	unsettled("has not taken")
	next()
	settle(t, w)

	// A request whose body has not arrived is under way.
	body := &heldBody{Reader: strings.NewReader(configMap("b", "1")), asked: make(chan struct{}), come: make(chan struct{})}
	r, err := http.NewRequestWithContext(t.Context(), "POST", configMaps, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.BearerToken)
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(body.Len())
	var a response
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Handler().ServeHTTP(&a, r)
	}()
	<-body.asked
	unsettled("requests under way")
	close(body.come)
	<-done
	next()
	if settle(t, w); a.code != http.StatusCreated {
		t.Errorf("the request ended with %d", a.code)
	}
}

// TestSettleFor: it returns when no write has happened for a while, and nothing is under way then.
func TestSettleFor(t *testing.T) {
	t.Run("nothing happens", func(t *testing.T) { synctest.Test(t, settleIdle) })
	t.Run("writes", func(t *testing.T) { synctest.Test(t, settleWrites) })
	t.Run("a read at the end", func(t *testing.T) { synctest.Test(t, settleRead) })
	t.Run("no end of writes", func(t *testing.T) { synctest.Test(t, settleNever) })
	t.Run("a fork that is closed", func(t *testing.T) { synctest.Test(t, settleClosed) })
}

const quiet = 320 * time.Millisecond

// settledWorld starts a server, and returns its world when it has settled.
func settledWorld(t *testing.T) (*tidemark.World, *rest.Config) {
	t.Helper()
	w := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	settle(t, w)
	return w, w.RESTConfig()
}

// settleFor waits until the world is quiet, and returns when it was.
func settleFor(t *testing.T, w *tidemark.World) time.Time {
	t.Helper()
	revision, err := w.SettleFor(t.Context(), quiet)
	if err != nil || revision != w.Revision() {
		t.Errorf("settled at %d, the revision is %d: %v", revision, w.Revision(), err)
	}
	return time.Now()
}

func between(t *testing.T, d, least time.Duration) {
	t.Helper()
	if most := least + quiet/8; d < least || d > most {
		t.Errorf("it took %v, want %v to %v", d, least, most)
	}
}

func settleIdle(t *testing.T) {
	w, _ := settledWorld(t)
	begin := time.Now()
	between(t, settleFor(t, w).Sub(begin), quiet)
}

func settleWrites(t *testing.T) {
	w, c := settledWorld(t)
	last := make(chan time.Time, 1)
	go func() {
		for i := range 5 {
			time.Sleep(quiet - 1)
			must(t, c, http.StatusCreated, "POST", configMaps, configMap(fmt.Sprint("a", i), "1"))
		}
		last <- time.Now()
	}()
	end := settleFor(t, w)
	between(t, end.Sub(<-last), quiet)
}

func settleRead(t *testing.T) {
	w, c := settledWorld(t)
	addFault(t, w, tidemark.Fault{Fault: "latency", DelayMilliseconds: 2 * quiet.Milliseconds(), Times: 1})
	begin := time.Now()
	var reader sync.WaitGroup
	reader.Go(func() {
		time.Sleep(quiet / 2)
		must(t, c, http.StatusOK, "GET", configMaps, "")
	})
	between(t, settleFor(t, w).Sub(begin), 5*quiet/2)
	reader.Wait()
}

func settleNever(t *testing.T) {
	w, c := settledWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*quiet)
	defer cancel()
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			must(t, c, http.StatusCreated, "POST", configMaps, configMap(fmt.Sprint("a", i), "1"))
			time.Sleep(quiet / 4)
		}
	})
	if r, err := w.SettleFor(ctx, quiet); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "quiet for 320ms") {
		t.Errorf("settled at %d: %v", r, err)
	}
}

func settleClosed(t *testing.T) {
	w, _ := settledWorld(t)
	f := mustFork(t, w, tidemark.ForkOptions{})
	var closer sync.WaitGroup
	defer closer.Wait()
	closer.Go(func() {
		time.Sleep(time.Second)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	if r, err := f.SettleFor(t.Context(), time.Hour); !errors.Is(err, tidemark.ErrForkClosed) {
		t.Errorf("settled at %d: %v", r, err)
	}
}

// heldBody is a body that does not arrive before come is closed.
type heldBody struct {
	*strings.Reader
	once        sync.Once
	asked, come chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.asked) })
	<-b.come
	return b.Reader.Read(p)
}
