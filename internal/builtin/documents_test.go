package builtin_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/discovery"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

const address = "127.0.0.1:36443"

// document returns the unaggregated document of a path.
func document(t *testing.T, d *discovery.Documents, path string) discovery.Document {
	t.Helper()
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	ok := true
	var doc discovery.Document
	switch {
	case path == "/api":
		doc = d.API(address)
	case path == "/apis":
		doc = d.APIs()
	case parts[0] == "api":
		doc, ok = d.GroupVersion("", parts[1])
	case len(parts) == 2:
		doc, ok = d.Group(parts[1])
	default:
		doc, ok = d.GroupVersion(parts[1], parts[2])
	}
	if !ok {
		t.Fatalf("no document for %s", path)
	}
	return doc
}

// shared returns the kinds that kube-apiserver has, too.
func shared() *resource.Catalog {
	return builtin.Catalog().With([]resource.Group{{Name: "tidemark.dev"}})
}

// TestDocuments compares the SHA-256 of each document with that in testdata/documents.txt, which is that of kube-apiserver
// v1.37.2 but for the address in /api.
func TestDocuments(t *testing.T) {
	d := discovery.New(shared(), nil)
	b, err := os.ReadFile("testdata/documents.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(b)) {
		path, want, _ := strings.Cut(strings.TrimSpace(line), " ")
		doc := document(t, d, path)
		sum := sha256.Sum256(doc.Body)
		if got := hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%s: SHA-256 %s, want %s of:\n%s", path, got, want, doc.Body)
		}
		if doc.ETag != "" {
			t.Errorf("%s: tag %q", path, doc.ETag)
		}
		seen++
	}
	want := 2 // /api and /apis
	for _, g := range shared().Groups() {
		want += len(g.Versions)
		if g.Name != "" {
			want++
		}
	}
	if seen != want {
		t.Errorf("%d documents compared of %d", seen, want)
	}
}

// TestAggregated compares the entity tags and the hashed content of aggregated documents without any
// CustomResourceDefinition. That of /api was recorded from kube-apiserver.
func TestAggregated(t *testing.T) {
	d := discovery.New(shared(), nil)
	for _, c := range []struct {
		path string
		doc  discovery.Document
		tag  string
	}{
		{"/api", d.AggregatedAPI(), `"4D7E1BED90B364BC86049DD9E636494980AEF65B7F8CFAA267616FA062B514A8A3CC2C2851CC9337B8D28B4C80960E2353DE5E0B152E87CC223E02EA3C5C37AC"`},
		{"/apis", d.AggregatedAPIs(), `"C1F1010597FE58AB064229356A99E46C1A393186FA4A195FB7F52CC9716570130AA2FD3A1637DC37D5C215C4A3A6022B5C46487215FF916DE5BA1DD781D395AE"`},
	} {
		if c.doc.ETag != c.tag {
			t.Errorf("%s: tag %s, want %s", c.path, c.doc.ETag, c.tag)
		}
		head := `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[{`
		if s := string(c.doc.Body); !strings.HasPrefix(s, head) || !strings.HasSuffix(s, "]}\n") {
			t.Errorf("%s: begins with %.100s", c.path, s)
		}
	}
}

// TestFormsAgree: the aggregated document has the same content as the single documents.
func TestFormsAgree(t *testing.T) {
	d := discovery.New(builtin.Catalog(), nil)
	for _, g := range append(aggregated(t, d.AggregatedAPI()), aggregated(t, d.AggregatedAPIs())...) {
		for _, v := range g.Versions {
			doc, ok := d.GroupVersion(g.Name, v.Version)
			if !ok {
				t.Fatalf("%s/%s: no document", g.Name, v.Version)
			}
			var list metav1.APIResourceList
			if err := json.Unmarshal(doc.Body, &list); err != nil {
				t.Fatal(err)
			}
			for i := range list.APIResources {
				list.APIResources[i].StorageVersionHash = ""
			}
			if d := cmp.Diff(flatten(v), list.APIResources); d != "" {
				t.Errorf("%s/%s (-aggregated +list):\n%s", g.Name, v.Version, d)
			}
		}
	}
}

func aggregated(t *testing.T, doc discovery.Document) []apidiscovery.APIGroupDiscovery {
	t.Helper()
	var list apidiscovery.APIGroupDiscoveryList
	if err := json.Unmarshal(doc.Body, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// flatten turns a version of the aggregated form into the resources of the other.
func flatten(v apidiscovery.APIVersionDiscovery) []metav1.APIResource {
	var out []metav1.APIResource
	for _, r := range v.Resources {
		namespaced := r.Scope == apidiscovery.ScopeNamespace
		out = append(out, metav1.APIResource{
			Name: r.Resource, SingularName: r.SingularResource, Namespaced: namespaced, Kind: r.ResponseKind.Kind,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
		for _, s := range r.Subresources {
			out = append(out, metav1.APIResource{
				Name: r.Resource + "/" + s.Subresource, Namespaced: namespaced, Kind: s.ResponseKind.Kind,
				Group: s.ResponseKind.Group, Version: s.ResponseKind.Version, Verbs: s.Verbs,
			})
		}
	}
	return out
}

// TestStorageVersionHash checks that the versions of a collection share their hash, and that a
// resource that is not stored has none.
func TestStorageVersionHash(t *testing.T) {
	d := discovery.New(builtin.Catalog(), nil)
	want := map[string]string{
		"v1 configmaps":           "qFsyl6wFWjQ=",
		"v1 events":               "r2yiGXH7wu8=",
		"events.k8s.io/v1 events": "r2yiGXH7wu8=",
		"autoscaling/v1 horizontalpodautoscalers": "qwQve8ut294=",
		"autoscaling/v2 horizontalpodautoscalers": "qwQve8ut294=",
		"v1 bindings":                                   "",
		"v1 componentstatuses":                          "",
		"authentication.k8s.io/v1 tokenreviews":         "",
		"v1 pods/status":                                "",
		"autoscaling/v1 horizontalpodautoscalers/scale": "",
	}
	for _, g := range builtin.Catalog().Groups() {
		for _, v := range g.Versions {
			doc, _ := d.GroupVersion(g.Name, v.Name)
			var list metav1.APIResourceList
			if err := json.Unmarshal(doc.Body, &list); err != nil {
				t.Fatal(err)
			}
			for _, r := range list.APIResources {
				k := list.GroupVersion + " " + r.Name
				if w, ok := want[k]; ok && r.StorageVersionHash != w {
					t.Errorf("%s: %q, want %q", k, r.StorageVersionHash, w)
				}
			}
		}
	}
}

// TestNotServed checks that a group or version outside the catalog has no document.
func TestNotServed(t *testing.T) {
	d := discovery.New(builtin.Catalog(), nil)
	for _, name := range []string{"", "nope", "v1", "APPS"} {
		if doc, ok := d.Group(name); ok {
			t.Errorf("group %q: %s", name, doc.Body)
		}
	}
	for _, gv := range [][2]string{{"", "v2"}, {"apps", "v1beta1"}, {"nope", "v1"}, {"apps", ""}} {
		if doc, ok := d.GroupVersion(gv[0], gv[1]); ok {
			t.Errorf("%v: %s", gv, doc.Body)
		}
	}
}

// TestEmptyCatalog checks that an empty list is encoded as [], not as null.
func TestEmptyCatalog(t *testing.T) {
	d := discovery.New(resource.NewCatalog(nil), nil)
	for _, c := range []struct {
		doc  discovery.Document
		want string
	}{
		{d.API("h:1"), `{"kind":"APIVersions","versions":[],"serverAddressByClientCIDRs":[{"clientCIDR":"0.0.0.0/0","serverAddress":"h:1"}]}`},
		{d.APIs(), `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`},
		{d.AggregatedAPI(), `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}`},
		{d.AggregatedAPIs(), `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}`},
	} {
		if got := strings.TrimSuffix(string(c.doc.Body), "\n"); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestRoot(t *testing.T) {
	c := resource.NewCatalog([]resource.Group{
		{Versions: []resource.Version{{Name: "v1"}}},
		{Name: "b.example.com", Versions: []resource.Version{{Name: "v2"}, {Name: "v1"}}},
	})
	want := `{
  "paths": [
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/apis/b.example.com",
    "/apis/b.example.com/v1",
    "/apis/b.example.com/v2",
    "/version"
  ]
}`
	got := discovery.New(c, nil).Root("/version", "/.well-known/openid-configuration", "/api")
	if d := cmp.Diff(string(got.Body), want); d != "" {
		t.Errorf("root (-got +want):\n%s", d)
	}
}

// TestShared checks that a document is built once for all clients.
func TestShared(t *testing.T) {
	d := discovery.New(builtin.Catalog(), nil)
	docs := make([]discovery.Document, 8)
	var wg sync.WaitGroup
	for i := range docs {
		wg.Go(func() {
			d.GroupVersion("apps", "v1")
			d.Group("apps")
			d.APIs()
			docs[i] = d.AggregatedAPIs()
		})
	}
	wg.Wait()
	for _, doc := range docs {
		if &doc.Body[0] != &docs[0].Body[0] {
			t.Error("the document was made twice")
		}
	}
}

// BenchmarkAll measures building all documents, as the first requests do.
func BenchmarkAll(b *testing.B) {
	c := builtin.Catalog()
	b.ReportAllocs()
	for b.Loop() {
		d := discovery.New(c, nil)
		d.API(address)
		d.APIs()
		d.AggregatedAPI()
		d.AggregatedAPIs()
		for _, g := range c.Groups() {
			d.Group(g.Name)
			for _, v := range g.Versions {
				d.GroupVersion(g.Name, v.Name)
			}
		}
	}
}
