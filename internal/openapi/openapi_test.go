package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

const version = "v1.37.2+tidemark.0"

func handlerUnderTest() http.Handler { return New(builtin.Catalog, version, false) }

// get asks the handler; headers come in pairs.
func get(t *testing.T, h http.Handler, url string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", url, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func document(t *testing.T, h http.Handler, url string) tree {
	t.Helper()
	resp := get(t, h, url)
	var v tree
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %v", url, resp.StatusCode, err)
	}
	return v
}

// at follows keys of a tree.
func at(v any, path ...string) any {
	for _, key := range path {
		m, ok := v.(tree)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// pieces is a response that notes how large the pieces are that it is written in.
type pieces struct {
	httptest.ResponseRecorder
	largest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.ResponseRecorder.Write(b)
}

// TestUnpackedInPieces: a page for a client that takes no gzip is not held as a whole, and
// is the same page.
func TestUnpackedInPieces(t *testing.T) {
	h := handlerUnderTest()
	for _, path := range []string{"/openapi/v2", "/openapi/v3/api/v1"} {
		get := func(method, encoding string) *pieces {
			r := httptest.NewRequest(method, path, nil)
			r.Header.Set("Accept-Encoding", encoding)
			p := &pieces{ResponseRecorder: *httptest.NewRecorder()}
			h.ServeHTTP(p, r)
			return p
		}
		plain, packed, head := get("GET", ""), get("GET", "gzip"), get("HEAD", "")
		if plain.largest > 64<<10 {
			t.Errorf("%s: a piece of %d bytes", path, plain.largest)
		}
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(want, plain.Body.Bytes()) || len(want) < 100_000 {
			t.Errorf("%s: %v; %d bytes, unpacked %d", path, err, plain.Body.Len(), len(want))
		}
		for _, p := range []*pieces{plain, head} {
			if got := p.Header().Get("Content-Length"); got != strconv.Itoa(len(want)) {
				t.Errorf("%s: its length is said to be %s, want %d", path, got, len(want))
			}
		}
		if head.Body.Len() > 0 {
			t.Errorf("%s: HEAD has a body", path)
		}
	}
}

func TestFactsV3(t *testing.T) {
	h := handlerUnderTest()
	core, apps := document(t, h, "/openapi/v3/api/v1"), document(t, h, "/openapi/v3/apis/apps/v1")
	schema := func(d tree, name string, path ...string) any {
		return at(d, append([]string{"components", "schemas", name}, path...)...)
	}
	for _, c := range []struct {
		what string
		got  any
		want string
	}{
		{"version", core["openapi"], `"3.0.0"`},
		{"required of a pod's spec", schema(core, "io.k8s.api.core.v1.PodSpec", "required"), `["containers"]`},
		{"merge key", schema(core, "io.k8s.api.core.v1.PodSpec", "properties", "containers", "x-kubernetes-patch-merge-key"), `"name"`},
		{"list keys", schema(core, "io.k8s.api.core.v1.ServiceSpec", "properties", "ports", "x-kubernetes-list-map-keys"), `["port","protocol"]`},
		{"quantity", schema(core, "io.k8s.apimachinery.pkg.api.resource.Quantity", "oneOf"), `[{"type":"string"},{"type":"number"}]`},
		{"text from the type", schema(core, "io.k8s.api.core.v1.ServicePort", "properties", "port", "description"), `"The port that will be exposed by this service."`},
		{"text of an embedded struct", schema(core, "io.k8s.api.core.v1.Volume", "properties", "emptyDir", "allOf"), `[{"$ref":"#/components/schemas/io.k8s.api.core.v1.EmptyDirVolumeSource"}]`},
		{"kind", schema(apps, "io.k8s.api.apps.v1.Deployment", "x-kubernetes-group-version-kind"), `[{"group":"apps","kind":"Deployment","version":"v1"}]`},
		{"patch strategy", schema(apps, "io.k8s.api.apps.v1.DeploymentSpec", "properties", "strategy", "x-kubernetes-patch-strategy"), `"retainKeys"`},
		{"operation", at(apps, "paths", "/apis/apps/v1/deployments", "get", "operationId"), `"listAppsV1DeploymentForAllNamespaces"`},
		{"scale", at(apps, "paths", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale", "get", "x-kubernetes-group-version-kind"), `{"group":"autoscaling","kind":"Scale","version":"v1"}`},
		{"watch", at(apps, "paths", "/apis/apps/v1/watch/deployments", "get", "x-kubernetes-action"), `"watchlist"`},
		{"connect", at(core, "paths", "/api/v1/nodes/{name}/proxy/{path}", "head", "operationId"), `"connectCoreV1HeadNodeProxyWithPath"`},
	} {
		if got := text(c.got); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

// TestMediaWithCBOR: with CBOR enabled, the operations of resources list it, and no others.
func TestMediaWithCBOR(t *testing.T) {
	h := New(builtin.Catalog, version, true)
	three := `"application/json","application/yaml","application/vnd.kubernetes.protobuf"`
	d := document(t, h, "/openapi/v2")
	const configMaps = "/api/v1/namespaces/{namespace}/configmaps"
	for _, c := range []struct {
		path, method, what, want string
	}{
		{configMaps, "get", "produces", "[" + three + `,"application/cbor","application/json;stream=watch","application/vnd.kubernetes.protobuf;stream=watch","application/cbor-seq"]`},
		{configMaps, "post", "produces", "[" + three + `,"application/cbor"]`},
		{configMaps + "/{name}", "patch", "consumes", `["application/json-patch+json","application/merge-patch+json","application/strategic-merge-patch+json","application/apply-patch+yaml","application/apply-patch+cbor"]`},
		{"/api/v1/", "get", "consumes", "[" + three + `,"application/cbor"]`},
		{"/api/v1/namespaces/{namespace}/pods/{name}/log", "get", "produces", `["text/plain",` + three + `,"application/cbor"]`},
		{"/apis/apps/", "get", "produces", "[" + three + "]"},
		{"/apis/", "get", "produces", "[" + three + "]"},
	} {
		if got := text(at(d, "paths", c.path, c.method, c.what)); got != c.want {
			t.Errorf("%s of %s %s: got %s, want %s", c.what, c.method, c.path, got, c.want)
		}
	}
	if off, on := New(builtin.Catalog, version, false).documents(), New(builtin.Catalog, version, true).documents(); off.hashOf("api/v1") == on.hashOf("api/v1") {
		t.Error("both documents have one hash")
	}
}

func TestFactsV2(t *testing.T) {
	d := document(t, handlerUnderTest(), "/openapi/v2")
	for _, c := range []struct {
		got  any
		want string
	}{
		{d["swagger"], `"2.0"`},
		{at(d, "definitions", "io.k8s.apimachinery.pkg.util.intstr.IntOrString", "format"), `"int-or-string"`},
		{at(d, "definitions", "io.k8s.api.core.v1.Pod", "properties", "spec", "$ref"), `"#/definitions/io.k8s.api.core.v1.PodSpec"`},
		{at(d, "paths", "/api/v1/namespaces/{namespace}/configmaps/{name}", "patch", "consumes"), text(patchTypes)},
	} {
		if got := text(c.got); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
	if strings.Contains(text(d), refV3) {
		t.Error("version 2 refers to schemas of version 3")
	}
}

// TestDescriptionsCopied: the documents leave the descriptions of Go types as they are. All servers of a process
// share them.
func TestDescriptionsCopied(t *testing.T) {
	document(t, handlerUnderTest(), "/openapi/v2")
	if text := (corev1.Pod{}).SwaggerDoc()["kind"]; text != "" {
		t.Errorf("the descriptions of a Pod have those of its embedded types: %q", text)
	}
}

// TestEveryPage: all pages of the index are there, in both forms; every kind of
// the catalog is found by its group-version-kind; every reference leads somewhere.
func TestEveryPage(t *testing.T) {
	h := handlerUnderTest()
	index := document(t, h, "/openapi/v3")
	pages := map[string]tree{}
	for name := range index["paths"].(tree) {
		pages[name] = document(t, h, "/openapi/v3/"+name)
		resp := get(t, h, "/openapi/v3/"+name, "Accept", protobufV3)
		body, _ := io.ReadAll(resp.Body)
		if err := proto.Unmarshal(body, &openapi_v3.Document{}); err != nil || resp.Header.Get("Content-Type") != "application/com.github.proto-openapi.spec.v3.v1.0+protobuf" {
			t.Errorf("%s as protobuf: %v, %q", name, err, resp.Header.Get("Content-Type"))
		}
		checkReferences(t, name, pages[name], pages[name])
	}
	for _, g := range builtin.Catalog().Groups() {
		for _, v := range g.Versions {
			for _, typ := range v.Types {
				checkKind(t, pages[pageOf(g.Name, v.Name)], typ)
			}
		}
	}
	body, _ := io.ReadAll(get(t, h, "/openapi/v2", "Accept", protobufV2).Body)
	if err := proto.Unmarshal(body, &openapi_v2.Document{}); err != nil {
		t.Errorf("version 2 as protobuf: %v", err)
	}
}

func checkReferences(t *testing.T, page string, root tree, v any) {
	switch v := v.(type) {
	case tree:
		if ref, ok := v["$ref"].(string); ok && at(root, "components", "schemas", strings.TrimPrefix(ref, refV3)) == nil {
			t.Errorf("%s refers to %s, which is not there", page, ref)
		}
		for _, child := range v {
			checkReferences(t, page, root, child)
		}
	case []any:
		for _, child := range v {
			checkReferences(t, page, root, child)
		}
	}
}

func checkKind(t *testing.T, page tree, typ *resource.Type) {
	want := text(tree{"group": typ.Group, "version": typ.Version, "kind": typ.Kind})
	schema := at(page, "components", "schemas", modelOf(typ))
	if !strings.Contains(text(at(schema, "x-kubernetes-group-version-kind")), want) {
		t.Errorf("no schema says that it is %s", want)
	}
	if typ.Collection != "" && at(schema, "description") == nil {
		t.Errorf("%s has no description", want)
	}
}

func TestHandler(t *testing.T) {
	h := handlerUnderTest()
	index := document(t, h, "/openapi/v3")
	url := at(index, "paths", "apis/apps/v1", "serverRelativeURL").(string)
	etag := get(t, h, url).Header.Get("Etag")
	for _, c := range []struct {
		name, method, url string
		headers           []string
		code              int
		header, value     string
	}{
		{"with its hash", "GET", url, nil, 200, "Cache-Control", "public, immutable"},
		{"without a hash", "GET", "/openapi/v3/apis/apps/v1", nil, 200, "Etag", etag},
		{"with another hash", "GET", "/openapi/v3/apis/apps/v1?hash=ABC", nil, 301, "Location", url},
		{"unchanged", "GET", "/openapi/v3/apis/apps/v1", []string{"If-None-Match", etag}, 304, "Vary", "Accept"},
		{"compressed", "GET", url, []string{"Accept-Encoding", "gzip"}, 200, "Content-Encoding", "gzip"},
		{"anything", "GET", "/openapi/v2", []string{"Accept", "*/*"}, 200, "Content-Type", "application/json"},
		{"the second choice", "GET", "/openapi/v2", []string{"Accept", "text/html, application/json"}, 200, "Content-Type", "application/json"},
		{"nothing of ours", "GET", "/openapi/v2", []string{"Accept", "text/html"}, 406, "", ""},
		{"a page that is not there", "GET", "/openapi/v3/apis/nope/v1", nil, 404, "", ""},
		{"another method", "POST", "/openapi/v2", nil, 405, "Allow", "GET, HEAD"},
	} {
		r := httptest.NewRequest(c.method, c.url, nil)
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code || c.header != "" && w.Header().Get(c.header) != c.value {
			t.Errorf("%s: %d, %s %q; want %d, %q", c.name, w.Code, c.header, w.Header().Get(c.header), c.code, c.value)
		}
		if w.Code == http.StatusNotAcceptable && (w.Body.Len() > 0 || w.Header().Get("Content-Type") != "") {
			t.Errorf("%s: %q with %v, want nothing", c.name, w.Body, w.Header())
		}
	}
}

func BenchmarkPage(b *testing.B) {
	for b.Loop() {
		d := New(builtin.Catalog, version, false).documents()
		if _, err := d.make(b.Context(), pageKey{"api/v1", asJSON}); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzAccept(f *testing.F) {
	f.Add("application/json;q=0.5, */*")
	f.Add(protobufV3)
	f.Fuzz(func(t *testing.T, header string) { accept(header, protobufV3) })
}
