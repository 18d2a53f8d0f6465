package tidemarktest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/internal/tier"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

// steps are the objects that the controllers of these tests create, in this order.
var steps = []string{"volume", "claim", "server"}

// send sends a request as a controller and returns the code. A context that ends is code 0.
func send(ctx context.Context, e *tidemarktest.Env, method, path, body string) int {
	r, err := http.NewRequestWithContext(ctx, method, e.URL()+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "steps-controller")
	response, err := nethttp.Client(e).Do(r)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func create(ctx context.Context, e *tidemarktest.Env, name string) int {
	return send(ctx, e, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"step":"yes"}}`, name))
}

// levelTriggered creates each object that does not exist.
func levelTriggered(ctx context.Context, e *tidemarktest.Env) {
	for _, name := range steps {
		if send(ctx, e, "GET", configMaps+"/"+name, "") == 404 {
			create(ctx, e, name)
		}
	}
}

// recording is a test that records its failures and its log.
type recording struct {
	tidemarktest.TB
	errors []string
	log    strings.Builder
}

func (r *recording) Errorf(format string, a ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, a...))
}
func (r *recording) Logf(format string, a ...any) { fmt.Fprintf(&r.log, format+"\n", a...) }

// stopping is a recording whose Fatalf ends the goroutine.
type stopping struct{ recording }

func (s *stopping) Fatalf(format string, a ...any) {
	s.Errorf(format, a...)
	runtime.Goexit()
}

// retrying creates each object, and tries again until it exists.
func retrying(ctx context.Context, e *tidemarktest.Env) {
	for _, name := range steps {
		for code := 0; ctx.Err() == nil && code != 201 && code != 409; {
			code = create(ctx, e, name)
		}
	}
}

// TestEveryFaultUntilSettled: an error that is only logged is found, although the next write of the operator leads to
// another try. An operator that tries again after an error passes.
func TestEveryFaultUntilSettled(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	operator := func(logged bool) func(context.Context, *tidemarktest.Env) {
		return func(ctx context.Context, e *tidemarktest.Env) {
			runShops(ctx, e, func(o *shopOperator, ctx context.Context, name string) error {
				var shop shopObject
				if err := o.call(ctx, "GET", configMaps+"/"+name, nil, &shop); err != nil {
					return err
				}
				if err := o.ensure(ctx, shopSecrets, o.child(&shop, "key")); err != nil && !logged {
					return err
				}
				if shop.Metadata.Annotations["seen"] != "" {
					return nil
				}
				shop.Metadata.Annotations = map[string]string{"seen": "true"}
				return o.call(ctx, "PUT", configMaps+"/"+name, &shop, nil)
			})
		}
	}
	env := shopsIn(t, 1)
	tidemarktest.EveryFault(t, env, operator(false))
	r := &recording{TB: t}
	tidemarktest.EveryFault(r, env, operator(true))
	all := strings.Join(r.errors, "\n")
	for _, verb := range []string{"get secrets default/shop-00-key", "create secrets in default"} {
		if !strings.Contains(all, "an error 500 for request 1 \""+verb+"\" by shop-operator, and for each one like it until the cluster had settled") {
			t.Errorf("%s: the failures are\n%s", verb, all)
		}
	}
	if strings.Contains(all+"\n", "by shop-operator\n") || strings.Contains(all, "by shop-operator:\n") {
		t.Errorf("a fault that happens once is no longer hidden:\n%s", all)
	}
}

// TestEveryFaultWebhook: where there are webhooks, one does not respond in time.
func TestEveryFaultWebhook(t *testing.T) {
	tier.Full(t)
	world := tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: []string{"testdata/webhook"}}}
	env := world.Fork(t)
	nethttp.Serve(t, env.Webhooks(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
	}))
	tidemarktest.EveryFault(t, env, retrying, tidemarktest.SameEnd())
	r := &recording{TB: t}
	tidemarktest.EveryFault(r, env, levelTriggered, tidemarktest.SameEnd())
	if all := strings.Join(r.errors, "\n"); !strings.Contains(all, `a time-out of a webhook for request 1 "create configmaps in default"`) || strings.Contains(all, `a time-out of a webhook for request 1 "get`) {
		t.Errorf("the failures are\n%s", all)
	}
}

// TestSearchUnservedWebhook: a search whose controller calls a webhook that nothing serves fails at the first call and says
// so. One whose controller calls no webhook does not need it, and it can be served later.
func TestSearchUnservedWebhook(t *testing.T) {
	t.Parallel()
	world := tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: []string{"testdata/webhook"}}}
	secrets := func(ctx context.Context, e *tidemarktest.Env) {
		send(ctx, e, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`)
	}
	const unserved, quiet = "nothing serves the webhooks of World.Webhooks at https://127.0.0.1:", "has not settled"
	for _, released := range []bool{false, true} {
		env := world.Fork(t)
		tidemarktest.EveryPrefix(t, env, secrets)
		if released {
			if err := env.Webhooks().Release(); err != nil {
				t.Fatal(err)
			}
		}
		controllers := []func(context.Context, *tidemarktest.Env){levelTriggered}
		if released { // one that goes on after the writes that fail has the same end in all runs
			controllers = append(controllers, func(ctx context.Context, e *tidemarktest.Env) {
				levelTriggered(ctx, e)
				secrets(ctx, e)
			})
		}
		for i, controller := range controllers {
			r := &fatal{recording: &recording{TB: t}}
			tidemarktest.EveryPrefix(r, env, controller)
			if len(r.errors) != 1 || !strings.Contains(r.errors[0], unserved) || strings.Contains(r.errors[0], quiet) {
				t.Errorf("released %t, controller %d: the errors are %q", released, i, r.errors)
			}
		}
		if released {
			continue
		}
		called := make(chan struct{})
		var once sync.Once
		nethttp.Serve(t, env.Webhooks(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { once.Do(func() { close(called) }) }))
		send(t.Context(), env, "POST", configMaps, `{"metadata":{"name":"late"}}`)
		<-called
	}
}

// TestOnly: TIDEMARK_ONLY chooses one run of the searches of a test. A name that none of them has fails the test, with the
// names that they have.
func TestOnly(t *testing.T) {
	env := tidemarktest.Start(t)
	for _, test := range []struct {
		only string
		runs int // with those without a disturbance
		want string
	}{
		{"crash-after-write-2", 2, ""},
		{"lag-1", 2, ""},
		{"undisturbed", 2, ""}, // one of each search
		{"crash-after-wirte-2", 0, `TIDEMARK_ONLY is "crash-after-wirte-2", but no search of this test has a run of that name, so nothing was tested. The runs are
  EveryPrefix:
    undisturbed
    crash-after-write-1
    crash-after-write-2
    crash-after-write-3
  EveryLag:
    undisturbed
    lag-1
`},
	} {
		t.Setenv("TIDEMARK_ONLY", test.only)
		var runs atomic.Int64
		counted := func(ctx context.Context, e *tidemarktest.Env) {
			runs.Add(1)
			levelTriggered(ctx, e)
		}
		r := &recording{TB: t}
		f := &failing{TB: r}
		tidemarktest.EveryPrefix(f, env, counted)
		tidemarktest.EveryLag(f, env, counted)
		for _, c := range f.cleanups {
			c()
		}
		if got := strings.Join(r.errors, "\n"); (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: the errors are %q, want %q", test.only, got, test.want)
		}
		if got := int(runs.Load()) - 2; got != test.runs { // the first run of each search
			t.Errorf("%s: %d runs, want %d\n%s", test.only, got, test.runs, &f.log)
		}
	}
}

// TestSearchOnReplica: the runs of a search are on copies of the cluster, which have no replicas.
func TestSearchOnReplica(t *testing.T) {
	t.Parallel()
	old := tidemarktest.Start(t).Replica(t, tidemarktest.Lag(1))
	r := &fatal{recording: &recording{TB: t}}
	tidemarktest.EveryPrefix(r, old.Env, levelTriggered)
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "replica") {
		t.Errorf("the errors are %q", r.errors)
	}
}

// TestSearchOfNothing: the error of a function that returns at once says so.
func TestSearchOfNothing(t *testing.T) {
	t.Parallel()
	r := &fatal{recording: &recording{TB: t}}
	tidemarktest.EveryPrefix(r, tidemarktest.Start(t), func(context.Context, *tidemarktest.Env) {})
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "the function has returned before its context ended") {
		t.Errorf("the errors are %q", r.errors)
	}
}

// TestSearchPanic: a panic of the function is a failure of its run, with the place. The same panic of several runs is reported
// once.
func TestSearchPanic(t *testing.T) {
	t.Parallel()
	env := tidemarktest.Start(t)
	var none map[string]int
	for _, after := range []int{0, 1} { // the panic is in the first run, in a later one
		var runs atomic.Int64
		r := &fatal{recording: &recording{TB: t}}
		tidemarktest.EveryPrefix(r, env, func(ctx context.Context, e *tidemarktest.Env) {
			levelTriggered(ctx, e)
			if runs.Add(1) > 1+int64(after) || after == 0 {
				none["a"]++
			}
		})
		if len(r.errors) != 1 {
			t.Errorf("after %d runs: the errors are\n%s", after, strings.Join(r.errors, "\n"))
			continue
		}
		for _, want := range []string{"the function has panicked: assignment to entry in nil map\n", "tidemarktest_test.TestSearchPanic.func1\n", "search_test.go:"} {
			if !strings.Contains(r.errors[0], want) {
				t.Errorf("after %d runs: the error is %s\nwant %s", after, r.errors[0], want)
			}
		}
		if strings.Contains(r.errors[0], "runtime.") || strings.Contains(r.errors[0], "goroutine") {
			t.Errorf("after %d runs: the error is %s", after, r.errors[0])
		}
	}
}

// TestSearchMistakes: a check that panics, a check that is nil, and a function that is nil fail the test.
func TestSearchMistakes(t *testing.T) {
	t.Parallel()
	env := tidemarktest.Start(t)
	panics := func(first, disturbed *tidemarktest.Run) error { panic("no check") }
	for _, test := range []struct {
		run   func(ctx context.Context, e *tidemarktest.Env)
		check tidemarktest.Check
		want  string
	}{
		{levelTriggered, panics, "a check has panicked: no check\n  github.com/tidemark-dev/tidemark/tidemarktest_test.TestSearchMistakes.func1\n"},
		{levelTriggered, nil, "the function, or a check, is nil"},
		{nil, panics, "the function, or a check, is nil"},
	} {
		r := &fatal{recording: &recording{TB: t}}
		tidemarktest.EveryPrefix(r, env, test.run, test.check)
		if len(r.errors) != 1 || !strings.Contains(r.errors[0], test.want) {
			t.Errorf("the errors are %q, want one with %s", r.errors, test.want)
		}
	}
}

// TestSearchProgress: the log has the progress of a search if go test prints it meanwhile. After the end it would be in the way
// of the failure.
func TestSearchProgress(t *testing.T) {
	env := tidemarktest.Start(t)
	verbose := flag.Lookup("test.v")
	defer func(before string) {
		if err := verbose.Value.Set(before); err != nil {
			t.Error(err)
		}
	}(verbose.Value.String())
	for _, value := range []string{"false", "true"} {
		if err := verbose.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		r := &recording{TB: t}
		tidemarktest.EveryPrefix(r, env, levelTriggered)
		if got := r.log.String(); (value == "true") != strings.Contains(got, "4 of 4 runs, 0 failed") || value == "false" && got != "" {
			t.Errorf("-v=%s: the log is\n%s", value, got)
		}
	}
}

// fatal is a test that records fatal errors too, and goes on after them.
type fatal struct{ *recording }

func (f *fatal) Fatalf(format string, a ...any) { f.Errorf(format, a...) }

// TestFault: the requests that a test selects fail, as often as it says.
func TestFault(t *testing.T) {
	env := tidemarktest.Start(t)
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}")
	code := func(method, path string) int {
		body := ""
		if method == "PUT" {
			body = `{"metadata":{"name":"` + filepath.Base(path) + `"}}`
		}
		return send(t.Context(), env, method, configMaps+path, body)
	}
	conflict := env.Fault(t, tidemarktest.On("update", "configmaps").Named("default/a").By("steps-controller").Conflict().Times(1))
	for i, want := range []int{409, 200} {
		if got := code("PUT", "/a"); got != want {
			t.Errorf("update %d: %d, want %d", i, got, want)
		}
	}
	if got := code("PUT", "/b"); got != 200 {
		t.Errorf("an update of another object: %d", got)
	}
	if n := conflict.Fired(t); n != 1 {
		t.Errorf("the conflict happened %d times", n)
	}
	failing := env.Fault(t, tidemarktest.On("get", "configmaps").User("alice").Status(503, 0))
	other := env.Fault(t, tidemarktest.On("", "deployments.apps").Status(503, 0))
	alice := env.As("alice", "system:masters")
	if got := send(t.Context(), alice, "GET", configMaps+"/a", ""); got != 503 {
		t.Errorf("a get by the user: %d", got)
	}
	if got := code("GET", "/a"); got != 200 {
		t.Errorf("a get by another user: %d", got)
	}
	e := &ending{recording: &recording{TB: t}}
	env.Fault(e, tidemarktest.On("update", "deployments.apps/scale").Conflict())
	e.end()
	if log := e.log.String(); !strings.Contains(log, `the fault "conflict" for update deployments.apps/scale has not happened`) {
		t.Errorf("the log is %q", log)
	}
	for want, f := range map[string]tidemarktest.Fault{
		`no resource "configmap"`:                 tidemarktest.On("update", "configmap").Conflict(), // a singular
		`no resource "pods.apps"`:                 tidemarktest.On("update", "pods.apps").Conflict(),
		`"pods" has no subresource "scale"`:       tidemarktest.On("update", "pods/scale").Conflict(),
		`both conflict and lostResponse`:          tidemarktest.On("update", "pods").Conflict().LostResponse(),
		`a create of pods has no name`:            tidemarktest.On("create", "pods").Named("a").LostResponse(),
		`wants at least one event`:                tidemarktest.On("watch", "pods").DropAfter(0),
		`not negative`:                            tidemarktest.On("update", "pods").Status(429, -time.Second),
		`the fault "" for update configmaps.apps`: tidemarktest.On("update", "configmaps.apps"),
	} {
		r := &fatal{&recording{TB: t}}
		env.Fault(r, f)
		if len(r.errors) != 1 || !strings.Contains(r.errors[0], want) {
			t.Errorf("the errors are %q, want one with %s", r.errors, want)
		}
	}
	env.Fault(t, tidemarktest.On("update", "pods/*").Latency(time.Millisecond))
	if n := other.Fired(t); n != 0 {
		t.Errorf("the fault of Deployments happened %d times", n)
	}
	failing.Remove(t)
	failing.Remove(t)
	stopped := make(chan *stopping)
	go func() {
		s := &stopping{recording: recording{TB: t}}
		defer func() { stopped <- s }()
		failing.Fired(s)
	}()
	if s := <-stopped; !strings.Contains(strings.Join(s.errors, "\n"), "call Fired before Remove") {
		t.Errorf("Fired after Remove: %q", s.errors)
	}
	if got := send(t.Context(), alice, "GET", configMaps+"/a", ""); got != 200 {
		t.Errorf("a get after the end of the fault: %d", got)
	}
}

// TestChanges: the history has the changes, in order and with their actors.
func TestChanges(t *testing.T) {
	t.Setenv("TIDEMARK_DUMP", t.TempDir())
	env := tidemarktest.Start(t)
	levelTriggered(t.Context(), env)
	env.Settle(t)
	volume, server := tidemarktest.Match{Resource: "configmaps", Name: "volume"}, tidemarktest.Match{Resource: "configmaps", Name: "default/server"}
	changes := env.Changes(t).By("steps-controller")
	if n := len(changes.All()); n != 3 {
		t.Errorf("%d changes by the controller", n)
	}
	if n := len(changes.Where(nil).All()); n != 3 {
		t.Errorf("%d changes with a nil function", n)
	}
	check := func(on tidemarktest.TB) {
		c := env.Changes(on).By("steps-controller")
		c.Before(volume, server)
		c.Eventually(tidemarktest.Match{Verb: "create"})
		c.Never(tidemarktest.Match{Verb: "delete"})
		c.NoWritesAfterSettled()
		c.Converges()
		c.NoHotLoop()
	}
	check(t)
	for want, m := range map[string]tidemarktest.Match{
		`no resource "confgmaps"`:      {Resource: "confgmaps"},
		`the verb "remove" is not one`: {Verb: "remove"},
		`no resource "pods.apps"`:      {Resource: "pods.apps"},
		`"pods" has no subresource`:    {Resource: "pods/stats"},
	} {
		r := &fatal{&recording{TB: t}}
		env.Changes(r).Never(m)
		if len(r.errors) != 1 || !strings.Contains(r.errors[0], want) {
			t.Errorf("%v: the errors are %q, want one with %s", m, r.errors, want)
		}
	}
	env.Changes(t).Never(tidemarktest.Match{Verb: "deletecollection", Resource: "deployments"}) // which the server has
	env.Changes(t).Never(tidemarktest.Match{Resource: "pods/status"})
	for _, m := range []tidemarktest.Match{{By: "step-controller"}, {}} {
		r := &recording{TB: t}
		c := env.Changes(r)
		if m.By == "" {
			c = c.By("step-controller")
		}
		c.Eventually(m)
		c.Before(m, m)
		if all := strings.Join(r.errors, "\n"); len(r.errors) != 2 || strings.Count(all, `no change is by "step-controller". The actors are steps-controller (admin)`) != 2 {
			t.Errorf("%v: the errors are %s", m, all)
		}
	}
	same := &recording{TB: t}
	env.Changes(same).Before(volume, tidemarktest.Match{Resource: "configmaps", Verb: "create"})
	if len(same.errors) != 1 || !strings.Contains(same.errors[0], "the first change that matches a change of configmaps volume is also the first one that matches create of configmaps") {
		t.Errorf("the same change: %q", same.errors)
	}
	for i, assert := range []func(tidemarktest.Changes){
		func(c tidemarktest.Changes) { c.By("step-controller").Never(tidemarktest.Match{Verb: "delete"}) },
		func(c tidemarktest.Changes) { c.Never(tidemarktest.Match{By: "step-controller"}) },
		func(c tidemarktest.Changes) { c.By("step-controller").NoHotLoop() },
		func(c tidemarktest.Changes) { c.By("step-controller").Converges() },
		func(c tidemarktest.Changes) { c.By("step-controller").NoWritesAfterSettled() },
		func(c tidemarktest.Changes) { c.By("steps-controller").Never(tidemarktest.Match{Verb: "delete"}) }, // it has written
	} {
		r := &recording{TB: t}
		assert(env.Changes(r))
		want := `By("step-controller")`
		if i == 5 {
			want = ""
		}
		if got := r.log.String(); len(r.errors) > 0 || (want == "") != (got == "") || !strings.Contains(got, want) || want != "" && !strings.Contains(got, "The actors are steps-controller (admin)") {
			t.Errorf("assertion %d: the errors are %q, and the log is %s", i, r.errors, got)
		}
	}
	env.Golden(t, "testdata/golden/steps.yaml")
	t.Setenv("TIDEMARK_UPDATE_GOLDEN", "1")
	written := filepath.Join(t.TempDir(), "new", "steps.yaml")
	env.Golden(t, written)
	t.Setenv("TIDEMARK_UPDATE_GOLDEN", "")
	env.Golden(t, written)
	// Now everything is wrong that the checks look for, but the order.
	path := configMaps + "/server"
	for i := range 12 {
		if code := send(t.Context(), env, "PUT", path, fmt.Sprintf(`{"metadata":{"name":"server","annotations":{"try":"%d"}}}`, i%2)); code != 200 {
			t.Fatalf("an update: %d", code)
		}
	}
	send(t.Context(), env, "DELETE", path, "")
	r := &recording{TB: t}
	check(r)
	env.Golden(r, "testdata/golden/steps.yaml")
	all := strings.Join(r.errors, "\n")
	for _, part := range []string{`Changes.By("steps-controller"): delete must not happen, but there is 1 match`, "writes after the cluster has settled", "does not converge", "again and again", "differs from testdata/golden/steps.yaml", "metadata.annotations.try", "the state at revision"} {
		if !strings.Contains(all, part) {
			t.Errorf("the failures lack %q:\n%s", part, all)
		}
	}
	if !strings.Contains(all, "  ... 9 changes of the same fields, up to revision ") || strings.Count(all, ": update configmaps default/server by") > 20 {
		t.Errorf("changes that are alike have a line each:\n%s", all)
	}
	if len(r.errors) != 5 {
		t.Errorf("%d failures, want 5:\n%s", len(r.errors), all)
	}
}
