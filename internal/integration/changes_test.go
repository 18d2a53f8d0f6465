package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const changesPath = "/apis/tidemark.dev/v1/changes"

// changesIn is the path of the changes in a namespace.
func changesIn(namespace string) string {
	return "/apis/tidemark.dev/v1/namespaces/" + namespace + "/changes"
}

// listChanges returns the changes that a field selector selects, as pages of a limit.
func listChanges(t *testing.T, c *rest.Config, path string, limit int, terms map[string]string) (all []changes.Change) {
	t.Helper()
	query := url.Values{"limit": {fmt.Sprint(limit)}}
	if len(terms) > 0 {
		query.Set("fieldSelector", fields.SelectorFromSet(terms).String())
	}
	for {
		code, _, b := exchange(t, c, http.MethodGet, path+"?"+query.Encode(), "")
		if code != http.StatusOK {
			t.Fatalf("%v: %d %s", terms, code, b)
		}
		var l changes.ChangeList
		if err := json.Unmarshal(b, &l); err != nil {
			t.Fatal(err)
		}
		if all = append(all, l.Items...); l.Metadata.Continue == "" {
			return all
		}
		query.Set("continue", l.Metadata.Continue)
	}
}

// changeLines are changes in a line.
func changeLines(all []changes.Change) (lines []string) {
	for i := range all {
		c := &all[i]
		line := fmt.Sprint(c.Verb, " ", c.Resource, " ", c.Namespace, "/", c.Name)
		if !c.Creates() && !c.Deletes() {
			for _, f := range c.Fields {
				line += fmt.Sprintf(" %s:%s>%s", f.Path, f.From, f.To)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// TestChanges: the changes of an object, of a namespace and of all, by each selector, in pages of any size.
func TestChanges(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	c := w.c
	w.write(t, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	before := w.Root().Revision()
	const web = "/apis/apps/v1/namespaces/shop/deployments"
	w.write(t, http.MethodPost, web, `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"x","image":"x:1"},{"name":"y","image":"y:1","ports":[{"containerPort":80}]}]}}}}`)
	scaled := w.write(t, "MERGE", web+"/web", `{"spec":{"replicas":3}}`)
	w.write(t, http.MethodPatch, web+"/web", `{"spec":{"template":{"spec":{"containers":[{"name":"y","image":"y:2"}]}}}}`)
	alice := rest.CopyConfig(c)
	alice.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:masters"}}
	if code, _, b := exchange(t, alice, "APPLY", web+"/web?fieldManager=alice&force=true", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","labels":{"a.b/c":"d"}}}`); code != http.StatusOK {
		t.Fatal(code, string(b))
	}
	w.write(t, http.MethodDelete, web+"/web", "")
	whole := []string{
		"delete deployments.apps shop/web",
		`apply deployments.apps shop/web metadata.labels["a.b/c"]:>"d"`,
		`patch deployments.apps shop/web spec.template.spec.containers[name=y].image:"y:1">"y:2"`,
		"patch deployments.apps shop/web spec.replicas:1>3",
		"create deployments.apps shop/web",
	}
	object := map[string]string{"resource": "deployments.apps", "name": "web"}
	with := func(terms ...string) map[string]string {
		all := map[string]string{"resource": "deployments.apps"}
		for i := 0; i < len(terms); i += 2 {
			all[terms[i]] = terms[i+1]
		}
		return all
	}
	for _, limit := range []int{1, 2, 5, 500} {
		for _, x := range []struct {
			path  string
			terms map[string]string
			want  []string
		}{
			{changesIn("shop"), object, whole},
			{changesPath, object, whole},
			{changesPath, with("verb", "patch"), whole[2:4]},
			{changesPath, with("user", "alice"), whole[1:2]},
			{changesPath, with("field", "spec.replicas"), []string{whole[0], whole[3], whole[4]}},
			{changesPath, with("field", "spec.template.spec.containers[name=y]"), []string{whole[0], whole[2], whole[4]}},
			{changesPath, with("field", `metadata.labels["a.b/c"]`), whole[:2]}, // the creation has no such label
			{changesPath, with("since", fmt.Sprint(scaled)), whole[:3]},
			{changesPath, with("until", fmt.Sprint(scaled)), whole[3:]},
			{changesPath, with("since", fmt.Sprint(before), "until", fmt.Sprint(scaled-1)), whole[4:]},
			{changesPath, map[string]string{"since": time.Now().Add(-time.Hour).Format(time.RFC3339), "resource": "deployments.apps"}, whole},
			{changesIn("default"), object, nil},
			{changesPath, map[string]string{"resource": "no.such"}, nil},
			// A name with "!" excludes.
			{changesPath, with("verb!", "patch"), []string{whole[0], whole[1], whole[4]}},
			{changesPath, with("user!", "alice", "verb!", "delete"), whole[2:]},
			{changesPath, with("subresource!", "", "verb", "patch"), nil},
			{changesPath, with("resource!", "deployments.apps"), nil},
			{changesIn("shop"), map[string]string{"resource!": "configmaps", "loop": ""}, whole},
		} {
			if got := changeLines(listChanges(t, c, x.path, limit, x.terms)); fmt.Sprint(got) != fmt.Sprint(x.want) {
				t.Errorf("limit %d, %s %v:\ngot  %q\nwant %q", limit, x.path, x.terms, got, x.want)
			}
		}
		oldest := changeLines(listChanges(t, c, changesPath, limit, with("order", "oldest")))
		for i, line := range oldest {
			if len(oldest) != len(whole) || line != whole[len(whole)-1-i] {
				t.Errorf("limit %d: the oldest first: %q", limit, oldest)
				break
			}
		}
	}
	all := listChanges(t, c, changesPath, 7, nil)
	for i := range all[1:] {
		if len(all[i].Revision) < len(all[i+1].Revision) || all[i].Revision <= all[i+1].Revision {
			t.Errorf("%s comes before %s", all[i].Revision, all[i+1].Revision)
		}
	}
	applied := listChanges(t, c, changesPath, 9, with("user", "alice"))[0]
	if applied.User != "alice" || applied.ImpersonatedBy == "" || applied.FieldManager != "alice" || applied.AuditID == "" || applied.UID == "" || applied.Time.IsZero() || applied.Loop != "" {
		t.Errorf("the change is %+v", applied)
	}
	for _, own := range listChanges(t, c, changesPath, 9, map[string]string{"resource": "namespaces", "name": "kube-system"}) {
		if own.User != "" || own.Loop == "" {
			t.Errorf("a change by the server: %+v", own)
		}
	}
	labelled := listChanges(t, c, changesIn("shop")+"", 9, object)
	code, _, b := exchange(t, c, http.MethodGet, changesPath+"?labelSelector=app%3Dweb", "")
	var l changes.ChangeList
	if err := json.Unmarshal(b, &l); err != nil || code != http.StatusOK || len(l.Items) != len(labelled) {
		t.Errorf("by label: %d, %d changes, want %d", code, len(l.Items), len(labelled))
	}
	alone, err := metadata.NewForConfig(metadata.ConfigFor(c)) // in protobuf
	if err != nil {
		t.Fatal(err)
	}
	listed, err := alone.Resource(schema.GroupVersionResource{Group: "tidemark.dev", Version: "v1", Resource: "changes"}).Namespace("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "resource=deployments.apps,name=web"})
	if err != nil || len(listed.Items) != len(whole) || listed.Items[0].Name != labelled[0].Revision || listed.Items[0].CreationTimestamp.IsZero() {
		t.Errorf("the metadata of the changes: %+v, %v", listed, err)
	}
	code, _, b = exchange(t, c, "TABLE", changesIn("shop")+"?limit=1", "")
	if code != http.StatusOK || !strings.Contains(string(b), `"cells":["`) {
		t.Errorf("the table: %d %s", code, b)
	}
}

// TestChangesRefused: selectors that changes do not have, and tokens that no page has.
func TestChangesRefused(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	for query, want := range map[string]string{
		"fieldSelector=x%3D1":                           "no selectable field",
		"fieldSelector=name!%3Da":                       "by = alone",
		"fieldSelector=name%3Da":                        "is needed, too",
		"fieldSelector=since%3Dyesterday":               "neither a revision nor a time",
		"fieldSelector=since%3D9000000000000000000":     "later than the newest revision",
		"fieldSelector=until%3D9000000000000000000":     "later than the newest revision",
		"fieldSelector=since%3D2099-01-01T00:00:00Z":    "later than now",
		"fieldSelector=until%3D2099-01-01T00:00:00Z":    "later than now",
		"fieldSelector=order%3Dup":                      "is unknown",
		"fieldSelector=" + url.QueryEscape("field=a[b"): "",
		"continue=xx": "the continue token is invalid",
	} {
		code, _, b := exchange(t, c, http.MethodGet, changesPath+"?"+query, "")
		if code != http.StatusBadRequest || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %s", query, code, b)
		}
	}
	if code, _, b := exchange(t, c, http.MethodGet, changesPath+"?watch=1&timeoutSeconds=1&fieldSelector=since%3D9000000000000000000", ""); !strings.Contains(string(b), "later than the newest revision") {
		t.Errorf("a watch since later: %d %s", code, b)
	}
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodPut} {
		if code, _, b := exchange(t, c, method, changesIn("default"), "{}"); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", method, code, b)
		}
	}
}

// TestChangesRights: one needs the present right on the objects.
func TestChangesRights(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	w.write(t, http.MethodPost, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"stringData":{"password":"hidden"}}`)
	const roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
	grant := func(user, rules string) *rest.Config {
		t.Helper()
		w.write(t, http.MethodPost, roles+"/roles", `{"metadata":{"name":"`+user+`"},"rules":[`+rules+`]}`)
		w.write(t, http.MethodPost, roles+"/rolebindings", `{"metadata":{"name":"`+user+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"`+user+`"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+user+`"}]}`)
		c, err := w.RESTConfigFor(user)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	lists := grant("lists", `{"apiGroups":[""],"resources":["configmaps"],"verbs":["list"]}`)
	gets := grant("gets", `{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"],"resourceNames":["a"]}`)
	nothing := grant("nothing", `{"apiGroups":["tidemark.dev"],"resources":["changes"],"verbs":["list","watch","get"]}`)
	const maps, secrets = "?fieldSelector=resource%3Dconfigmaps", "?fieldSelector=resource%3Dsecrets"
	for _, x := range []struct {
		user string
		c    *rest.Config
		path string
		code int
	}{
		{"lists", lists, changesIn("default"), 200},
		{"lists", lists, changesIn("default") + maps, 200},
		{"lists", lists, changesIn("default") + maps + ",name%3Da", 403},
		{"lists", lists, changesIn("default") + maps + "&watch=1&timeoutSeconds=1", 403},
		{"lists", lists, changesIn("default") + secrets, 403},
		{"lists", lists, changesPath, 403},
		{"lists", lists, changesPath + maps, 403},
		{"gets", gets, changesIn("default") + maps + ",name%3Da", 200},
		{"gets", gets, changesIn("default") + maps + ",name%3Db", 403},
		{"gets", gets, changesIn("default") + maps, 403},
		{"gets", gets, changesIn("default"), 403},
		{"nothing", nothing, changesIn("default"), 403},
		{"nothing", nothing, changesPath, 403},
		{"anonymous", servertest.Anonymous(w.Server), changesPath, 403},
	} {
		code, _, b := exchange(t, x.c, http.MethodGet, x.path, "")
		if code != x.code || strings.Contains(string(b), "hidden") || strings.Contains(string(b), `"secrets"`) && code == 200 {
			t.Errorf("%s %s: %d %s", x.user, x.path, code, b)
		}
	}
	if got := listChanges(t, lists, changesIn("default"), 500, nil); len(got) != 4 { // three of a, one of z
		t.Errorf("one who lists ConfigMaps sees %q", changeLines(got))
	}
}

// TestChangesWatched: a dynamic client lists changes and watches those that follow.
func TestChangesWatched(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{Controllers: []string{"-*"}})
	client, err := dynamic.NewForConfig(w.c)
	if err != nil {
		t.Fatal(err)
	}
	of := client.Resource(schema.GroupVersionResource{Group: "tidemark.dev", Version: "v1", Resource: "changes"})
	for _, selector := range []string{"", "resource=configmaps", "resource=configmaps,name=b", "resource!=secrets,resource!=events.events.k8s.io,loop="} {
		t.Run(selector, func(t *testing.T) {
			listed, err := of.Namespace("default").List(t.Context(), metav1.ListOptions{FieldSelector: selector})
			if err != nil {
				t.Fatal(err)
			}
			seen, err := of.Namespace("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: selector, ResourceVersion: listed.GetResourceVersion()})
			if err != nil {
				t.Fatal(err)
			}
			defer seen.Stop()
			w.write(t, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"generateName":"other-"}}`)
			w.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"b"},"data":{"x":"1"}}`)
			w.write(t, "MERGE", instantMaps+"/b", `{"data":{"x":"2"}}`)
			w.write(t, http.MethodDelete, instantMaps+"/b", "")
			var got []string
			for e := range seen.ResultChan() {
				b, err := json.Marshal(e.Object)
				if err != nil {
					t.Fatal(err)
				}
				var c changes.Change
				if err := json.Unmarshal(b, &c); err != nil {
					t.Fatal(err)
				}
				if got = append(got, string(e.Type)+" "+changeLines([]changes.Change{c})[0]); len(got) == 3 {
					break
				}
			}
			want := []string{"ADDED create configmaps default/b", `ADDED patch configmaps default/b data.x:"1">"2"`, "ADDED delete configmaps default/b"}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %q", got)
			}
		})
	}
	if code, _, b := exchange(t, w.c, http.MethodGet, changesIn("default")+"?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", ""); code != http.StatusUnprocessableEntity {
		t.Errorf("a streaming list: %d %s", code, b) // informers fall back to a list
	}
	if _, _, b := exchange(t, w.c, http.MethodGet, changesIn("default")+"?watch=1&resourceVersion=1", ""); !strings.Contains(string(b), `"code":410`) {
		t.Errorf("a revision that is gone: %s", b)
	}
}

// TestChangesOfGoneDefinition: the history of objects whose definition is gone has the paths of its schema.
func TestChangesOfGoneDefinition(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{})
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	w.write(t, http.MethodPost, definitions, `{"metadata":{"name":"things.past.example"},"spec":{"group":"past.example","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},`+
		`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],"items":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"n":{"type":"integer"}}}}}}}}}}]}}`)
	const things = "/apis/past.example/v1/namespaces/default/things"
	servedSoon(t, w.c, things)
	w.write(t, http.MethodPost, things, `{"apiVersion":"past.example/v1","kind":"Thing","metadata":{"name":"t"},"spec":{"parts":[{"id":"a","n":1},{"id":"b","n":1}]}}`)
	w.write(t, "MERGE", things+"/t", `{"spec":{"parts":[{"id":"b","n":2},{"id":"a","n":1}]}}`)
	w.write(t, http.MethodDelete, definitions+"/things.past.example", "")
	for range 2 { // while it is terminating, and when it is gone
		got := changeLines(listChanges(t, w.c, changesIn("default"), 10, map[string]string{"resource": "things.past.example", "verb": "patch"}))
		if want := "patch things.past.example default/t spec.parts[id=b].n:1>2"; len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("got %q, want %q", got, want)
		}
		goneSoon(t, w.c, things)
	}
}

// TestChangesOfRemoval: the server removes an object with the last finalizer of its own, which is a deletion. The write of a
// client that does so keeps its verb.
func TestChangesOfRemoval(t *testing.T) {
	w := newInstantWorld(t, &tidemark.Server{})
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	w.write(t, http.MethodPost, definitions, `{"metadata":{"name":"things.gone.example"},"spec":{"group":"gone.example","scope":"Namespaced","names":{"plural":"things","kind":"Thing"},`+
		`"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`)
	servedSoon(t, w.c, "/apis/gone.example/v1/namespaces/default/things")
	w.write(t, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"gone"}}`)
	w.write(t, http.MethodPost, instantMaps, `{"metadata":{"name":"gone","finalizers":["example.com/mine"]}}`)
	w.write(t, http.MethodDelete, instantMaps+"/gone", "")
	w.write(t, "MERGE", instantMaps+"/gone", `{"metadata":{"finalizers":null}}`)
	w.write(t, http.MethodDelete, "/api/v1/namespaces/gone", "")
	w.write(t, http.MethodDelete, definitions+"/things.gone.example", "")
	goneSoon(t, w.c, "/api/v1/namespaces/gone")
	goneSoon(t, w.c, definitions+"/things.gone.example")
	for _, x := range []struct{ resource, name, verb, loop string }{
		{"namespaces", "gone", "delete", "namespace"},
		{"customresourcedefinitions.apiextensions.k8s.io", "things.gone.example", "delete", "customresourcedefinition"},
		{"configmaps", "gone", "patch", ""},
	} {
		all := listChanges(t, w.c, changesPath, 1, map[string]string{"resource": x.resource, "name": x.name, "verb": x.verb})
		if len(all) == 0 || !all[0].Deletes() || all[0].Verb != x.verb || all[0].Subresource != "" || all[0].Loop != x.loop {
			t.Errorf("%s: %+v", x.resource, all)
		}
	}
	definition := map[string]string{"resource": "customresourcedefinitions.apiextensions.k8s.io", "name": "things.gone.example", "verb": "create"}
	if all := listChanges(t, w.c, changesPath, 10, definition); len(all) != 1 || !all[0].Creates() {
		t.Errorf("a definition, whose status the same request sets, was created by %q", changeLines(all))
	}
}
