package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// serve starts a server, and returns how to reach it.
func serve(t *testing.T) Server {
	t.Helper()
	s := &tidemark.Server{}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return Server{Kubeconfig: path}
}

// tiny are options that make a run as short as it can be.
func tiny(scenarios ...string) Options {
	return Options{
		Scenarios: scenarios, Rounds: 1, Duration: 10 * time.Millisecond,
		Objects: 107, Definitions: 3, Watchers: 5, Connections: 2, MaxOps: 40,
	}
}

// skippable lists scenarios whose requirements a server may lack.
var skippable = []string{"start", "idle-etcd", "crd-other-server", "outage"}

// ofEachKind are scenarios that measure in different ways and take little time.
var ofEachKind = []string{"create-pod", "sandbox", "get", "update", "list-identity", "list-page", "list-stream", "watch-100", "watch-table-100", "idle-watch", "idle-etcd", "mixed", "crd-first-object", "custom-create", "delete-collection"}

// TestScenarios runs scenarios against two servers: all of them in the full tier.
func TestScenarios(t *testing.T) {
	run, rounds := ofEachKind, 1
	if tier.IsFull(t) {
		run, rounds = nil, 2
		for _, s := range scenarios {
			run = append(run, s.name)
		}
	}
	a, b := serve(t), serve(t)
	if runtime.GOOS == "linux" {
		a.PIDs = []int{os.Getpid()}
	}
	o := tiny(run...)
	o.Rounds, o.EqualBytes = rounds, true
	b.Pad = 100 // which the other one has to follow
	var told bytes.Buffer
	r, err := Run(t.Context(), o, []Server{a, b}, progress.Progress{W: &told})
	if err != nil {
		t.Fatalf("Run: %v\n%s", err, &told)
	}
	for _, s := range r.Servers {
		for _, name := range run {
			checkScenario(t, s, name, o.Rounds)
		}
		if left := objectsLeft(t, s.Server); len(left) > 0 {
			t.Errorf("objects are left behind: %v", left)
		}
	}
	// At least 100 bytes: managed fields describe a pad, so that it adds more than itself.
	if pad, of := r.Servers[0].Pad, r.Servers[1].Pad; pad < 100 || pad != of {
		t.Errorf("for equal bytes of equal servers the pods were padded by %d and %d bytes, want 100 or more, and as many", pad, of)
	}
	checkRoundTrip(t, r)
}

func checkScenario(t *testing.T, s ServerReport, name string, rounds int) {
	t.Helper()
	found := false
	for _, x := range s.Results {
		if x.Name != name && !strings.HasPrefix(x.Name, name+"/") {
			continue
		}
		found = true
		if x.Skipped != "" && strings.Contains(strings.Join(skippable, " "), name) {
			continue
		}
		if x.Failed != "" || x.Skipped != "" || len(x.Rounds) != rounds || x.Loop == "" || x.Unit == "" {
			t.Errorf("%s: %d rounds, loop %q, unit %q, skipped %q, failed %q", x.Name, len(x.Rounds), x.Loop, x.Unit, x.Skipped, x.Failed)
		}
		for _, f := range x.Rounds {
			if f.Ops == 0 || f.Seconds <= 0 || f.Latency == nil && name != "idle-watch" && !strings.HasPrefix(name, "watch-table") {
				t.Errorf("%s: %+v", x.Name, f)
			}
			if measured := f.Memory != nil; measured != (len(s.PIDs) > 0) && name != "mixed" {
				t.Errorf("%s: memory measured: %v, with processes %v", x.Name, measured, s.PIDs)
			}
		}
	}
	if !found {
		t.Errorf("%s has no result", name)
	}
}

// objectsLeft lists the objects that a run has left in its namespaces.
func objectsLeft(t *testing.T, s Server) []string {
	t.Helper()
	target, err := loadTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBed(target, s, Defaults(), "test", t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	var left []string
	for _, resource := range []string{"/api/v1/pods", "/api/v1/configmaps", "/apis/apps/v1/deployments", definitionsPath} {
		body, err := b.admin.small(t.Context(), "GET", target.url(resource, ""), nil)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Items []struct {
				Metadata struct {
					Namespace, Name string
					Annotations     map[string]string
				}
			}
		}
		if err := json.Unmarshal(body, &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			// Others, as kube-root-ca.crt, go with their namespace, a little later.
			if m := item.Metadata; (strings.HasPrefix(m.Namespace, "bench-") || resource == definitionsPath) && m.Annotations["bench.tidemark.dev/mark"] != "" {
				left = append(left, resource+" "+m.Namespace+"/"+m.Name)
			}
		}
	}
	return left
}

// checkRoundTrip writes and reads a report, and compares the two.
func checkRoundTrip(t *testing.T, r *Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := ReadReport(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Servers {
		r.Servers[i].Kubeconfig = "" // it names a file of this machine
	}
	if !reflect.DeepEqual(again, r) {
		t.Errorf("a report changed on its way through JSON:\n%+v\n%+v", again, r)
	}
	var table bytes.Buffer
	if err := again.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"create-pod/16", "mixed/watch", "CPU ratio", "the baseline", "is skipped: "} {
		if runtime.GOOS == "linux" && !strings.Contains(table.String(), want) && want != "CPU ratio" {
			t.Errorf("the table does not show %q:\n%s", want, &table)
		}
	}
}

func TestReadReport(t *testing.T) {
	for _, text := range []string{"", "[]", "{}", `{"format":"tidemark-bench/1"}`, `{"format":"other","servers":[{}]}`} {
		path := filepath.Join(t.TempDir(), "report.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadReport(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestOpenLoop: with a rate the loops are open, and the rate is kept to.
func TestOpenLoop(t *testing.T) {
	o := tiny("get", "watch-100")
	o.Rate, o.Duration = 100, 100*time.Millisecond
	r, err := Run(t.Context(), o, []Server{serve(t)}, progress.Progress{})
	if err != nil || len(r.Failures()) > 0 {
		t.Fatal(err, r.Failures())
	}
	for _, x := range r.Servers[0].Results {
		if x.Loop != "open, 100/s" {
			t.Errorf("%s: the loop is %q", x.Name, x.Loop)
		}
	}
	// Requests at 0, 10, ... 90 ms; five watchers get each event.
	for i, want := range []int64{10, 50} {
		if got := r.Servers[0].Results[i].Rounds[0].Ops; got != want {
			t.Errorf("%s: %d operations, want %d", r.Servers[0].Results[i].Name, got, want)
		}
	}
}

// writerFunc is a function that is written to.
type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestInterrupt checks that when the context ends, created objects are removed, and complete
// measurements are reported.
func TestInterrupt(t *testing.T) {
	s := serve(t)
	o := tiny("create-configmap", "get", "create-pod")
	o.Duration, o.MaxOps = time.Minute, 10_000_000
	ctx, cancel := context.WithCancel(t.Context())
	var measures atomic.Bool
	told := writerFunc(func(p []byte) (int, error) {
		if strings.Contains(string(p), ", round 1 of") {
			measures.Store(true)
		}
		return len(p), nil
	})
	var made atomic.Int64
	between := proxy(t, s, func(_ http.ResponseWriter, r *http.Request) bool {
		if measures.Load() && r.Method == http.MethodPost && made.Add(1) == 20 {
			cancel()
		}
		return false
	}, func(_ *http.Request, b []byte) []byte { return b })
	r, err := Run(ctx, o, []Server{between}, progress.Progress{W: told, Terminal: true})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Interrupted || len(r.Failures()) > 0 {
		t.Errorf("interrupted: %v, failures: %v", r.Interrupted, r.Failures())
	}
	// Objects of interrupted requests are deleted with their namespace.
	await.Nil(t, "no objects to be left behind", func() error {
		if left := objectsLeft(t, s); len(left) > 0 {
			return fmt.Errorf("%d objects are left behind: %.5q", len(left), left)
		}
		return nil
	})
}

func TestOptions(t *testing.T) {
	if err := (Options{}).Check(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
	for want, o := range map[string]Options{
		"rounds is 101":          {Rounds: 101},
		"rounds is -1":           {Rounds: -1},
		"duration is 1ns":        {Duration: 1},
		"duration is 1h":         {Duration: time.Hour},
		"objects is 1000001":     {Objects: 1_000_001},
		"watchers is 20001":      {Watchers: 20_001},
		"clients is 1025":        {Clients: 1025},
		"definitions is 5001":    {Definitions: 5001},
		"connections is 257":     {Connections: 257},
		"max-ops is 10000001":    {MaxOps: 10_000_001},
		"rate is 2e+06":          {Rate: 2e6},
		"rate is -1":             {Rate: -1},
		`unknown scenario "fly"`: {Scenarios: []string{"get", "fly"}},
	} {
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	for _, servers := range [][]Server{nil, {{Pad: -1}}, {{Pad: maxPad + 1}}, {{PIDs: []int{0}}}, {{RepairCommand: "true"}}, {{EtcdMetrics: []string{"127.0.0.1:2379"}}}, {{}, {}, {}}} {
		if r, err := Run(t.Context(), tiny("get"), servers, progress.Progress{}); err == nil {
			t.Errorf("%+v: %+v", servers, r)
		}
	}
	o := tiny("get")
	o.EqualBytes = true
	if _, err := Run(t.Context(), o, []Server{{}}, progress.Progress{}); err == nil {
		t.Error("equal bytes with one server")
	}
}
