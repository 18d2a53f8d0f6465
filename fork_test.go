package tidemark_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// send sends a request as a client does, and returns the code and the body.
func send(t testing.TB, c *rest.Config, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// must sends a request whose response has the code.
func must(t testing.TB, c *rest.Config, code int, method, path, body string) string {
	t.Helper()
	got, response := send(t, c, method, path, body)
	if got != code {
		t.Fatalf("%s %s: %d, want %d: %.300s", method, path, got, code, response)
	}
	return response
}

// get decodes a response.
func get[T any](t testing.TB, c *rest.Config, path string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, c, http.StatusOK, "GET", path, "")), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

type head struct {
	Metadata struct {
		Name, UID, ResourceVersion string
	}
	Items []head
}

func mustFork(t testing.TB, w *tidemark.World, o tidemark.ForkOptions) *tidemark.World {
	t.Helper()
	f, err := w.Fork(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func configMap(name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"v":%q}}`, name, value)
}

// TestFork: a fork begins with the objects of its parent, and then both change alone.
func TestFork(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	root := s.RESTConfig()
	must(t, root, http.StatusCreated, "POST", configMaps, configMap("shared", "1"))
	before := get[head](t, root, configMaps)
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "try"})
	if f.Name() != "try" || f.URL() != s.URL()+"/fork/try" {
		t.Errorf("the fork %q is at %s", f.Name(), f.URL())
	}
	fork := f.RESTConfig()
	if got := get[head](t, fork, configMaps); !reflect.DeepEqual(got.Items, before.Items) { // controllers write other objects
		t.Errorf("the list of the fork is %+v, want %+v", got, before)
	}
	must(t, fork, http.StatusCreated, "POST", configMaps, configMap("new", "1"))
	must(t, fork, http.StatusOK, "PATCH", configMaps+"/shared", `{"data":{"v":"fork"}}`)
	must(t, root, http.StatusNotFound, "GET", configMaps+"/new", "")
	must(t, root, http.StatusOK, "PATCH", configMaps+"/shared", `{"data":{"v":"root"}}`)
	if got := must(t, fork, http.StatusOK, "GET", configMaps+"/shared", ""); !strings.Contains(got, `"v":"fork"`) {
		t.Errorf("the fork has %s", got)
	}
	child := mustFork(t, f, tidemark.ForkOptions{})
	must(t, child.RESTConfig(), http.StatusOK, "GET", configMaps+"/new", "")
	must(t, child.RESTConfig(), http.StatusOK, "DELETE", configMaps+"/new", "")
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	must(t, child.RESTConfig(), http.StatusNotFound, "GET", configMaps+"/new", "")
	must(t, child.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("new", "2"))
	if got := must(t, fork, http.StatusNotFound, "GET", configMaps, ""); !strings.Contains(got, `"kind":"Status"`) {
		t.Errorf("a fork that was closed responds with %s", got)
	}
	if _, err := f.Fork(t.Context(), tidemark.ForkOptions{}); !errors.Is(err, tidemark.ErrForkClosed) {
		t.Errorf("a fork of a fork that was closed: %v", err)
	}
}

// TestForkInProcess: a fork of a server that does not listen is reached by its own configuration.
func TestForkInProcess(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{InProcess: true})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Controllers: []string{"-*"}})
	must(t, f.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("new", "1"))
	must(t, f.RESTConfig(), http.StatusOK, "GET", configMaps+"/new", "")
	must(t, s.RESTConfig(), http.StatusNotFound, "GET", configMaps+"/new", "")
	must(t, s.RESTConfig(), http.StatusOK, "GET", "/fork/"+f.Name()+configMaps+"/new", "")
	next := openWatch(t, f.RESTConfig(), fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, f.Revision()))
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got := next(); got != "" {
		t.Errorf("after the fork: %s", got)
	}
}

// TestForkAt: a fork of an old resource version has the objects of that version, and no history before.
func TestForkAt(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	root := s.RESTConfig()
	must(t, root, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	at := s.Root().Revision()
	must(t, root, http.StatusOK, "DELETE", configMaps+"/a", "")
	must(t, root, http.StatusCreated, "POST", configMaps, configMap("b", "1"))
	f := mustFork(t, s.Root(), tidemark.ForkOptions{At: at}).RESTConfig()
	must(t, f, http.StatusOK, "GET", configMaps+"/a", "")
	must(t, f, http.StatusNotFound, "GET", configMaps+"/b", "")
	must(t, f, http.StatusGone, "GET", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact", configMaps, at-1), "")
	must(t, f, http.StatusCreated, "POST", configMaps, configMap("c", "1"))
}

// TestForkAtOnDisk: a fork of a resource version whose objects are no longer in memory shares those that are
// still current, and counts its copies of the others. It is refused if they do not fit.
func TestForkAtOnDisk(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, &tidemark.Server{
		Storage: &datadir.Dir{Path: filepath.Join(t.TempDir(), "data")}, Memory: tidemark.Memory{MaxHistoryBytes: 1},
		Forks: tidemark.Forks{MaxBytes: 1 << 20, MaxTotalBytes: 700 << 10},
	})
	c := s.RESTConfig()
	const objects, size = 8, 100_000
	for i := range objects {
		must(t, c, http.StatusCreated, "POST", configMaps, configMap(fmt.Sprint("c", i), strings.Repeat("x", size)))
	}
	at := s.Root().Revision()
	change := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			must(t, c, http.StatusOK, "PUT", configMaps+fmt.Sprint("/c", i), configMap(fmt.Sprint("c", i), strings.Repeat("y", size)))
		}
	}
	fork := func(code int, name string) string {
		t.Helper()
		return must(t, c, code, "POST", "/forks", fmt.Sprintf(`{"name":%q,"controllers":["-*"],"resourceVersion":"%d"}`, name, at))
	}
	const half = objects / 2
	change(0, half)
	var made struct{ Bytes int }
	if err := json.Unmarshal([]byte(fork(http.StatusCreated, "one")), &made); err != nil {
		t.Fatal(err)
	}
	if made.Bytes < half*size || made.Bytes > half*size*5/4 {
		t.Errorf("a fork with copies of %d objects of %d bytes counts %d", half, size, made.Bytes)
	}
	for i := range objects {
		if got := must(t, c, http.StatusOK, "GET", fmt.Sprint("/fork/one", configMaps, "/c", i), ""); !strings.Contains(got, "xxxx") {
			t.Errorf("object %d is not that of then", i)
		}
	}
	if got := fork(http.StatusInsufficientStorage, "two"); !strings.Contains(got, "all forks together") {
		t.Errorf("a fork whose copies do not fit into the memory of all forks: %s", got)
	}
	must(t, c, http.StatusOK, "DELETE", "/forks/one", "")
	fork(http.StatusCreated, "two")
	must(t, c, http.StatusOK, "DELETE", "/forks/two", "")
	change(half, objects)
	if got := fork(http.StatusInsufficientStorage, "three"); !strings.Contains(got, "no room for a copy") || strings.Contains(got, "all forks together") {
		t.Errorf("a fork whose copies do not fit into its own memory: %s", got)
	}
	must(t, c, http.StatusCreated, "POST", "/forks", `{}`)
}

// TestForkSince: a fork with a part of the history of its parent shows it as the parent does, also after its own
// writes and after the parent has dropped it, and a replica of the fork can be older than the fork.
func TestForkSince(t *testing.T) {
	parent := mustFork(t, servertest.Start(t, &tidemark.Server{}).Root(), tidemark.ForkOptions{Controllers: []string{"-*"}})
	c := parent.RESTConfig()
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("a", "1"))
	since := parent.Revision()
	must(t, c, http.StatusOK, "PATCH", configMaps+"/a", `{"data":{"v":"2"}}`)
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("b", "1"))
	middle := parent.Revision()
	must(t, c, http.StatusOK, "DELETE", configMaps+"/a", "")
	at := parent.Revision()
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("later", "1"))
	exact := func(r uint64) string {
		return configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + number(r)
	}
	watch := configMaps + "?watch=1&resourceVersion=" + number(since)
	lists, events := map[uint64]string{}, openWatch(t, c, watch)
	for r := since; r <= at; r++ {
		lists[r] = must(t, c, http.StatusOK, "GET", exact(r), "")
	}
	want := []string{events(), events(), events()}

	f := mustFork(t, parent, tidemark.ForkOptions{At: at, Since: since, Controllers: []string{"-*"}})
	child := mustFork(t, f, tidemark.ForkOptions{Since: middle, Controllers: []string{"-*"}})
	if err := parent.Close(); err != nil {
		t.Error(err)
	}
	for _, row := range []struct {
		world *tidemark.World
		from  uint64
	}{{f, since}, {child, middle}} {
		c := row.world.RESTConfig()
		for range 2 {
			for r := row.from; r <= at; r++ {
				if got := must(t, c, http.StatusOK, "GET", exact(r), ""); got != lists[r] {
					t.Errorf("the list at %d is %s, want %s", r, got, lists[r])
				}
			}
			must(t, c, http.StatusGone, "GET", exact(row.from-1), "")
			must(t, c, http.StatusNotFound, "GET", configMaps+"/later", "")
			must(t, c, http.StatusOK, "PATCH", configMaps+"/b", `{"data":{"v":"own"}}`)
		}
	}
	events = openWatch(t, f.RESTConfig(), watch)
	for i := range want {
		if got := events(); got != want[i] {
			t.Errorf("event %d of the watch is %s, want %s", i, got, want[i])
		}
	}
	old := mustReplica(t, f, tidemark.ReplicaOptions{At: since})
	if got := get[head](t, old.RESTConfig(), configMaps+"?resourceVersion=0"); names(got) != "a" || got.Metadata.ResourceVersion != number(since) {
		t.Errorf("a replica that is older than its fork has %s at %s", names(got), got.Metadata.ResourceVersion)
	}
	old.Advance(at - since)
	if got := get[head](t, old.RESTConfig(), configMaps+"?resourceVersion=0"); names(got) != "b" {
		t.Errorf("after the inherited changes, the replica has %s", names(got))
	}
}

// TestForkSinceErrors: impossible beginnings of a history, and too large a history.
func TestForkSinceErrors(t *testing.T) {
	w := servertest.Start(t, &tidemark.Server{Forks: tidemark.Forks{MaxBytes: 256 << 10}}).Root()
	c := w.RESTConfig()
	since := w.Revision()
	must(t, c, http.StatusCreated, "POST", configMaps, configMap("large", strings.Repeat("x", 200_000)))
	must(t, c, http.StatusOK, "PATCH", configMaps+"/large", `{"data":{"v":"2"}}`)
	now := w.Revision()
	if _, err := w.Fork(t.Context(), tidemark.ForkOptions{Since: since}); !errors.Is(err, tidemark.ErrForkHistory) {
		t.Errorf("too large a history: %v", err)
	}
	for _, o := range []tidemark.ForkOptions{{At: since, Since: now}, {Since: now + 1_000_000}, {Since: 1}} {
		if _, err := w.Fork(t.Context(), o); err == nil || errors.Is(err, tidemark.ErrForkHistory) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	mustFork(t, w, tidemark.ForkOptions{At: since, Since: since})
}

const widgets = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{
	"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","maximum":%d}}}}}}}]}}`

func widget(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":%d}}`, name, size)
}

const widgetList = "/apis/example.com/v1/namespaces/default/widgets"

// TestForkDefinitions: parent and fork change a definition that they share, each for itself, and a watch
// of the other goes on.
func TestForkDefinitions(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	root := s.RESTConfig()
	must(t, root, http.StatusCreated, "POST", definitions, fmt.Sprintf(widgets, 10))
	must(t, root, http.StatusCreated, "POST", widgetList, widget("a", 1))
	f, other := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "f"}), mustFork(t, s.Root(), tidemark.ForkOptions{Name: "other"})
	fork, third := f.RESTConfig(), other.RESTConfig()
	watch := openWatch(t, third, widgetList+"?watch=1&resourceVersion="+fmt.Sprint(other.Revision()))

	larger := `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer","maximum":%d}}}}}}}]}}`
	must(t, fork, http.StatusOK, "PATCH", definitions+"/widgets.example.com", fmt.Sprintf(larger, 20))
	must(t, root, http.StatusOK, "PATCH", definitions+"/widgets.example.com", fmt.Sprintf(larger, 30))
	for _, row := range []struct {
		where *rest.Config
		most  int
	}{{root, 30}, {fork, 20}, {third, 10}} {
		must(t, row.where, http.StatusCreated, "POST", widgetList, widget("most", row.most))
		must(t, row.where, http.StatusUnprocessableEntity, "POST", widgetList, widget("more", row.most+1))
	}
	must(t, fork, http.StatusOK, "DELETE", definitions+"/widgets.example.com", "")
	must(t, root, http.StatusOK, "GET", widgetList+"/a", "")
	must(t, third, http.StatusOK, "DELETE", widgetList+"/a", "")
	for _, want := range []string{`"ADDED"`, `"DELETED"`} {
		if got := watch(); !strings.Contains(got, want) {
			t.Errorf("the watch got %.200s, want %s", got, want)
		}
	}
}

// openWatch opens a watch, and returns a function that returns its next event; empty: it ended.
func openWatch(t testing.TB, c *rest.Config, path string) (next func() string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	d := json.NewDecoder(resp.Body)
	return func() string {
		var event json.RawMessage
		if d.Decode(&event) != nil {
			return ""
		}
		return string(event)
	}
}

// TestForkWatch: a watch sees the writes of its own world, and ends with the fork.
func TestForkWatch(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "f", Controllers: []string{"-*"}})
	next := openWatch(t, f.RESTConfig(), fmt.Sprintf("%s?watch=1&resourceVersion=%d", configMaps, f.Revision()))
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("of-root", "1"))
	must(t, f.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("of-fork", "1"))
	if got := next(); !strings.Contains(got, "of-fork") {
		t.Errorf("the watch got %s", got)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if got := next(); got != "" {
		t.Errorf("after the fork: %s", got)
	}
}

// TestForkControllers: the controllers of a fork start with its first write.
func TestForkControllers(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{})
	next := openWatch(t, f.RESTConfig(), fmt.Sprintf("/api/v1/serviceaccounts?watch=1&resourceVersion=%d", f.Revision()))
	must(t, f.RESTConfig(), http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	for {
		event := next()
		if event == "" {
			t.Fatal("the watch ended before the ServiceAccount of the namespace was made")
		}
		if strings.Contains(event, `"namespace":"shop"`) {
			break
		}
	}
	must(t, f.RESTConfig(), http.StatusOK, "DELETE", "/api/v1/namespaces/shop", "")
	for event := next(); !strings.Contains(event, `"DELETED"`); event = next() {
		if event == "" {
			t.Fatal("the watch ended before the ServiceAccount was deleted")
		}
	}
}

// TestForkAggregation: the aggregated roles of a fork follow its own ClusterRoles, after those of its parent were
// found to be right.
func TestForkAggregation(t *testing.T) {
	root := servertest.Start(t, &tidemark.Server{InProcess: true}).Root()
	settle(t, root)
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	has := func(w *tidemark.World, verb string) bool {
		settle(t, w)
		return strings.Contains(must(t, w.RESTConfig(), http.StatusOK, "GET", roles+"/view", ""), verb)
	}
	add := func(w *tidemark.World, verb string) {
		must(t, w.RESTConfig(), http.StatusCreated, "POST", roles, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[{"apiGroups":["x"],"resources":["y"],"verbs":[%[1]q]}]}`, verb))
	}
	one, two := mustFork(t, root, tidemark.ForkOptions{}), mustFork(t, root, tidemark.ForkOptions{})
	add(one, "peek")
	must(t, two.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("a", "1")) // its controllers start
	if !has(one, "peek") || has(two, "peek") || has(root, "peek") {
		t.Error("the rules of the fork that has the role are not its own")
	}
	add(two, "stare")
	child := mustFork(t, one, tidemark.ForkOptions{})
	must(t, child.RESTConfig(), http.StatusOK, "DELETE", roles+"/peek", "")
	if !has(two, "stare") || has(child, "peek") || has(child, "stare") || !has(one, "peek") {
		t.Error("the rules of a fork do not follow its roles")
	}
}

// TestForkTokens: a fork accepts the tokens of its parent for service accounts that exist in the
// fork. The parent, and other forks, do not accept those that it issues.
func TestForkTokens(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	const account = "/api/v1/namespaces/default/serviceaccounts/bot"
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"bot"}}`)
	token := func(c *rest.Config) string {
		var made struct{ Status struct{ Token string } }
		if err := json.Unmarshal([]byte(must(t, c, http.StatusCreated, "POST", account+"/token", `{"spec":{}}`)), &made); err != nil {
			t.Fatal(err)
		}
		return made.Status.Token
	}
	as := func(w *tidemark.World, token string) int {
		c := rest.AnonymousClientConfig(w.RESTConfig())
		c.BearerToken = token
		code, _ := send(t, c, "GET", "/version", "")
		return code
	}
	f, other := mustFork(t, s.Root(), tidemark.ForkOptions{}), mustFork(t, s.Root(), tidemark.ForkOptions{})
	child := mustFork(t, f, tidemark.ForkOptions{})
	ofRoot, ofFork := token(s.RESTConfig()), token(f.RESTConfig())
	for _, row := range []struct {
		what  string
		world *tidemark.World
		token string
		want  int
	}{
		{"root's in root", s.Root(), ofRoot, 200}, {"root's in a fork", f, ofRoot, 200}, {"root's in a child", child, ofRoot, 200},
		{"a fork's in itself", f, ofFork, 200}, {"a fork's in its child", child, ofFork, 200},
		{"a fork's in root", s.Root(), ofFork, 401}, {"a fork's in another one", other, ofFork, 401},
	} {
		if got := as(row.world, row.token); got != row.want {
			t.Errorf("%s: %d, want %d", row.what, got, row.want)
		}
	}
	must(t, f.RESTConfig(), http.StatusOK, "DELETE", account, "")
	if got := as(f, ofRoot); got != 401 {
		t.Errorf("a token of an account that the fork deleted: %d", got)
	}
	if got := as(s.Root(), ofRoot); got != 200 {
		t.Errorf("and in the parent: %d", got)
	}
}

// TestForkAPI: clients list, make and delete forks, if the root world allows it.
func TestForkAPI(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Forks: tidemark.Forks{Max: 2}})
	c := s.RESTConfig()
	must(t, c, http.StatusCreated, "POST", "/forks", `{"name":"a"}`)
	must(t, c, http.StatusConflict, "POST", "/forks", `{"name":"a"}`)
	must(t, c, http.StatusBadRequest, "POST", "/forks", `{"name":"Not A Label"}`)
	must(t, c, http.StatusBadRequest, "POST", "/forks", `{"name":`)
	must(t, c, http.StatusBadRequest, "POST", "/forks", `{"controllers":["nope"]}`)
	must(t, c, http.StatusBadRequest, "POST", "/forks", `{"resourceVersion":"x"}`)
	must(t, c, http.StatusBadRequest, "POST", "/forks", `{"kepe":true}`)
	must(t, c, http.StatusBadRequest, "POST", "/forks", `{"name":"b"} {"name":"c"}`)
	must(t, c, http.StatusGone, "POST", "/forks", `{"resourceVersion":"1"}`)
	must(t, c, http.StatusRequestEntityTooLarge, "POST", "/forks", `{"name":"`+strings.Repeat("x", 16<<10)+`"}`)
	must(t, c, http.StatusNotFound, "POST", "/forks", `{"from":"nope"}`)
	must(t, c, http.StatusCreated, "POST", "/forks", `{"name":"b","from":"a","controllers":["-*"]}`)
	must(t, c, http.StatusTooManyRequests, "POST", "/forks", `{}`)
	must(t, c, http.StatusMethodNotAllowed, "PUT", "/forks/a", `{}`)
	var all struct {
		Forks []struct{ Name, Parent, Path string }
	}
	if err := json.Unmarshal([]byte(must(t, c, http.StatusOK, "GET", "/forks", "")), &all); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(all.Forks); got != "[{a  /fork/a} {b a /fork/b}]" {
		t.Errorf("the forks are %s", got)
	}
	user, err := s.RESTConfigFor("alice")
	if err != nil {
		t.Fatal(err)
	}
	must(t, user, http.StatusForbidden, "POST", "/forks", `{}`)
	must(t, user, http.StatusForbidden, "DELETE", "/forks/a", "")
	must(t, c, http.StatusOK, "DELETE", "/forks/a", "")
	must(t, c, http.StatusNotFound, "DELETE", "/forks/a", "")
	must(t, c, http.StatusNotFound, "GET", "/fork/a/api/v1/namespaces", "")
	must(t, c, http.StatusOK, "GET", "/fork/b/api/v1/namespaces", "")

	// Permissions of a fork are its own.
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	must(t, c, http.StatusCreated, "POST", "/fork/b"+bindings, `{"metadata":{"name":"alice"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"alice"}]}`)
	must(t, user, http.StatusOK, "GET", "/fork/b/api/v1/secrets", "")
	must(t, user, http.StatusForbidden, "GET", "/api/v1/secrets", "")
	must(t, user, http.StatusForbidden, "DELETE", "/forks/b", "")
	must(t, user, http.StatusNotFound, "GET", "/fork/b/metrics", "")
	must(t, user, http.StatusNotFound, "GET", "/fork/b/forks", "")
}

// TestForkQuota: writes of a fork are refused once it takes as much memory as it may.
func TestForkQuota(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Forks: tidemark.Forks{MaxBytes: 1 << 20}})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{}).RESTConfig()
	text := strings.Repeat("x", 100_000)
	code := http.StatusCreated
	for i := 0; i < 20 && code == http.StatusCreated; i++ {
		code, _ = send(t, f, "POST", configMaps, configMap(fmt.Sprint("c", i), text))
	}
	if code != http.StatusInsufficientStorage {
		t.Errorf("a full fork: %d", code)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("c", text))
}

// fill creates ConfigMaps in a fork until one is refused, and returns the code and the response.
func fill(t *testing.T, f *tidemark.World, name string) (code int, body string) {
	t.Helper()
	text := strings.Repeat("x", 100_000)
	for i := range 100 {
		if code, body = send(t, f.RESTConfig(), "POST", configMaps, configMap(fmt.Sprint(name, i), text)); code != http.StatusCreated {
			break
		}
	}
	return code, body
}

// TestForkTotal: all forks together take as much memory as they may. Deleting forks makes room at once.
func TestForkTotal(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Forks: tidemark.Forks{MaxTotalBytes: 1 << 20}})
	a, b := mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a"}), mustFork(t, s.Root(), tidemark.ForkOptions{Name: "b"})
	if code, response := fill(t, a, "a"); code != http.StatusInsufficientStorage || !strings.Contains(response, "--fork-max-total-bytes") {
		t.Errorf("a fork that fills the memory of all: %d %s", code, response)
	}
	c := mustFork(t, a, tidemark.ForkOptions{Name: "c"}) // the memory left is less than one of these objects
	if code, _ := send(t, b.RESTConfig(), "POST", configMaps, configMap("b", strings.Repeat("x", 100_000))); code != http.StatusInsufficientStorage {
		t.Errorf("another fork: %d", code)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("root", strings.Repeat("x", 100_000)))
	must(t, a.RESTConfig(), http.StatusOK, "PUT", configMaps+"/a0", configMap("a0", strings.Repeat("y", 100_000)))
	must(t, s.RESTConfig(), http.StatusOK, "DELETE", "/forks/a", "")
	if code, _ := fill(t, b, "b"); code != http.StatusInsufficientStorage {
		t.Errorf("while a fork of the deleted fork has its objects: %d", code)
	}
	if _, err := s.Root().Fork(t.Context(), tidemark.ForkOptions{}); err != nil && !errors.Is(err, tidemark.ErrForkMemory) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	must(t, b.RESTConfig(), http.StatusCreated, "POST", configMaps, configMap("again", strings.Repeat("x", 100_000)))
}

// TestForkTotalRefuses: there are no new forks while the forks use all memory that they may.
func TestForkTotalRefuses(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Forks: tidemark.Forks{MaxTotalBytes: 1}})
	f := mustFork(t, s.Root(), tidemark.ForkOptions{Controllers: []string{"-*"}})
	must(t, f.RESTConfig(), http.StatusOK, "DELETE", "/api/v1/namespaces/default/services/kubernetes", "") // its history takes some
	if _, err := s.Root().Fork(t.Context(), tidemark.ForkOptions{}); !errors.Is(err, tidemark.ErrForkMemory) {
		t.Errorf("got %v, want ErrForkMemory", err)
	}
	must(t, s.RESTConfig(), http.StatusInsufficientStorage, "POST", "/forks", `{}`)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	must(t, s.RESTConfig(), http.StatusCreated, "POST", "/forks", `{}`)
}

// filled starts a server with the objects and definitions for the benchmarks of forks.
func filled(tb testing.TB, objects, definitions int) *tidemark.Server {
	s := servertest.Start(tb, &tidemark.Server{Forks: tidemark.Forks{Max: 1 << 20}})
	for i := range definitions {
		text := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprintf(widgets, 10), "widget", fmt.Sprintf("widget%d", i)), "Widget", fmt.Sprintf("Widget%d", i))
		direct(tb, s.Root(), "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text)
	}
	for i := range objects {
		direct(tb, s.Root(), "POST", configMaps, configMap(fmt.Sprint("c", i), strings.Repeat("x", 500)))
	}
	return s
}

// direct sends a request of the administrator without a connection.
func direct(tb testing.TB, w *tidemark.World, method, path, body string) {
	tb.Helper()
	r, err := http.NewRequestWithContext(tb.Context(), method, path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.RESTConfig().BearerToken)
	r.Header.Set("Content-Type", "application/json")
	var a response
	if w.Handler().ServeHTTP(&a, r); a.code >= 300 {
		tb.Fatalf("%s %s: %d", method, path, a.code)
	}
}

var forkObjects = flag.Int("fork.objects", 1000, "objects of the tests of the cost of forks")

// inUse is the memory that is in use.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// TestForkCost holds loose bounds: of the memory of a fork that served a request, and of its goroutines.
// BenchmarkFork measures.
func TestForkCost(t *testing.T) {
	tier.Full(t) // it measures the process
	s := filled(t, *forkObjects, 20)
	get[head](t, mustFork(t, s.Root(), tidemark.ForkOptions{}).RESTConfig(), configMaps+"/c0")
	const forks = 50
	before, goroutines := inUse(), runtime.NumGoroutine()
	var all []*tidemark.World
	for range forks {
		all = append(all, mustFork(t, s.Root(), tidemark.ForkOptions{}))
	}
	idle := inUse()
	for _, f := range all {
		direct(t, f, "GET", configMaps+"/c0", "")
	}
	read := inUse()
	perFork := func(to, from uint64) int64 { return (int64(to) - int64(from)) / forks / 1024 }
	t.Logf("a fork takes %d KiB, and %d KiB more after a request", perFork(idle, before), perFork(read, idle))
	if got := perFork(idle, before); got > 64 {
		t.Errorf("a fork takes %d KiB", got)
	}
	if got := perFork(read, before); got > 512 {
		t.Errorf("a fork that has served a request takes %d KiB", got)
	}
	if got := runtime.NumGoroutine() - goroutines; got > forks {
		t.Errorf("%d forks have %d goroutines", forks, got)
	}
	runtime.KeepAlive(all)
}

// response is an http.ResponseWriter that keeps the code.
type response struct {
	header http.Header
	code   int
}

func (a *response) Header() http.Header {
	if a.header == nil {
		a.header = http.Header{}
	}
	return a.header
}

func (a *response) WriteHeader(code int) { a.code = code }

func (a *response) Write(b []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	return len(b), nil
}

// BenchmarkFork forks a world of 10,000 objects and 100 definitions: the fork alone, with a request to it,
// with a write, and the memory of 1,000 forks that live.
func BenchmarkFork(b *testing.B) {
	s := filled(b, 10_000, 100)
	for _, row := range []struct {
		name string
		use  func(f *tidemark.World)
	}{
		{"fork", func(*tidemark.World) {}},
		{"read", func(f *tidemark.World) { direct(b, f, "GET", configMaps+"/c0", "") }},
		{"write", func(f *tidemark.World) { direct(b, f, "POST", configMaps, configMap("new", "1")) }},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f, err := s.Root().Fork(context.Background(), tidemark.ForkOptions{})
				if err != nil {
					b.Fatal(err)
				}
				row.use(f)
				b.StopTimer()
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run("live/"+row.name, func(b *testing.B) {
			for b.Loop() {
				before := inUse()
				var all []*tidemark.World
				for range 1000 {
					f, err := s.Root().Fork(context.Background(), tidemark.ForkOptions{})
					if err != nil {
						b.Fatal(err)
					}
					row.use(f)
					all = append(all, f)
				}
				b.StopTimer()
				for _, f := range all {
					if row.name != "write" { // Settle would start the controllers
						break
					}
					if _, err := f.Settle(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(inUse()-before)/1000/1024, "KiB/fork")
				b.ReportMetric(float64(runtime.NumGoroutine())/1000, "goroutines/fork")
				for _, f := range all {
					f.Close()
				}
				b.StartTimer()
			}
		})
	}
}
