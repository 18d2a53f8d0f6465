package integration_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

type replica struct {
	Name, URL string
	Revision  uint64
}

// openWatch opens a watch with a kubeconfig and returns a function that returns its next event.
func openWatch(t *testing.T, kubeconfig, path string) (next func() string) {
	t.Helper()
	c, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewReader(response.Body)
	return func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Errorf("the watch: %v", err)
		}
		return line
	}
}

// TestControlReplicas checks that a replica stays at its revision until it is moved, and that its
// delayed changes do not keep the world from settling.
func TestControlReplicas(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"name":"w","controllers":["-*"]}`)
	const replicas, settle = "/control/v1/worlds/w/replicas", "/control/v1/worlds/w/settle"
	const configMaps = "/api/v1/namespaces/default/configmaps"
	var old replica
	a.do(http.StatusCreated, "POST", replicas, fmt.Sprintf(`{"name":"old","at":%d}`, world.Revision), &old)
	if want := (replica{"old", world.URL + "/replica/old", world.Revision}); old != want {
		t.Errorf("the replica is %+v, want %+v", old, want)
	}
	kubeconfig := strings.ReplaceAll(world.Kubeconfig, world.URL, old.URL)
	next := openWatch(t, kubeconfig, fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, world.Revision))
	var behind replica
	a.do(http.StatusCreated, "POST", replicas, `{"lag":2}`, &behind)
	for i := range 4 {
		a.applyYAML("w", fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d}}", i))
	}
	now := world.Revision + 4
	var settled struct{ Revision uint64 }
	a.do(http.StatusOK, "POST", settle, `{}`, &settled)
	if settled.Revision != now {
		t.Errorf("settled at %d, want %d", settled.Revision, now)
	}
	var list struct{ Replicas []replica }
	a.do(http.StatusOK, "GET", replicas, "", &list)
	behind.Revision = now - 2
	if got, want := fmt.Sprint(list.Replicas), fmt.Sprint([]replica{old, behind}); got != want {
		t.Errorf("the replicas are %s, want %s", got, want)
	}
	if code, text := getAs(t, kubeconfig, configMaps+"/c0?resourceVersion=0"); code != http.StatusNotFound {
		t.Errorf("a get from the cache of a replica that stands: %d %s", code, text)
	}
	if code, text := getAs(t, kubeconfig, configMaps+"/c0"); code != http.StatusOK {
		t.Errorf("a consistent get: %d %s", code, text)
	}
	for _, step := range []struct {
		path, body string
		events     int
		revision   uint64
	}{{"/advance", `{"changes":2}`, 2, now - 2}, {"/catchup", "", 2, now}} {
		var moved replica
		a.do(http.StatusOK, "POST", replicas+"/old"+step.path, step.body, &moved)
		a.do(http.StatusOK, "POST", settle, `{}`, nil)
		for range step.events {
			if event := next(); !strings.Contains(event, "ADDED") {
				t.Errorf("after %s: %s", step.path, event)
			}
		}
		a.do(http.StatusOK, "GET", replicas+"/old", "", &old)
		if moved != old || old.Revision != step.revision {
			t.Errorf("after %s the replica is %+v, then %+v, want revision %d", step.path, moved, old, step.revision)
		}
	}
	a.do(http.StatusNoContent, "DELETE", replicas+"/old", "", nil)
	a.do(http.StatusNotFound, "DELETE", replicas+"/old", "", nil)
	if code, _ := getAs(t, kubeconfig, configMaps); code != http.StatusNotFound {
		t.Errorf("a replica that was deleted responds with %d", code)
	}
}

// TestControlReplicaOfResource: only the resources that are named are behind, and the replica counts who has seen that.
func TestControlReplicaOfResource(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"name":"w","controllers":["-*"]}`)
	const replicas, secrets, configMaps = "/control/v1/worlds/w/replicas", "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/configmaps"
	type late struct {
		URL  string
		Late uint64
	}
	var r late
	a.do(http.StatusCreated, "POST", replicas, fmt.Sprintf(`{"name":"r","at":%d,"resources":["secrets"]}`, world.Revision), &r)
	kubeconfig := strings.ReplaceAll(world.Kubeconfig, world.URL, r.URL)
	a.applyYAML("w", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	watch := openWatch(t, kubeconfig, configMaps+"?watch=1&resourceVersion=0")
	if event := watch(); !strings.Contains(event, "ADDED") {
		t.Errorf("the watch of a resource that is not behind: %s", event)
	}
	if code, text := getAs(t, kubeconfig, secrets+"?resourceVersion=0"); code != http.StatusOK {
		t.Errorf("a list: %d %s", code, text)
	}
	if a.do(http.StatusOK, "GET", replicas+"/r", "", &r); r.Late != 0 {
		t.Errorf("the replica was late %d times, and its readers have seen all there is", r.Late)
	}
	a.applyYAML("w", "{apiVersion: v1, kind: Secret, metadata: {name: a}}")
	if code, text := getAs(t, kubeconfig, secrets+"/a?resourceVersion=0"); code != http.StatusNotFound {
		t.Errorf("a get of a resource that is behind: %d %s", code, text)
	}
	if code, text := getAs(t, kubeconfig, configMaps+"/a?resourceVersion=0"); code != http.StatusOK {
		t.Errorf("a get of another resource: %d %s", code, text)
	}
	if a.do(http.StatusOK, "GET", replicas+"/r", "", &r); r.Late != 1 {
		t.Errorf("the replica was late %d times, want 1", r.Late)
	}
}

// TestControlReplicaErrors: each mistake has its code and a message.
func TestControlReplicaErrors(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"name":"w"}`)
	const replicas = "/control/v1/worlds/w/replicas"
	a.do(http.StatusCreated, "POST", replicas, `{"name":"one"}`, nil)
	for _, row := range []struct {
		method, path, body string
		code               int
		message            string
	}{
		{"POST", "", `{"name":"one"}`, 409, `"one" exists`},
		{"POST", "", `{"name":"No"}`, 400, `"No"`},
		{"POST", "", `{"nome":"a"}`, 400, `"nome"`},
		{"POST", "", fmt.Sprintf(`{"at":%d,"lag":1}`, world.Revision), 400, "one of at and lag"},
		{"POST", "", `{"at":1}`, 410, "1"},
		{"POST", "", `{"lag":1,"resources":["pods","secret"]}`, 400, `"secret"`},
		{"POST", "", `{"at":9000000000000000000}`, 404, "9000000000000000000"},
		{"GET", "/none", "", 404, `"none"`},
		{"POST", "/none/advance", `{"changes":1}`, 404, `"none"`},
		{"POST", "/none/catchup", "", 404, `"none"`},
		{"POST", "/one/advance", `{}`, 400, "changes"},
		{"POST", "/one/advance", `{"changes":-1}`, 400, "changes"},
		{"PUT", "/one", `{}`, 405, "GET"},
	} {
		code, text := a.send(row.method, replicas+row.path, "application/json", row.body)
		if code != row.code || !strings.Contains(text, strings.ReplaceAll(row.message, `"`, `\"`)) {
			t.Errorf("%s %s %s: %d %s, want %d and %q", row.method, row.path, row.body, code, text, row.code, row.message)
		}
	}
	for range tidemark.MaxReplicas - 1 {
		a.do(http.StatusCreated, "POST", replicas, `{}`, nil)
	}
	a.do(http.StatusInsufficientStorage, "POST", replicas, `{}`, nil)
	a.do(http.StatusNotFound, "GET", "/control/v1/worlds/none/replicas", "", nil)
}

// TestControlSince: a world with a part of the history of its parent has it in the control API too, and replicas that
// are older than its state.
func TestControlSince(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Forks: tidemark.Forks{MaxBytes: 256 << 10}})
	listener := httptest.NewServer(s.Control())
	t.Cleanup(listener.Close)
	a := &controlAPI{t, listener.URL}
	parent := a.create(`{"name":"parent","controllers":["-*"]}`)
	a.applyYAML("parent", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	a.applyYAML("parent", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}")
	since, at := parent.Revision, parent.Revision+2
	_, want := a.send("GET", fmt.Sprintf("/control/v1/worlds/parent/history?after=%d", since), "", "")
	a.create(fmt.Sprintf(`{"name":"child","parent":"parent","revision":%d,"since":%d,"controllers":["-*"]}`, at, since))
	const child = "/control/v1/worlds/child"
	a.applyYAML("child", "{apiVersion: v1, kind: ConfigMap, metadata: {name: own}}")
	if code, got := a.send("GET", fmt.Sprintf("%s/history?upTo=%d", child, at), "", ""); code != http.StatusOK || got != want || strings.Count(got, "\n") != 2 {
		t.Errorf("the history of the child: %d\n%s, want\n%s", code, got, want)
	}
	a.do(http.StatusGone, "GET", fmt.Sprintf("%s/history?after=%d", child, since-1), "", nil)
	var old replica
	a.do(http.StatusCreated, "POST", child+"/replicas", fmt.Sprintf(`{"at":%d}`, since), &old)
	if old.Revision != since {
		t.Errorf("the replica is at %d, want %d", old.Revision, since)
	}
	for body, code := range map[string]int{
		fmt.Sprintf(`"since":%d,"revision":%d`, at, since):    http.StatusBadRequest,
		fmt.Sprintf(`"since":%d`, at+1_000_000):               http.StatusNotFound,
		fmt.Sprintf(`"since":%d,"revision":%d`, since-1, at):  http.StatusGone,
		fmt.Sprintf(`"since":%d,"revision":%d`, since, since): http.StatusCreated,
	} {
		a.do(code, "POST", "/control/v1/worlds", `{"parent":"parent",`+body+`}`, nil)
	}
	var root control.Description
	a.do(http.StatusOK, "GET", "/control/v1/worlds/root", "", &root)
	a.applyYAML("root", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {v: "+strings.Repeat("x", 200_000)+"}}")
	a.applyYAML("root", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	a.do(http.StatusInsufficientStorage, "POST", "/control/v1/worlds", fmt.Sprintf(`{"since":%d}`, root.Revision), nil)
}
