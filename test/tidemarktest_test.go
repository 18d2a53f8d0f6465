package test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

// The functions of tidemarktest in these tests mostly wait. They do so in bubbles of testing/synctest, with a server in the
// process. The tests of package tidemarktest use the server's program.

// searchIn runs a test with a cluster in a bubble.
func searchIn(t *testing.T, test func(t *testing.T, env *tidemarktest.Env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, (&tidemarktest.World{Host: startHost(t)}).Fork(t)) })
}

// startHost starts a server in the bubble of the test.
func startHost(t *testing.T) *tidemark.Host {
	t.Helper()
	s := &tidemark.Server{InProcess: true}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Host()
}

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
	resp, err := nethttp.Client(e).Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// makeStep creates an object and returns the code.
func makeStep(ctx context.Context, e *tidemarktest.Env, name string) int {
	return send(ctx, e, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q},"data":{"step":"yes"}}`, name))
}

// levelTriggered creates each object that does not exist.
func levelTriggered(ctx context.Context, e *tidemarktest.Env) {
	for _, name := range steps {
		if send(ctx, e, "GET", configMaps+"/"+name, "") == 404 {
			makeStep(ctx, e, name)
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

// retrying creates each object, and tries again until it exists.
func retrying(ctx context.Context, e *tidemarktest.Env) {
	for _, name := range steps {
		for code := 0; ctx.Err() == nil && code != 201 && code != 409; {
			code = makeStep(ctx, e, name)
		}
	}
}

// readAs sends a GET as a controller and calls a function with the body.
func readAs(ctx context.Context, e *tidemarktest.Env, path string, f func(body string)) {
	stream(ctx, e, path, func(r io.Reader) {
		if body, err := io.ReadAll(r); err == nil {
			f(string(body))
		}
	})
}

// stream sends a GET as a controller and calls a function with the body as it arrives.
func stream(ctx context.Context, e *tidemarktest.Env, path string, f func(body io.Reader)) {
	r, err := http.NewRequestWithContext(ctx, "GET", e.URL()+path, http.NoBody)
	if err != nil {
		return
	}
	response, err := nethttp.Client(e).Do(r)
	if err != nil {
		return
	}
	defer response.Body.Close()
	if response.StatusCode == 200 {
		f(response.Body)
	}
}

// fatal is a test that records fatal errors too, and goes on after them.
type fatal struct{ *recording }

func (f *fatal) Fatalf(format string, a ...any) { f.Errorf(format, a...) }

// edgeTriggered creates an object only if it has just created the one before.
func edgeTriggered(ctx context.Context, e *tidemarktest.Env) {
	for _, name := range steps {
		if makeStep(ctx, e, name) != 201 {
			return
		}
	}
}

// TestEveryPrefix: a controller that looks at the state passes. One that relies on its own last write
// fails after each write but the last.
func TestEveryPrefix(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TIDEMARK_DUMP", dir)
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		before := len(env.Changes(t).All())
		tidemarktest.Search{Parallel: -1}.EveryPrefix(t, env, levelTriggered, tidemarktest.SameEnd()) // one at a time

		r := &recording{TB: t}
		tidemarktest.EveryPrefix(r, env, edgeTriggered) // SameEnd is the default
		if len(r.errors) != 2 {
			t.Fatalf("%d failures, want 2:\n%s", len(r.errors), strings.Join(r.errors, "\n"))
		}
		for i, parts := range [][]string{
			{"after write 2 of 3", "create configmaps default/claim by", "- configmaps default/server"},
			{"after write 1 of 3: the error of \"a crash at revision", "after write 2 of 3\", and", "more"},
		} {
			for _, part := range parts {
				if !strings.Contains(r.errors[i], part) {
					t.Errorf("failure %d lacks %q:\n%s", i, part, r.errors[i])
				}
			}
			dump := filepath.Join(dir, "TestEveryPrefix", fmt.Sprintf("crash-after-write-%d", i+1))
			if _, err := os.Stat(filepath.Join(dump, "state.yaml")); err != nil {
				t.Error(err)
			}
			history, err := os.ReadFile(filepath.Join(dump, "history.jsonl"))
			if n := strings.Count(string(history), `"key":"default/`); err != nil || n != i+1 {
				t.Errorf("the history after write %d has %d changes, %v:\n%s", i+1, n, err, history)
			}
		}
		if !strings.Contains(r.log.String(), "2 of 4 runs failed") {
			t.Errorf("the progress:\n%s", &r.log)
		}
		if after := len(env.Changes(t).All()); after != before {
			t.Errorf("the Env has %d changes more", after-before)
		}
	})
}

// TestEveryFault: a controller that tries again passes. One that does not fails on errors, and passes with
// lost responses and latency.
func TestEveryFault(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TIDEMARK_DUMP", dir)
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		tidemarktest.EveryFault(t, env, retrying, tidemarktest.SameEnd(), tidemarktest.NoReplacement())

		r := &recording{TB: t}
		tidemarktest.EveryFault(r, env, levelTriggered, tidemarktest.SameEnd())
		var want [][]string // one failure for each way to fail
		for i, name := range steps {
			want = append(want, []string{
				fmt.Sprintf(`an error 500 for request 1 "get configmaps default/%s" by steps-controller:`, name), "- configmaps default/" + name,
				fmt.Sprintf(`an error 500 for request %d "create configmaps in default" by steps-controller`, i+1),
			})
		}
		want[0] = append(want[0], "the same error with 4 more:", `an error 429 for request 1 "get`, `an error 429 for request 1 "create`)
		for _, i := range []int{2, 1} { // the error for create i goes on for those after it
			want = append(want, []string{fmt.Sprintf(`an error 500 for request %d "create configmaps in default" by steps-controller, and for each one like it until the cluster had settled: the error of "`, i)})
		}
		if len(r.errors) != len(want) {
			t.Fatalf("%d failures, want %d:\n%s", len(r.errors), len(want), strings.Join(r.errors, "\n"))
		}
		for i, parts := range want {
			if i < len(steps) {
				parts = append(parts, "tidemark serve "+dir, "/TestEveryFault/status-500-")
			}
			for _, part := range parts {
				if !strings.Contains(r.errors[i], part) {
					t.Errorf("failure %d lacks %q:\n%s", i, part, r.errors[i])
				}
			}
		}
		if !strings.Contains(r.log.String(), "14 of 21 runs failed, in 5 ways") {
			t.Errorf("the progress:\n%s", &r.log)
		}
	})
}

// exactRead creates an object after a list of its namespace, which it repeats until that succeeds, and an exact list
// of all namespaces, which it does not repeat.
func exactRead(ctx context.Context, e *tidemarktest.Env) {
	revision := ""
	for revision == "" && ctx.Err() == nil {
		readAs(ctx, e, configMaps, func(list string) {
			if m := regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindStringSubmatch(list); m != nil {
				revision = m[1]
			}
		})
	}
	readAs(ctx, e, "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion="+revision, func(string) {
		makeStep(ctx, e, "volume")
	})
}

// TestEveryFaultNumbers: a fault happens to the request that its message names, although its rule selects others too,
// or not all of those with the same verb and resource.
func TestEveryFaultNumbers(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		r := &recording{TB: t}
		tidemarktest.EveryFault(r, env, exactRead, tidemarktest.SameEnd())
		if len(r.errors) != 1 {
			t.Fatalf("%d failures, want 1:\n%s", len(r.errors), strings.Join(r.errors, "\n"))
		}
		for _, part := range []string{`an error 500 for request 2 "list configmaps" by`, `an error 410 for request 1 "list configmaps" by`, `an error 500 for request 1 "create configmaps in default" by`} {
			if !strings.Contains(r.errors[0], part) {
				t.Errorf("the failure lacks %q:\n%s", part, r.errors[0])
			}
		}
		if log := r.log.String(); strings.Contains(log, "did not happen") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

// staleRead creates the objects that a list of any age lacks. An object that exists is in its way, and it deletes
// that.
func staleRead(ctx context.Context, e *tidemarktest.Env) {
	readAs(ctx, e, configMaps+"?resourceVersion=0", func(list string) {
		for _, name := range steps {
			if strings.Contains(list, `"name":"`+name+`"`) {
				continue
			}
			if makeStep(ctx, e, name) == 409 {
				send(ctx, e, "DELETE", configMaps+"/"+name, "")
				makeStep(ctx, e, name)
			}
		}
	})
}

// TestEveryLag: a controller that accepts an existing object passes. One that deletes objects which
// are missing in a stale list fails.
func TestEveryLag(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TIDEMARK_DUMP", dir)
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		tidemarktest.EveryLag(t, env, levelTriggered, tidemarktest.SameEnd(), tidemarktest.NoReplacement())
		tidemarktest.EveryPrefix(t, env, staleRead, tidemarktest.SameEnd(), tidemarktest.NoReplacement())

		r := &recording{TB: t}
		tidemarktest.EveryLag(r, env, staleRead, tidemarktest.SameEnd(), tidemarktest.NoReplacement())
		want := [][]string{ // after write 1, 2, 3
			{"a restart at revision", "after write 1 of 3", "changes behind: 1)", "create configmaps default/volume", "configmaps default/volume was deleted, and created again"},
			{"after write 2 of 3", "changes behind: 1)", "configmaps default/claim was deleted"},
			{"after write 2 of 3", "changes behind: 2)", "configmaps default/"},
			{"after write 3 of 3", "changes behind: 1)", "configmaps default/server was deleted"},
			{"after write 3 of 3", "changes behind: 2)", "configmaps default/"},
			{"after write 3 of 3", "changes behind: 3)", "configmaps default/", "restart-after-write-3-lag-3 --at"},
		}
		if len(r.errors) != len(want) {
			t.Fatalf("%d failures, want %d:\n%s", len(r.errors), len(want), strings.Join(r.errors, "\n"))
		}
		for i, parts := range want {
			for _, part := range parts {
				if !strings.Contains(r.errors[i], part) {
					t.Errorf("failure %d lacks %q:\n%s", i, part, r.errors[i])
				}
			}
		}
		history, err := os.ReadFile(filepath.Join(dir, "TestEveryLag", "restart-after-write-3-lag-2", "history.jsonl"))
		if err != nil {
			t.Error(err)
		}
		last := uint64(0)
		for d := json.NewDecoder(bytes.NewReader(history)); d.More(); { // each change once
			var c tidemarktest.Change
			if err := d.Decode(&c); err != nil || c.Revision <= last {
				t.Fatalf("revision %d after %d, %v in the history:\n%s", c.Revision, last, err, history)
			}
			last = c.Revision
		}
		if n := strings.Count(string(history), `"verb":"create","actor":{"user":"admin","userAgent":"steps-controller"`); n < 3 {
			t.Errorf("the history has %d creations:\n%s", n, history)
		}
		if !strings.Contains(r.log.String(), "6 of 9 runs failed") {
			t.Errorf("the progress:\n%s", &r.log)
		}
	})
}

// TestUnstable: a controller whose end differs from run to run fails for this reason alone.
func TestUnstable(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		r := &recording{TB: t}
		var runs atomic.Int64
		tidemarktest.EveryPrefix(r, env, func(ctx context.Context, e *tidemarktest.Env) {
			makeStep(ctx, e, fmt.Sprint("run-", runs.Add(1)))
		}, tidemarktest.SameEnd())
		if len(r.errors) != 1 || !strings.Contains(r.errors[0], "a second run without a disturbance fails") {
			t.Errorf("the errors are %q", r.errors)
		}
	})
}

// slowHost is a Host that pauses while it describes the server, as one on an overloaded machine.
type slowHost struct {
	*tidemark.Host
	pause func()
}

func (h slowHost) Control(ctx context.Context, method, path string, body []byte) (int, io.ReadCloser, error) {
	if path == "/control/v1" {
		h.pause()
	}
	return h.Host.Control(ctx, method, path, body)
}

// TestSearchOverloaded: a run that fails while the machine is overloaded is repeated, and the second time counts.
func TestSearchOverloaded(t *testing.T) {
	for _, row := range []struct {
		name               string
		wrong              func(run int64) bool // run 1 is the first run, 2 the one without a disturbance
		failures, repeated int
	}{
		{"wrong once", func(run int64) bool { return run == 3 }, 0, 1},
		{"wrong for good", func(run int64) bool { return run > 2 }, 1, 1},
		{"wrong once without a disturbance", func(run int64) bool { return run == 2 }, 0, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &tidemarktest.World{Host: slowHost{startHost(t), func() { time.Sleep(10 * time.Millisecond) }}}
				r := &recording{TB: t}
				var runs atomic.Int64
				tidemarktest.Search{Parallel: -1}.EveryPrefix(r, w.Fork(t), func(ctx context.Context, e *tidemarktest.Env) {
					wrong := row.wrong(runs.Add(1))
					levelTriggered(ctx, e)
					if wrong {
						send(ctx, e, "DELETE", configMaps+"/"+steps[0], "")
					}
				})
				if len(r.errors) != row.failures {
					t.Errorf("%d failures, want %d:\n%s", len(r.errors), row.failures, strings.Join(r.errors, "\n"))
				}
				if want := fmt.Sprintf("; %d repeated", row.repeated); !strings.Contains(r.log.String(), want) {
					t.Errorf("the log lacks %q:\n%s", want, &r.log)
				}
			})
		})
	}
}

// TestSearchWithoutTime: a search that judges nothing fails the test: one whose failures could not be repeated, and one that
// had no time for a disturbance.
func TestSearchWithoutTime(t *testing.T) {
	for name, row := range map[string]struct {
		search tidemarktest.Search
		want   string
	}{
		"no repetition": {tidemarktest.Search{Parallel: 8, Budget: 1500 * time.Millisecond}, "there was no time to repeat them"},
		"no run":        {tidemarktest.Search{Budget: 1}, "ended before a run with a disturbance began"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &tidemarktest.World{Host: slowHost{startHost(t), func() { time.Sleep(10 * time.Millisecond) }}}
				r := &recording{TB: t}
				var runs atomic.Int64
				row.search.EveryPrefix(r, w.Fork(t), func(ctx context.Context, e *tidemarktest.Env) {
					wrong := runs.Add(1) > 2
					levelTriggered(ctx, e)
					if wrong {
						for begin := time.Now(); time.Since(begin) < 1500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
							send(ctx, e, "GET", configMaps+"/"+steps[0], "") // the run goes on past the time for repetitions
						}
						send(ctx, e, "DELETE", configMaps+"/"+steps[0], "")
					}
				})
				if len(r.errors) != 1 || !strings.Contains(r.errors[0], row.want) {
					t.Errorf("the errors are %q, want one with %q\n%s", r.errors, row.want, &r.log)
				}
			})
		})
	}
}

// ended is a test whose process go test ends at a time.
type ended struct {
	*fatal
	end time.Time
}

func (e *ended) Deadline() (time.Time, bool) { return e.end, true }

// TestSearchDeadline: a search ends before go test ends the process, and reports what it has found until then.
func TestSearchDeadline(t *testing.T) {
	for _, row := range []struct {
		time      time.Duration
		err, want string
	}{
		{10 * time.Second, "the ends differ", "the time of go test -timeout ended before 1 of 4 runs began"},
		{4 * time.Second, "there was no time to repeat them", ""}, // the last run that begins would take longer
		{time.Second, "the first run", ""},
	} {
		t.Run(row.time.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := (&tidemarktest.World{Host: startHost(t)}).Fork(t)
				r := &ended{&fatal{&recording{TB: t}}, time.Now().Add(row.time)}
				var runs atomic.Int64
				tidemarktest.Search{Parallel: -1}.EveryPrefix(r, env, func(ctx context.Context, e *tidemarktest.Env) {
					wrong := runs.Add(1) > 2
					levelTriggered(ctx, e)
					if wrong {
						send(ctx, e, "DELETE", configMaps+"/"+steps[0], "")
					}
				})
				if left := time.Until(r.end); left <= 0 {
					t.Errorf("the search ends %v too late", -left)
				}
				if len(r.errors) != 1 || !strings.Contains(r.errors[0], row.err) {
					t.Errorf("the errors are %q, want one with %q", r.errors, row.err)
				}
				if !strings.Contains(r.log.String(), row.want) {
					t.Errorf("the log lacks %q:\n%s", row.want, &r.log)
				}
			})
		})
	}
}

// TestSearchHotLoop checks that if the first run does not settle because of a hot loop, the error
// names the writers and their objects.
func TestSearchHotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fatal{&recording{TB: t}}
		env := (&tidemarktest.World{Host: startHost(t)}).Fork(t)
		tidemarktest.EveryPrefix(r, env, func(ctx context.Context, e *tidemarktest.Env) {
			makeStep(ctx, e, "hot")
			for i := 0; ctx.Err() == nil; i++ {
				send(ctx, e, "PUT", configMaps+"/hot", fmt.Sprintf(`{"metadata":{"name":"hot"},"data":{"n":"%d"}}`, i))
				time.Sleep(20 * time.Millisecond) // so that the bubble's time passes
			}
		})
		if len(r.errors) != 1 || !strings.Contains(r.errors[0], " times: update configmaps default/hot by ") {
			t.Errorf("the errors are %q", r.errors)
		}
	})
}

// TestEveryPrefixService: the addresses that the server allocates are no difference, and no writes of the controller.
func TestEveryPrefixService(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		r := &recording{TB: t}
		var runs atomic.Int64
		tidemarktest.EveryPrefix(r, env, func(ctx context.Context, e *tidemarktest.Env) {
			runs.Add(1)
			makeStep(ctx, e, "settings")
			send(ctx, e, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"web"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`)
		}, tidemarktest.SameEnd())
		if n := runs.Load(); len(r.errors) > 0 || n != 4 { // two without a crash, and one after each of two writes
			t.Errorf("%d runs, the errors are %q, the log is\n%s", n, r.errors, &r.log)
		}
	})
}

// staleCache counts the children of a Secret in a cache that a streaming list fills, creates one if there is none, and then
// marks the Secret, whose event lets it count again.
func staleCache(ctx context.Context, e *tidemarktest.Env) {
	events := make(chan string)
	read := func(body io.Reader) {
		for d := json.NewDecoder(body); ; {
			var event struct {
				Type   string
				Object struct {
					Kind     string
					Metadata struct{ Name string }
				}
			}
			if d.Decode(&event) != nil {
				return
			}
			if event.Type == "BOOKMARK" {
				event.Object.Metadata.Name = ""
			}
			select {
			case events <- event.Object.Kind + " " + event.Object.Metadata.Name:
			case <-ctx.Done():
				return
			}
		}
	}
	for _, resource := range []string{"configmaps", "secrets"} {
		go stream(ctx, e, "/api/v1/namespaces/default/"+resource+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", read)
	}
	children, filled, parent := map[string]bool{}, 0, false
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			kind, name, _ := strings.Cut(event, " ")
			switch {
			case name == "":
				filled++
			case kind == "ConfigMap" && strings.HasPrefix(name, "child-"):
				children[name] = true
			case name == "parent":
				parent = true
			}
			if filled < 2 || !parent {
				continue
			}
			if parent = false; len(children) == 0 {
				send(ctx, e, "POST", configMaps, `{"metadata":{"generateName":"child-"}}`)
			}
			send(ctx, e, "PUT", "/api/v1/namespaces/default/secrets/parent", `{"metadata":{"name":"parent","annotations":{"example.com/made":"yes"}}}`)
		}
	}
}

// TestEveryLagResource: a stale cache that a streaming list fills is found, although it begins with the newest state: one
// resource is behind another from then on. The restarts alone do not show it, and without a lag there is nothing wrong.
func TestEveryLagResource(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		env.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: parent}}")
		r := &recording{TB: t}
		tidemarktest.EveryLag(r, env, staleCache)
		if all := strings.Join(r.errors, "\n"); len(r.errors) == 0 || !strings.Contains(all, "a server whose configmaps stay 2 changes behind") || strings.Contains(all, "secrets stay") {
			t.Errorf("the failures are\n%s\nand the log\n%s", all, &r.log)
		}
	})
}

// TestSearchLeader: the failure of a controller that elects a leader names the Lease that the next controller waits for.
func TestSearchLeader(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		r := &recording{TB: t}
		tidemarktest.EveryPrefix(r, env, func(ctx context.Context, e *tidemarktest.Env) {
			lease := `{"metadata":{"name":"leader"},"spec":{"holderIdentity":"a"}}`
			if send(ctx, e, "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", lease) == 201 {
				levelTriggered(ctx, e)
			}
		})
		if want := "leases.coordination.k8s.io default/leader"; len(r.errors) == 0 || !strings.Contains(r.errors[0], want) || !strings.Contains(r.errors[0], "leader election must be off") {
			t.Errorf("the failures do not name %s:\n%s", want, strings.Join(r.errors, "\n"))
		}
	})
}

// TestSearchWithoutWrites: the error of a search whose controller writes nothing has the requests that it has sent.
func TestSearchWithoutWrites(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: taken}}")
		for name, row := range map[string]struct {
			run  func(ctx context.Context, e *tidemarktest.Env)
			want string
		}{
			"refused": {func(ctx context.Context, e *tidemarktest.Env) {
				for range 2 {
					send(ctx, e, "PUT", configMaps+"/absent", `{"metadata":{"name":"absent"}}`)
				}
				<-ctx.Done()
			}, "its writes failed, or changed nothing: 2 times update configmaps default/absent"},
			"reads": {func(ctx context.Context, e *tidemarktest.Env) {
				send(ctx, e, "GET", configMaps+"/taken", "")
				<-ctx.Done()
			}, "it has sent 1 request, and no write"},
			"elsewhere": {func(ctx context.Context, _ *tidemarktest.Env) {
				levelTriggered(ctx, env)
				<-ctx.Done()
			}, "it has sent no request: the function must use the Env that it is given"},
		} {
			r := &fatal{&recording{TB: t}}
			tidemarktest.EveryPrefix(r, env, row.run)
			if len(r.errors) != 1 || !strings.Contains(r.errors[0], row.want) {
				t.Errorf("%s: the errors are %q, want one with %q", name, r.errors, row.want)
			}
		}
	})
}

// TestEveryLagSlow: a controller that begins late, as on a busy machine, meets the lag, too.
func TestEveryLagSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := (&tidemarktest.World{Host: startHost(t)}).Fork(t)
		env.Apply(t, "{apiVersion: v1, kind: Secret, metadata: {name: parent}}")
		r := &recording{TB: t}
		tidemarktest.EveryLag(r, env, func(ctx context.Context, e *tidemarktest.Env) {
			select {
			case <-ctx.Done():
			case <-time.After(2500 * time.Millisecond):
				staleCache(ctx, e)
			}
		})
		if all := strings.Join(r.errors, "\n"); !strings.Contains(all, "a server whose configmaps stay 2 changes behind") {
			t.Errorf("the failures are\n%s\nand the log\n%s", all, &r.log)
		}
	})
}

// finalizing is a controller with a finalizer: it marks the owner, creates a child that belongs to it, and takes the
// finalizer off when the owner is deleted.
func finalizing(ctx context.Context, e *tidemarktest.Env) {
	readAs(ctx, e, configMaps+"/owner", func(body string) {
		if strings.Contains(body, `"deletionTimestamp"`) {
			send(ctx, e, "PUT", configMaps+"/owner", `{"metadata":{"name":"owner"}}`)
		}
	})
}

// TestEveryPrefixGarbage: the last write of a controller makes garbage, which the server collects also if the next
// controller has nothing to write.
func TestEveryPrefixGarbage(t *testing.T) {
	searchIn(t, func(t *testing.T, env *tidemarktest.Env) {
		env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: owner, finalizers: [example.com/f]}}")
		var owner struct{ Metadata struct{ UID string } }
		readAs(t.Context(), env, configMaps+"/owner", func(body string) {
			if err := json.Unmarshal([]byte(body), &owner); err != nil {
				t.Fatal(err)
			}
		})
		env.Apply(t, fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: child, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: %s}]}}", owner.Metadata.UID))
		send(t.Context(), env, "DELETE", configMaps+"/owner", "")
		env.Settle(t)
		tidemarktest.EveryPrefix(t, env, finalizing)
		tidemarktest.EveryLag(t, env, finalizing)
	})
}

// ending is a test whose cleanups the test calls.
type ending struct {
	*recording
	cleanups []func()
}

func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *ending) end() {
	for _, f := range slices.Backward(e.cleanups) {
		f()
	}
}

// counting is a Host that calls a function after the watches of a world were counted.
type counting struct {
	*tidemark.Host
	counted func()
}

func (h counting) Control(ctx context.Context, method, path string, body []byte) (int, io.ReadCloser, error) {
	code, resp, err := h.Host.Control(ctx, method, path, body)
	if strings.HasSuffix(path, "/watches") {
		h.counted()
	}
	return code, resp, err
}

// TestLeaks: a test fails if its client watches on. Its log has the objects that wait for finalizers.
func TestLeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Two other watches close while the test waits for all of them.
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w := &tidemarktest.World{Host: counting{startHost(t), cancel}}
		e := &ending{recording: &recording{TB: t}}
		env := w.Fork(e)
		env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, finalizers: [example.com/never]}}", "{apiVersion: v1, kind: ConfigMap, metadata: {name: other, finalizers: [example.com/never]}}")
		send(t.Context(), env, "DELETE", configMaps+"/kept", "")
		r, err := http.NewRequestWithContext(t.Context(), "GET", env.URL()+configMaps+"?watch=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", "forgotten")
		resp, err := nethttp.Client(env).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for _, resource := range []string{"deployments", "replicasets"} {
			other, err := http.NewRequestWithContext(ctx, "GET", env.URL()+"/apis/apps/v1/"+resource+"?watch=true", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := nethttp.Client(env).Do(other)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
		}
		e.end()
		if len(e.errors) != 1 || !strings.Contains(e.errors[0], "still have watches open in the world "+env.Name()+" (1,") || !strings.Contains(e.errors[0], "watch configmaps in default by forgotten") {
			t.Errorf("the errors are %q", e.errors)
		}
		if log := e.log.String(); !strings.Contains(log, "configmaps default/kept: example.com/never") || strings.Contains(log, "default/other") {
			t.Errorf("the log is %q", log)
		}

		e = &ending{recording: &recording{TB: t}}
		w.Fork(e)
		e.end()
		if len(e.errors) > 0 || e.log.Len() > 0 {
			t.Errorf("a test without leaks: %q, %q", e.errors, &e.log)
		}
	})
}
