package aggregation_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// chain returns a document with count definitions: D0, D1, and so on. Each refers to the next one.
func chain(group, description string, count int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"swagger":"2.0","info":{"title":"x","version":"1"},"paths":{"/apis/%s/v1/t":{"get":{"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/D0"}}}}}},"definitions":{`, group)
	for i := range count {
		fmt.Fprintf(&b, `"D%d":{"type":"object","description":%q,"properties":{"next":{"$ref":"#/definitions/D%d"}}},`, i, description, (i+1)%count)
	}
	return strings.TrimSuffix(b.String(), ",") + "}}"
}

// conflicting returns a handler of the merged documents of two extension servers whose definitions have the same names.
func conflicting(t *testing.T, count int) http.Handler {
	t.Helper()
	w := newWorld(t, aggregation.Config{})
	all := w.OpenAPI(http.HandlerFunc(ownOpenAPI))
	for _, name := range []string{"a", "b"} {
		e, group := startExtension(t, name), name+".example.com"
		e.on("/apis/"+group+"/v1", reply{body: `{}`})
		e.on("/openapi/v2", reply{contentType: "application/json", body: chain(group, "of "+name, count)})
		to := w.toService(name, e.address())
		w.register("v1."+group, func(s *apiregistrationv1.APIServiceSpec) { to(s) })
	}
	await.Nil(t, "the documents of both", func() error {
		rw := httptest.NewRecorder()
		all.ServeHTTP(rw, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
		for _, path := range []string{"/apis/a.example.com/v1/t", "/apis/b.example.com/v1/t"} {
			if !strings.Contains(rw.Body.String(), path) {
				return fmt.Errorf("%s is missing", path)
			}
		}
		return nil
	})
	return w.OpenAPI(http.HandlerFunc(ownOpenAPI)) // it has merged nothing
}

// TestConflictingNames: each reference of a renamed definition leads to the definition of its own extension server, also if a
// name is the beginning of another one.
func TestConflictingNames(t *testing.T) {
	const count = 12
	rw := httptest.NewRecorder()
	conflicting(t, count).ServeHTTP(rw, httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
	var doc struct {
		Definitions map[string]struct {
			Description string
			Properties  struct {
				Next struct {
					Ref string `json:"$ref"`
				}
			}
		}
	}
	if err := json.Unmarshal(rw.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct{ suffix, description string }{{"", "of a"}, {"_v2", "of b"}} {
		for i := range count {
			d := doc.Definitions[fmt.Sprintf("D%d%s", i, of.suffix)]
			if want := fmt.Sprintf("#/definitions/D%d%s", (i+1)%count, of.suffix); d.Description != of.description || d.Properties.Next.Ref != want {
				t.Errorf("D%d%s is %q and refers to %s, want %s", i, of.suffix, d.Description, d.Properties.Next.Ref, want)
			}
		}
	}
}

// TestManyConflicts: the cost of a merge grows with the documents, and not with their square, if all definitions have to be
// renamed.
func TestManyConflicts(t *testing.T) {
	tier.Full(t)
	allocated := func(count int) float64 {
		least := 0.0
		for range 3 {
			all := conflicting(t, count)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			all.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/openapi/v2", nil))
			runtime.ReadMemStats(&after)
			if n := float64(after.TotalAlloc - before.TotalAlloc); least == 0 || n < least {
				least = n
			}
		}
		return least
	}
	small, large := allocated(200), allocated(1600)
	if large > 16*small {
		t.Errorf("%.0f bytes for 200 definitions, %.0f for eight times as many", small, large)
	}
}
