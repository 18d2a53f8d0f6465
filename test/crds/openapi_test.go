package crds

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// shownDefinitions have features that a document shows differently: scopes, subresources, versions,
// names that are not letters alone or look like plurals, selectable fields, embedded objects, and a
// schema that kubectl must not see.
const shownDefinitions = `[
{"metadata":{"name":"jobs.shown.x-example.net"},"spec":{"group":"shown.x-example.net","scope":"Namespaced","names":{"plural":"jobs","singular":"job","kind":"Job","listKind":"JobList"},"versions":[
	{"name":"v1","served":true,"storage":true,
	 "subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}},
	 "selectableFields":[{"jsonPath":".spec.color"}],
	 "schema":{"openAPIV3Schema":{"type":"object","properties":{
		"spec":{"type":"object","required":["n"],"properties":{"n":{"type":"integer","default":3,"minimum":0},"color":{"type":"string","nullable":true},
			"port":{"x-kubernetes-int-or-string":true},
			"template":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
			"pod":{"type":"object","x-kubernetes-embedded-resource":true,"properties":{"a":{"type":"string"}}}}},
		"status":{"type":"object","properties":{"n":{"type":"integer"}}}}}}},
	{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
	{"name":"v3","served":false,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}}}]}},
{"metadata":{"name":"areastatuses.shown.x-example.net"},"spec":{"group":"shown.x-example.net","scope":"Cluster","names":{"plural":"areastatuses","singular":"areastatus","kind":"AreaStatus","listKind":"AreaStatusList"},"versions":[
	{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}]}}
]`

// TestOpenAPILikeLibraries compares the documents of custom groups with those that
// the builder of apiextensions-apiserver makes, as kube-apiserver shows them.
func TestOpenAPILikeLibraries(t *testing.T) {
	tier.Full(t)
	s := newSender(t, servers.Quick(servers.Start(t).RESTConfig()))
	var shown []tree
	if err := json.Unmarshal([]byte(shownDefinitions), &shown); err != nil {
		t.Fatal(err)
	}
	for i, d := range corpus(t) {
		if i%4 == 0 { // the builder takes half of the test's time
			shown = append(shown, d.body)
		}
	}
	documents := map[string][]*spec3.OpenAPI{} // of pages
	var documents2 []*spec.Swagger
	groups := map[string]bool{}
	for _, body := range shown {
		got := s.send(t, request{"POST", definitions, "", body})
		if got.code != http.StatusCreated {
			t.Fatalf("%v: %d %v", body["metadata"], got.code, got.body["message"])
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := json.Unmarshal(bytesOf(t, got.body), &d); err != nil {
			t.Fatal(err)
		}
		groups[d.Spec.Group] = true
		for _, v := range d.Spec.Versions {
			if !v.Served {
				continue
			}
			three, err := builder.BuildOpenAPIV3(&d, v.Name, builder.Options{IncludeSelectableFields: true})
			if err != nil {
				t.Fatal(err)
			}
			page := "apis/" + d.Spec.Group + "/" + v.Name
			documents[page] = append(documents[page], three)
			two, err := builder.BuildOpenAPIV2(&d, v.Name, builder.Options{V2: true, IncludeSelectableFields: true})
			if err != nil {
				t.Fatal(err)
			}
			two.Definitions = handler.PruneDefaults(two.Definitions)
			documents2 = append(documents2, two)
		}
	}

	index := s.send(t, request{"GET", "/openapi/v3", "", nil}).body["paths"].(tree)
	for page := range index {
		if parts := strings.Split(page, "/"); len(parts) > 1 && groups[parts[1]] && documents[page] == nil {
			t.Errorf("the index has %s", page)
		}
	}
	for page, all := range documents {
		want, err := builder.MergeSpecsV3(all...)
		if err != nil {
			t.Fatal(err)
		}
		got := s.send(t, request{"GET", "/openapi/v3/" + page, "", nil})
		wantSame(t, page, comparable(got.body), comparable(plain(t, want)))
	}

	want2, err := builder.MergeSpecs(&spec.Swagger{}, documents2...)
	if err != nil {
		t.Fatal(err)
	}
	got2 := s.send(t, request{"GET", "/openapi/v2", "", nil}).body
	want := plain(t, want2)
	gotPaths, wantPaths := got2["paths"].(tree), inline(want["paths"], want["parameters"].(tree)).(tree)
	for path := range gotPaths {
		if parts := strings.Split(path, "/"); len(parts) < 3 || !groups[parts[2]] {
			delete(gotPaths, path)
		}
	}
	wantSame(t, "v2 paths", gotPaths, wantPaths)
	gotModels := got2["definitions"].(tree)
	for name, model := range want["definitions"].(tree) {
		if strings.HasPrefix(name, "io.k8s.apimachinery.") {
			continue // built-in kinds share them
		}
		wantSame(t, "v2 "+name, gotModels[name], model)
	}
}

// comparable drops the versions of DeleteOptions: this server lists the served ones, kube-apiserver
// those of its client library.
func comparable(document tree) tree {
	options := document["components"].(tree)["schemas"].(tree)["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
	delete(options.(tree), "x-kubernetes-group-version-kind")
	return document
}

// wantSame reports where two values differ, the innermost places alone.
func wantSame(t *testing.T, at string, got, want any) {
	t.Helper()
	g, ok := got.(tree)
	w, both := want.(tree)
	if !ok || !both {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %.1000s\nwant %.1000s", at, fmt.Sprint(got), fmt.Sprint(want))
		}
		return
	}
	for name := range w {
		wantSame(t, at+" > "+name, g[name], w[name])
	}
	for name := range g {
		if _, ok := w[name]; !ok {
			t.Errorf("%s: %s is too much", at, name)
		}
	}
}

// inline puts parameters in the place of references to them.
func inline(v any, parameters tree) any {
	switch v := v.(type) {
	case tree:
		ref, _ := v["$ref"].(string)
		if name, ok := strings.CutPrefix(ref, "#/parameters/"); ok {
			return parameters[name]
		}
		for name, child := range v {
			v[name] = inline(child, parameters)
		}
	case []any:
		for i, child := range v {
			v[i] = inline(child, parameters)
		}
	}
	return v
}

// plain is a value as JSON has it.
func plain(t *testing.T, v any) tree {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var o tree
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}
