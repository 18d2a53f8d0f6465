package aggregation_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/await"
)

// ownOpenAPI are the server's own documents.
func ownOpenAPI(w http.ResponseWriter, r *http.Request) {
	const v2 = `{"definitions":{"Meta":{"type":"object","description":"of the server"},"Same":{"type":"object","x-kubernetes-group-version-kind":[{"kind":"A"}]}},` +
		`"info":{"title":"own","version":"1"},"paths":{"/apis/apps/v1/":{"get":{"responses":{"200":{"description":"OK"}}}}},"swagger":"2.0"}`
	h := w.Header()
	switch {
	case r.URL.Path == "/openapi/v3":
		h.Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A"}}}`)
	case r.URL.Path == "/openapi/v2" && strings.Contains(r.Header.Get("Accept"), "protobuf"):
		doc, err := openapi_v2.ParseDocument([]byte(v2))
		if err != nil {
			panic(err)
		}
		b, err := proto.Marshal(doc)
		if err != nil {
			panic(err)
		}
		h.Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
		h.Set("Etag", `"own"`)
		w.Write(b)
	case r.URL.Path == "/openapi/v2":
		h.Set("Content-Type", "application/json")
		h.Set("Etag", `"own"`)
		io.WriteString(w, v2)
	default:
		fmt.Fprint(w, "own ", r.URL.Path)
	}
}

const foreignV2 = `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{
 "/apis/g.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Thing"}}}}},
 "/apis/apps/v1/lies":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Lie"}}}}}},
 "definitions":{"Thing":{"type":"object","properties":{"metadata":{"$ref":"#/definitions/Meta"},"same":{"$ref":"#/definitions/Same"}}},
 "Meta":{"type":"object","description":"of the extension"},"Same":{"type":"object","x-kubernetes-group-version-kind":[{"kind":"B"}]},"Lie":{"type":"object"}}}`

// TestOpenAPI: the documents of extension servers are merged into those of the server. A server describes its own paths
// alone, and cannot change what others have described.
func TestOpenAPI(t *testing.T) {
	e := startExtension(t, "api")
	w := newWorld(t, aggregation.Config{})
	all := w.OpenAPI(http.HandlerFunc(ownOpenAPI))
	get := func(path, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept", accept)
		rw := httptest.NewRecorder()
		all.ServeHTTP(rw, r.WithContext(aggregation.WithCaller(r.Context(), aggregation.Caller{User: alice})))
		return rw
	}
	if got := get("/openapi/v3/apis/g.example.com/v1", "").Body.String(); got != "own /openapi/v3/apis/g.example.com/v1" {
		t.Errorf("without extension servers: %s", got)
	}
	e.on("/openapi/v3", reply{body: `{"paths":{"apis/g.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/g.example.com/v1?hash=B"},
		"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=LIE"},"version":{"serverRelativeURL":"https://elsewhere/"}}}`})
	e.on("/openapi/v3/apis/g.example.com/v1", reply{contentType: "application/json", body: `{"openapi":"3.0.0"}`})
	e.on("/openapi/v2", reply{contentType: "application/json", body: foreignV2})
	w.available(e)
	const index = `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=A"},"apis/g.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/g.example.com/v1?hash=B"}}}`
	await.Nil(t, "the index", func() error {
		if got := get("/openapi/v3", "").Body.String(); got != index {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})
	if got := get("/openapi/v3/apis/g.example.com/v1", "application/json").Body.String(); got != `{"openapi":"3.0.0"}` {
		t.Errorf("the page is %s", got)
	}
	past := httptest.NewRecorder() // a request of the past has no caller
	all.ServeHTTP(past, httptest.NewRequest(http.MethodGet, "/openapi/v3/apis/g.example.com/v1", nil))
	if got := past.Body.String(); got != "own /openapi/v3/apis/g.example.com/v1" {
		t.Errorf("without a caller: %s", got)
	}
	for path, want := range map[string]string{"/openapi/v3": "system:aggregator", "/openapi/v2": "system:aggregator", "/openapi/v3/apis/g.example.com/v1": "alice"} {
		await.True(t, "a request for "+path, func() bool { return len(e.seen(path)) > 0 })
		if got := e.seen(path)[0].Header.Get("X-Remote-User"); got != want {
			t.Errorf("%s is requested as %s, want %s", path, got, want)
		}
	}

	var doc struct{ Paths, Definitions map[string]json.RawMessage }
	await.Nil(t, "the merged document", func() error {
		doc.Paths, doc.Definitions = nil, nil
		body := get("/openapi/v2", "application/json").Body.Bytes()
		if err := json.Unmarshal(body, &doc); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if doc.Paths["/apis/g.example.com/v1/things"] == nil {
			return fmt.Errorf("it is %s", body)
		}
		return nil
	})
	if doc.Paths["/apis/apps/v1/"] == nil || doc.Paths["/apis/apps/v1/lies"] != nil || doc.Definitions["Lie"] != nil || len(doc.Definitions) != 4 {
		t.Errorf("paths %v, definitions %v", doc.Paths, doc.Definitions)
	}
	if got := string(doc.Definitions["Thing"]); !strings.Contains(got, `"#/definitions/Meta_v2"`) || !strings.Contains(got, `"#/definitions/Same"`) {
		t.Errorf("the definition refers to %s", got)
	}
	if !strings.Contains(string(doc.Definitions["Meta"]), "of the server") || !strings.Contains(string(doc.Definitions["Meta_v2"]), "of the extension") {
		t.Errorf("definitions %v", doc.Definitions)
	}
	packed := new(openapi_v2.Document)
	if err := proto.Unmarshal(get("/openapi/v2", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf").Body.Bytes(), packed); err != nil {
		t.Fatal(err)
	}
	if len(packed.Paths.Path) != 2 || len(packed.Definitions.AdditionalProperties) != 4 || packed.Info.Title != "own" {
		t.Errorf("as protobuf: %v", packed)
	}
	first := get("/openapi/v2", "application/json")
	again := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil)
	again.Header = http.Header{"Accept": {"application/json"}, "If-None-Match": {first.Header().Get("Etag")}}
	rw := httptest.NewRecorder()
	if all.ServeHTTP(rw, again); rw.Code != http.StatusNotModified {
		t.Errorf("a document that was not modified is %d", rw.Code)
	}
}

// TestBadOpenAPI: a document that clients cannot read is left out, so that they can read the others.
func TestBadOpenAPI(t *testing.T) {
	for name, body := range map[string]string{
		"no JSON":           `{"paths":`,
		"a list as a path":  `{"paths":{"/apis/g.example.com/v1/things":["x"]}}`,
		"no such reference": `{"paths":{"/apis/g.example.com/v1/things":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/Thing"}}}}}}}`,
		"too long":          `{"paths":{"/apis/g.example.com/v1/things":{"description":"` + strings.Repeat("x", aggregation.MaxOpenAPIBytes) + `"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startExtension(t, "api")
			w := newWorld(t, aggregation.Config{})
			e.on("/openapi/v2", reply{contentType: "application/json", body: body})
			w.available(e)
			await.True(t, "the document is fetched and again", func() bool { return len(e.seen("/openapi/v2")) >= 2 })
			r := httptest.NewRequest(http.MethodGet, "/openapi/v2", nil)
			rw := httptest.NewRecorder()
			w.OpenAPI(http.HandlerFunc(ownOpenAPI)).ServeHTTP(rw, r)
			if strings.Contains(rw.Body.String(), "g.example.com") {
				t.Errorf("the document is %s", rw.Body)
			}
		})
	}
}
