package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const instantMaps = "/api/v1/namespaces/default/configmaps"

// instantWorld is a server with a ConfigMap that was created, changed and deleted, and the revisions of that, beside another
// ConfigMap.
type instantWorld struct {
	*tidemark.Server
	c                         *rest.Config
	created, changed, deleted uint64
}

func newInstantWorld(t *testing.T, s *tidemark.Server) *instantWorld {
	t.Helper()
	w := &instantWorld{Server: servertest.Start(t, s)}
	w.c = w.RESTConfig()
	w.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"z"}}`)
	w.created = w.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"a","labels":{"l":"1"}},"data":{"x":"1"}}`)
	w.changed = w.write(t, http.MethodPut, instantMaps+"/a", `{"metadata":{"name":"a","labels":{"l":"2"}},"data":{"x":"2"}}`)
	w.write(t, http.MethodDelete, instantMaps+"/a", "")
	w.deleted = w.Root().Revision()
	return w
}

// write returns the resource version of the response.
func (w *instantWorld) write(t *testing.T, method, path, body string) uint64 {
	t.Helper()
	code, _, b := exchange(t, w.c, method, path, body)
	if code >= 300 {
		t.Fatal(method, path, code, string(b))
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	r, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
	return r
}

// at is the path of an instant.
func at(instant any, path string) string { return "/at/" + url.PathEscape(fmt.Sprint(instant)) + path }

// TestInstant: get, list, pages, selectors and discovery as of a revision and as of a time.
func TestInstant(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	code, header, b := exchange(t, w.c, http.MethodGet, at(w.created, instantMaps+"/a"), "")
	if code != http.StatusOK || !strings.Contains(string(b), `"x":"1"`) {
		t.Fatal(code, string(b))
	}
	if got := header.Get("Tidemark-Revision"); got != fmt.Sprint(w.created) {
		t.Errorf("Tidemark-Revision is %q", got)
	}
	made := header.Get("Tidemark-Time")
	if _, err := time.Parse(time.RFC3339Nano, made); err != nil {
		t.Error(err)
	}
	for instant, want := range map[any]string{w.created: `"x":"1"`, w.changed: `"x":"2"`, made: `"x":"1"`, w.created - 1: "not found", w.deleted: "not found"} {
		if _, _, b := exchange(t, w.c, http.MethodGet, at(instant, instantMaps+"/a"), ""); !strings.Contains(string(b), want) {
			t.Errorf("at %v: %s", instant, b)
		}
	}
	for query, want := range map[string]int{
		"":                                1,
		"resourceVersion=0":               1,
		"labelSelector=l%3D1":             1,
		"labelSelector=l%3D2":             0,
		"fieldSelector=metadata.name%3Da": 1,
		"resourceVersionMatch=Exact&resourceVersion=" + fmt.Sprint(w.created-1):              0,
		"resourceVersionMatch=NotOlderThan&resourceVersion=" + fmt.Sprint(w.created-1):       1,
		"limit=5&resourceVersionMatch=NotOlderThan&resourceVersion=" + fmt.Sprint(w.created): 1,
	} {
		_, _, b := exchange(t, w.c, http.MethodGet, at(w.created, instantMaps+"?"+query), "")
		var l corev1.ConfigMapList
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, o := range l.Items {
			if o.Name == "a" {
				found++
			}
		}
		if found != want {
			t.Errorf("%s: %s", query, b)
		}
	}
	if _, _, b := exchange(t, w.c, http.MethodGet, at(w.created, instantMaps+"?limit=1"), ""); !strings.Contains(string(b), `"continue":"`) {
		t.Errorf("the first page is %s", b)
	} else {
		var l corev1.ConfigMapList
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		code, _, b = exchange(t, w.c, http.MethodGet, at(w.created, instantMaps+"?limit=1&continue="+l.Continue), "")
		if code != http.StatusOK || !strings.Contains(string(b), `"name":"z"`) {
			t.Errorf("the second page: %d %s", code, b)
		}
	}
	if code, _, b := exchange(t, w.c, http.MethodGet, at(w.created, instantMaps+"?resourceVersion="+fmt.Sprint(w.deleted)), ""); code != http.StatusGatewayTimeout {
		t.Errorf("a later revision: %d %s", code, b)
	}
}

// TestInstantRefuses: writes, reviews, connections and pages about the process; instants that are not there.
func TestInstantRefuses(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	for _, c := range []struct {
		method, path, body string
		code               int
		text, first        string
	}{
		{http.MethodPost, at(w.created, instantMaps), `{"metadata":{"name":"b"}}`, 405, "the past is read-only", ""},
		{http.MethodPut, at(w.created, instantMaps+"/a"), `{"metadata":{"name":"a"}}`, 405, "the past is read-only", ""},
		{http.MethodPatch, at(w.created, instantMaps+"/a"), `{}`, 405, "the past is read-only", ""},
		{http.MethodDelete, at(w.created, instantMaps), "", 405, "the past is read-only", ""},
		{http.MethodOptions, at(w.created, instantMaps), "", 405, "OPTIONS is not possible here", ""},
		{http.MethodPost, at(w.created, "/apis/authentication.k8s.io/v1/selfsubjectreviews"), `{}`, 405, "the past is read-only", ""},
		{http.MethodGet, at(w.created, "/api/v1/namespaces/default/pods/p/log"), "", 405, "the past is read-only", ""},
		{http.MethodGet, at(w.created, "/api/v1/componentstatuses"), "", 405, "componentstatuses have no past: they show the present alone", ""},
		{http.MethodGet, at(w.created, "/api/v1/componentstatuses/etcd-0"), "", 405, "componentstatuses have no past", ""},
		{http.MethodGet, at(w.created, "/metrics"), "", 404, "", ""},
		{http.MethodGet, at(w.created, "/forks"), "", 404, "", ""},
		{http.MethodGet, at(w.created, "/apis/no.such/v1/things"), "", 404, "", ""},
		{http.MethodGet, at("x", "/api"), "", 400, "neither a revision nor a time", ""},
		{http.MethodGet, at(uint64(1)<<60, "/api"), "", 400, "later than the newest revision", ""},
		{http.MethodGet, at(time.Now().Add(time.Hour).Format(time.RFC3339), "/api"), "", 400, "later than now", ""},
		{http.MethodGet, at("2001-01-01T00:00:00Z", "/api"), "", 410, "the first one that is left is revision", "some"},
		{http.MethodGet, at(w.created, instantMaps+"?watch=1&until=1"), "", 400, "before the instant", ""},
		{http.MethodGet, at(w.created, instantMaps+"?watch=1&until=x"), "", 400, "no revision", ""},
		{http.MethodGet, at(w.created, instantMaps+"?watch=1&until="+fmt.Sprint(uint64(1)<<60)), "", 400, "later than the newest", ""},
	} {
		code, header, b := exchange(t, w.c, c.method, c.path, c.body)
		if allow := header.Get("Allow"); (allow == "GET, HEAD") != (code == http.StatusMethodNotAllowed && c.method != http.MethodGet) {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, allow)
		}
		if code != c.code || !strings.Contains(string(b), c.text) || (header.Get("Tidemark-First") != "") != (c.first != "") {
			t.Errorf("%s %s: %d %q %s", c.method, c.path, code, header.Get("Tidemark-First"), b)
		}
	}
	user, err := w.RESTConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if code, _, b := exchange(t, user, http.MethodGet, at(1<<40, instantMaps), ""); code != http.StatusForbidden {
		t.Errorf("without rights: %d %s", code, b)
	}
}

// TestInstantWatch: a watch begins with the state of the instant, and goes on into the present or ends at a bound.
func TestInstantWatch(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	_, _, b := exchange(t, w.c, http.MethodGet, at(w.created, instantMaps+"?watch=1&fieldSelector=metadata.name%3Da&until="+fmt.Sprint(w.changed)), "")
	var got []string
	for line := range strings.Lines(string(b)) {
		var e struct {
			Type   string
			Object corev1.ConfigMap
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Type+" "+e.Object.Data["x"])
	}
	if want := "[ADDED 1 MODIFIED 2]"; fmt.Sprint(got) != want {
		t.Errorf("the events are %v, want %s", got, want)
	}

	past := rest.CopyConfig(w.c)
	past.Host += at(w.created, "")
	client, err := kubernetes.NewForConfig(past)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a"})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Stop()
	w.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"a"},"data":{"x":"3"}}`)
	got = nil
	for e := range seen.ResultChan() {
		if got = append(got, string(e.Type)+" "+e.Object.(*corev1.ConfigMap).Data["x"]); len(got) == 4 {
			break
		}
	}
	if want := "[ADDED 1 MODIFIED 2 DELETED 2 ADDED 3]"; fmt.Sprint(got) != want {
		t.Errorf("the events are %v, want %s", got, want)
	}
}

// TestInstantChanges: the changes as of an instant are those up to it, and a watch goes on from there, or ends at a bound.
func TestInstantChanges(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	const maps = "?fieldSelector=resource%3Dconfigmaps,name%3Da"
	path := at(w.changed, changesIn("default")) + maps
	code, header, b := exchange(t, w.c, http.MethodGet, path, "")
	var l changes.ChangeList
	if err := json.Unmarshal(b, &l); err != nil || code != http.StatusOK {
		t.Fatal(code, string(b))
	}
	if got := fmt.Sprint(changeLines(l.Items)); got != `[update configmaps default/a metadata.labels.l:"1">"2" data.x:"1">"2" create configmaps default/a]` {
		t.Error(got)
	}
	if r := fmt.Sprint(w.changed); l.Metadata.ResourceVersion != r || header.Get("Tidemark-Revision") != r {
		t.Errorf("the list is of %s, the header %s, want %s", l.Metadata.ResourceVersion, header.Get("Tidemark-Revision"), r)
	}
	if code, _, b := exchange(t, w.c, http.MethodGet, path+",since%3D"+fmt.Sprint(w.deleted), ""); code != http.StatusBadRequest {
		t.Errorf("since a later revision: %d %s", code, b)
	}
	_, _, b = exchange(t, w.c, http.MethodGet, at(w.created, changesIn("default"))+maps+"&watch=1&until="+fmt.Sprint(w.changed), "")
	var e struct {
		Type   string
		Object changes.Change
	}
	if err := json.Unmarshal(b, &e); err != nil || e.Type != "ADDED" || e.Object.Revision != fmt.Sprint(w.changed) {
		t.Errorf("the watch is %s", b)
	}
}

// TestInstantAges: a watch as a table that goes through the past shows ages as of each event.
func TestInstantAges(t *testing.T) {
	clock := &tidemark.Clock{Start: time.Now()}
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}, Clock: clock})
	then := w.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"b"}}`)
	clock.Advance(3 * time.Minute)
	changed := w.write(t, http.MethodPut, instantMaps+"/b", `{"metadata":{"name":"b"},"data":{"x":"2"}}`)
	clock.Advance(time.Hour)
	_, _, b := exchange(t, w.c, "TABLE", at(then, instantMaps)+"?watch=1&fieldSelector=metadata.name%3Db&until="+fmt.Sprint(changed), "")
	for _, want := range []string{`"cells":["b",0,"0s"]`, `"cells":["b",1,"3m"]`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
}

// TestInstantInformer: an informer begins with the instant, and follows to the present, of the server and of a fork.
func TestInstantInformer(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	fork, err := w.Root().Fork(t.Context(), tidemark.ForkOptions{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	c := fork.RESTConfig()
	ofFork := fork.Revision()
	for _, step := range [][3]string{
		{http.MethodPost, instantMaps, `{"metadata":{"name":"a"}}`}, {http.MethodPut, instantMaps + "/a", `{"metadata":{"name":"a"},"data":{"x":"2"}}`},
		{http.MethodDelete, instantMaps + "/a", ""},
	} {
		if code, _, b := exchange(t, c, step[0], step[1], step[2]); code >= 300 {
			t.Fatal(code, string(b))
		}
	}
	checkInformer(t, w.c, w.created)
	checkInformer(t, c, ofFork)
}

// checkInformer checks the events of the ConfigMap a since a revision: it was created, changed and deleted.
func checkInformer(t *testing.T, c *rest.Config, since uint64) {
	t.Helper()
	past := rest.CopyConfig(c)
	past.Host += at(since, "")
	client, err := dynamic.NewForConfig(past)
	if err != nil {
		t.Fatal(err)
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer()
	events := make(chan string, 64)
	name := func(o any) string {
		if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = d.Obj
		}
		return o.(metav1.Object).GetName()
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { events <- "add " + name(o) },
		UpdateFunc: func(_, o any) { events <- "update " + name(o) },
		DeleteFunc: func(o any) { events <- "delete " + name(o) },
	}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	var got []string
	for e := range events {
		if strings.HasSuffix(e, " a") {
			if got = append(got, e); len(got) == 3 {
				break
			}
		}
	}
	if want := "[add a update a delete a]"; fmt.Sprint(got) != want {
		t.Errorf("the events are %v", got)
	}
}

func isServed(t *testing.T, c *rest.Config, path string) bool {
	t.Helper()
	code, _, _ := exchange(t, c, http.MethodGet, path, "")
	return code == http.StatusOK
}

// servedSoon waits until a path of custom resources is served, goneSoon until it is not.
func servedSoon(t *testing.T, c *rest.Config, path string) {
	t.Helper()
	await.True(t, path+" is served", func() bool { return isServed(t, c, path) })
}

func goneSoon(t *testing.T, c *rest.Config, path string) {
	t.Helper()
	await.True(t, path+" is gone", func() bool { return !isServed(t, c, path) })
}

// TestInstantDefinitions: discovery, OpenAPI and objects of a definition that is gone, and of one as it was before a change.
func TestInstantDefinitions(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{})
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	definition := func(kind, extra string) string {
		return `{"metadata":{"name":"` + strings.ToLower(kind) + `s.past.example"},"spec":{"group":"past.example","scope":"Cluster","names":{"plural":"` + strings.ToLower(kind) + `s","kind":"` + kind + `"},` +
			`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string"}` + extra + `}}}}}}]}}`
	}
	w.write(t, http.MethodPost, definitions, definition("Thing", ""))
	served := func(path string) bool { return isServed(t, w.c, path) }
	servedSoon(t, w.c, "/apis/past.example/v1/things")
	then := w.write(t, http.MethodPost, "/apis/past.example/v1/things", `{"apiVersion":"past.example/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"a":"1"}}`)
	w.write(t, http.MethodDelete, definitions+"/things.past.example", "")
	goneSoon(t, w.c, "/apis/past.example/v1/things")
	for _, path := range []string{"/apis/past.example/v1/things/t", "/apis/past.example/v1", "/apis/past.example", "/openapi/v3/apis/past.example/v1"} {
		if served(path) {
			t.Errorf("%s is served now", path)
		}
		if code, _, b := exchange(t, w.c, http.MethodGet, at(then, path), ""); code != http.StatusOK || !strings.Contains(string(b), "past.example") {
			t.Errorf("%s: %d %.200s", path, code, b)
		}
		if served(at(w.created, path)) {
			t.Errorf("%s is served before the definition", path)
		}
	}
	code, _, b := exchange(t, w.c, "TABLE", at(then, "/apis/past.example/v1/things"), "")
	if code != http.StatusOK || !strings.Contains(string(b), `"rows":[{"cells":["t","0s"]`) {
		t.Errorf("the table is %d %s", code, b)
	}
	code, _, b = exchange(t, w.c, http.MethodGet, at(then, "/apis"), "")
	if code != http.StatusOK || !strings.Contains(string(b), "past.example") {
		t.Errorf("the groups are %d %.200s", code, b)
	}
}

// TestInstantOfFork: a fork has instants of its own.
func TestInstantOfFork(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	fork, err := w.Root().Fork(t.Context(), tidemark.ForkOptions{Name: "f", At: w.changed})
	if err != nil {
		t.Fatal(err)
	}
	c := fork.RESTConfig()
	if code, _, b := exchange(t, c, http.MethodPut, instantMaps+"/a", `{"metadata":{"name":"a"},"data":{"x":"fork"}}`); code != http.StatusOK {
		t.Fatal(code, string(b))
	}
	for instant, want := range map[uint64]string{w.changed: `"x":"2"`, fork.Revision(): `"x":"fork"`} {
		if code, _, b := exchange(t, c, http.MethodGet, at(instant, instantMaps+"/a"), ""); code != http.StatusOK || !strings.Contains(string(b), want) {
			t.Errorf("at %d: %d %s", instant, code, b)
		}
	}
}

// TestInstantWithoutCredentials: clients without credentials learn nothing of the history, and have no work done for it. Health
// checks, which take no seat, are those of the present.
func TestInstantWithoutCredentials(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	anonymous := rest.AnonymousClientConfig(w.c)
	for _, instant := range []any{w.created, 1, w.deleted + 1000, "no-instant", "9999-01-01T00:00:00Z"} {
		for c, paths := range map[*rest.Config][]string{anonymous: {"/version", "/version/", "/healthz", "/livez"}, w.c: {"/readyz"}} {
			for _, path := range paths {
				code, header, b := exchange(t, c, http.MethodGet, at(instant, path), "")
				if code != http.StatusOK || header.Get("Tidemark-Revision")+header.Get("Tidemark-Time")+header.Get("Tidemark-First") != "" {
					t.Errorf("%v %s: %d, %v, %s", instant, path, code, header, b)
				}
			}
		}
		for _, path := range []string{"/api", "/openapi/v2", instantMaps} {
			if code, header, b := exchange(t, anonymous, http.MethodGet, at(instant, path), ""); code != http.StatusForbidden || header.Get("Tidemark-First") != "" {
				t.Errorf("%v %s: %d, %s", instant, path, code, b)
			}
		}
	}
	if code, header, b := exchange(t, w.c, http.MethodGet, at(w.created, "/version"), ""); code != http.StatusOK || header.Get("Tidemark-Revision") == "" {
		t.Errorf("with credentials: %d, %v, %s", code, header, b)
	}
}
