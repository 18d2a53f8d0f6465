package aggregation_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/discovery"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// own are the documents of a server with built-in groups and a custom one.
func own(extra ...resource.Group) *discovery.Documents {
	kind := func(group, version string, custom bool) resource.Version {
		t := &resource.Type{Names: resource.Names{Group: group, Version: version, Resource: "things", Kind: "Thing"}, Verbs: []string{"get", "list"}}
		if custom {
			t.Custom = new(resource.Custom)
		}
		return resource.Version{Name: version, Types: []*resource.Type{t}}
	}
	groups := []resource.Group{
		{Name: "", Versions: []resource.Version{kind("", "v1", false)}},
		{Name: "apiregistration.k8s.io", Versions: []resource.Version{kind("apiregistration.k8s.io", "v1", false)}},
		{Name: "apps", Versions: []resource.Version{kind("apps", "v1", false)}},
		{Name: "custom.example.com", Versions: []resource.Version{kind("custom.example.com", "v2", true), kind("custom.example.com", "v1", true)}},
	}
	return discovery.New(resource.NewCatalog(append(groups, extra...)), nil)
}

// groupsOf returns the groups and versions of GET /apis, as "GROUP/V,V ...".
func groupsOf(t testing.TB, m *aggregation.Merged) string {
	t.Helper()
	var list struct {
		Groups []struct {
			Name             string
			Versions         []struct{ Version string }
			PreferredVersion struct{ Version string }
		}
	}
	if err := json.Unmarshal(m.APIs().Body, &list); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, g := range list.Groups {
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Version)
		}
		if versions[0] != g.PreferredVersion.Version {
			t.Errorf("%s prefers %s", g.Name, g.PreferredVersion.Version)
		}
		all = append(all, g.Name+"/"+strings.Join(versions, ","))
	}
	return strings.Join(all, " ")
}

// aggregatedOf returns the aggregated document, as "GROUP/VERSION(RESOURCES) ...", with ! for a stale version.
func aggregatedOf(t testing.TB, m *aggregation.Merged) string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Versions []struct {
				Version, Freshness string
				Resources          []struct{ Resource string }
			}
		}
	}
	if err := json.Unmarshal(m.AggregatedAPIs().Body, &list); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, g := range list.Items {
		for _, v := range g.Versions {
			var names []string
			for _, r := range v.Resources {
				names = append(names, r.Resource)
			}
			mark := ""
			if v.Freshness == "Stale" {
				mark = "!"
			}
			all = append(all, fmt.Sprintf("%s/%s%s(%s)", g.Metadata.Name, v.Version, mark, strings.Join(names, ",")))
		}
	}
	return strings.Join(all, " ")
}

// wantAggregated waits for an aggregated document.
func (w *world) wantAggregated(d *discovery.Documents, want string) {
	w.t.Helper()
	await.Nil(w.t, "the aggregated document", func() error {
		m := w.Merge(d)
		if m == nil {
			return fmt.Errorf("it is the server's own, want %s", want)
		}
		if got := aggregatedOf(w.t, m); got != want {
			return fmt.Errorf("it is\n%s, want\n%s", got, want)
		}
		return nil
	})
}

const discovered = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[
 {"metadata":{"name":"g.example.com"},"versions":[{"version":"v1","resources":[{"resource":"flunders","scope":"Namespaced","verbs":["get"],"subresources":[{"subresource":"status","verbs":["get"]}]}]}]},
 {"metadata":{"name":"apps"},"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"lies","scope":"Namespaced","verbs":["get"]}]}]},
 {"metadata":{"name":"other.example.com"},"versions":[{"version":"v1","resources":[{"resource":"lies","scope":"Namespaced","verbs":["get"]}]}]}]}`

// TestDiscovery: the groups of extension servers are among the others by their priorities, and stay while they are
// unavailable. A server describes its own versions alone.
func TestDiscovery(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	d := own()
	if w.Merge(d) != nil {
		t.Fatal("without extension servers, the documents are not those of the server")
	}
	e.on("/apis", reply{contentType: aggregatedType, body: discovered})
	w.put(aggregation.Collection, "v1.apps", stored{Metadata: object{"name": "v1.apps"}, Spec: apiregistrationv1.APIServiceSpec{Group: "apps", Version: "v1", GroupPriorityMinimum: 17800, VersionPriority: 15}})
	w.available(e)
	const first = "apiregistration.k8s.io/v1(things) apps/v1(things) g.example.com/v1(flunders) "
	w.wantAggregated(d, first+"custom.example.com/v2(things) custom.example.com/v1(things)")
	if got, want := groupsOf(t, w.Merge(d)), "apiregistration.k8s.io/v1 apps/v1 g.example.com/v1 custom.example.com/v2,v1"; got != want {
		t.Errorf("groups %s, want %s", got, want)
	}
	if doc, ok := w.Merge(d).Group("g.example.com"); !ok || !strings.Contains(string(doc.Body), `"kind":"APIGroup"`) {
		t.Errorf("the group is %s", doc.Body)
	}
	if paths := w.Merge(d).Paths(); !slices.Contains(paths, "/apis/g.example.com/v1") {
		t.Errorf("paths %v", paths)
	}
	for _, r := range e.seen("/apis") {
		if r.Header.Get("Accept") != aggregatedType || r.Header.Get("X-Remote-User") != "system:kube-aggregator" {
			t.Errorf("a request for discovery has the headers %v", r.Header)
		}
	}

	// Another version of the custom group, with a lower version priority; and one that replaces its v1.
	to := w.toService("api", e.address())
	rank := func(group, version int32) func(*apiregistrationv1.APIServiceSpec) {
		return func(s *apiregistrationv1.APIServiceSpec) {
			to(s)
			s.GroupPriorityMinimum, s.VersionPriority = group, version
		}
	}
	w.register("v3.custom.example.com", rank(500, 50))
	w.register("v1.custom.example.com", rank(3000, 200))
	w.wantAggregated(d, "apiregistration.k8s.io/v1(things) apps/v1(things) custom.example.com/v1!() custom.example.com/v2(things) custom.example.com/v3!() g.example.com/v1(flunders)")
	w.remove(aggregation.Collection, "v1.custom.example.com")
	w.remove(aggregation.Collection, "v3.custom.example.com")
	w.wantAggregated(d, first+"custom.example.com/v2(things) custom.example.com/v1(things)")

	// Dead, and back.
	w.put("services", "ext/api", meta{object{"name": "api"}, object{"type": "ClusterIP", "clusterIP": "127.0.0.1"}})
	w.wantCondition("v1.g.example.com", "False ServicePortError *")
	w.wantAggregated(d, "apiregistration.k8s.io/v1(things) apps/v1(things) g.example.com/v1!() custom.example.com/v2(things) custom.example.com/v1(things)")
	if got := groupsOf(t, w.Merge(d)); !strings.Contains(got, "g.example.com/v1") {
		t.Errorf("an unavailable group is not listed: %s", got)
	}
	w.toService("api", e.address())
	w.wantAggregated(d, first+"custom.example.com/v2(things) custom.example.com/v1(things)")

	// A change of the condition makes no document anew.
	before := w.Merge(d).AggregatedAPIs().Body
	w.mu.Lock()
	s := w.service("v1.g.example.com")
	s.Status.Conditions[0].Message += "."
	w.put(aggregation.Collection, "v1.g.example.com", stored{object{"name": s.Name}, s.Spec, s.Status})
	w.mu.Unlock()
	w.wantCondition("v1.g.example.com", "True Passed all checks passed")
	if after := w.Merge(d).AggregatedAPIs().Body; &after[0] != &before[0] {
		t.Error("the aggregated document was made anew")
	}
	w.remove(aggregation.Collection, "v1.g.example.com")
	await.True(t, "the group goes", func() bool { return w.Backend("g.example.com", "v1") == nil && w.Merge(d) == nil })
}

// TestLegacy: a server without aggregated discovery is asked for each group and version.
func TestLegacy(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	e.on("/apis", reply{code: http.StatusNotAcceptable})
	w.available(e)
	e.on("/apis/g.example.com/v1", reply{contentType: "application/json", body: `{"kind":"APIResourceList","groupVersion":"g.example.com/v1","resources":[
		{"name":"flunders/status","namespaced":true,"kind":"Flunder","verbs":["get"]},{"name":"flunders","namespaced":true,"kind":"Flunder","verbs":["get","list"]}]}`})
	w.register("v1.g.example.com", func(s *apiregistrationv1.APIServiceSpec) { // another source, which fetches now
		w.toService("api", e.address())(s)
		s.InsecureSkipTLSVerify, s.CABundle = false, e.ca
	})
	w.wantAggregated(own(), "apiregistration.k8s.io/v1(things) apps/v1(things) g.example.com/v1(flunders) custom.example.com/v2(things) custom.example.com/v1(things)")
	var doc struct {
		Items []struct {
			Versions []struct {
				Resources []struct {
					Scope        string
					ResponseKind struct{ Group, Version, Kind string }
					Subresources []struct{ Subresource string }
				}
			}
		}
	}
	if err := json.Unmarshal(w.Merge(own()).AggregatedAPIs().Body, &doc); err != nil {
		t.Fatal(err)
	}
	if r := doc.Items[2].Versions[0].Resources[0]; r.Scope != "Namespaced" || r.ResponseKind.Kind != "Flunder" || r.ResponseKind.Group != "g.example.com" || r.Subresources[0].Subresource != "status" {
		t.Errorf("the converted resource is %+v", r)
	}
}

// TestManyValues: a short document may take much more memory than its length.
func TestManyValues(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	e.on("/apis", reply{contentType: aggregatedType, body: `{"items":[{"metadata":{"name":"g.example.com"},"versions":[{"version":"v1","resources":[` + strings.Repeat("{},", 100_000) + `{}]}]}]}`})
	w.available(e)
	await.True(t, "the document is fetched again", func() bool { return len(e.seen("/apis")) >= 2 })
	if got := aggregatedOf(t, w.Merge(own())); !strings.Contains(got, "g.example.com/v1!()") {
		t.Errorf("the group is not stale: %s", got)
	}
}

// TestLargeDocuments: of documents without an end, a bounded part is read, and the group is stale.
func TestLargeDocuments(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	var sent atomic.Int64
	ended := make(chan struct{}, 100)
	e.handle(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis" {
			http.NotFound(w, r)
			return
		}
		defer func() { ended <- struct{}{} }()
		w.Header().Set("Content-Type", aggregatedType)
		io.WriteString(w, `{"items":[`)
		for {
			n, err := io.WriteString(w, strings.Repeat("[", 1<<16))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	})
	w.available(e)
	await.Value(t, "the end of a fetch", ended)
	if n := sent.Load(); n > 3*aggregation.MaxDiscoveryBytes {
		t.Errorf("%d bytes of a document were sent", n)
	}
	if got := aggregatedOf(t, w.Merge(own())); !strings.Contains(got, "g.example.com/v1!()") {
		t.Errorf("the group is not stale: %s", got)
	}
}

// TestBusy: extension servers whose documents use up the memory for documents make no other one stale. Small documents are
// fetched nevertheless, and large ones stay as they were.
func TestBusy(t *testing.T) {
	w := newWorld(t, aggregation.Config{})
	serve := func(name string, resources int) (*extension, func(*apiregistrationv1.APIServiceSpec)) {
		t.Helper()
		e, group := startExtension(t, name), name+".example.com"
		e.on("/apis", reply{contentType: aggregatedType, body: `{"items":[{"metadata":{"name":"` + group + `"},"versions":[{"version":"v1","resources":[` +
			strings.TrimSuffix(strings.Repeat(`{"resource":"`+strings.Repeat("r", 100)+`"},`, resources), ",") + `]},{"version":"v2"}]}]}`})
		e.handle(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
		to := w.toService(name, e.address())
		w.register("v1."+group, func(s *apiregistrationv1.APIServiceSpec) { to(s) })
		w.wantCondition("v1."+group, "True Passed all checks passed")
		return e, to
	}
	wantCurrent := func(gv string) {
		t.Helper()
		await.Nil(t, gv, func() error {
			if got := aggregatedOf(t, w.Merge(own())); !strings.Contains(got, gv) || strings.Contains(got, gv+"!") {
				return fmt.Errorf("it is stale: %s", got)
			}
			return nil
		})
	}
	large, to := serve("large", 2000)
	wantCurrent("large.example.com/v1")
	defer aggregation.SetMaxFetching(0)()
	serve("small", 100)
	wantCurrent("small.example.com/v1")
	before := len(large.seen("/apis"))
	w.register("v2.large.example.com", to) // so that the document is fetched again
	await.True(t, "a fetch that failed", func() bool { return len(large.seen("/apis")) >= before+2 })
	wantCurrent("large.example.com/v1")
}
