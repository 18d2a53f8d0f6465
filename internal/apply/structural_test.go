package apply_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestFromStructural checks that a structural schema and its published form lead to the same types.
func TestFromStructural(t *testing.T) {
	r := testrand.New(t)
	for compared := 0; compared < 500; {
		root := schemaOf(r, "object", 5)
		text, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		typ := servedAs(t, text)
		from, err := typ.Custom.Structural()
		if err != nil {
			t.Fatalf("%v of %s", err, text)
		}
		if from == nil {
			continue // not of that form
		}
		compared++
		shown, err := typ.Custom.OpenAPI(3)
		if err != nil {
			t.Fatal(err)
		}
		before := from.DeepCopy()
		got := apply.FromStructural(typ.GroupVersionKind(), from, false)
		want, err := apply.FromOpenAPI(typ.GroupVersionKind(), shown, false)
		if err != nil {
			t.Fatalf("%v of %s", err, text)
		}
		if !apply.SameShape(got, want) {
			t.Fatalf("the shape is another one: %s", text)
		}
		if _, err := typ.Custom.OpenAPI(2); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(from, before) {
			t.Fatalf("the structural schema was changed: %s", text)
		}
	}
}

// servedAs is the type of a definition with the schema.
func servedAs(t *testing.T, schema []byte) *resource.Type {
	t.Helper()
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const names = `{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"}`
	const head = `{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"things.example.com","resourceVersion":"`
	text := head + `","generation":1},"spec":{"group":"example.com","scope":"Cluster","names":` + names + `,"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + string(schema) + `}}]},` +
		`"status":{"acceptedNames":` + names + `,"conditions":[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]}}`
	if _, err := s.Commit(context.Background(), store.Write{Collection: crd.Collection, Key: "things.example.com", Value: []byte(text), RevisionAt: len(head)}); err != nil {
		t.Fatal(err)
	}
	typ := crd.NewSet(s, builtin.Catalog(), nil).Catalog().Lookup("example.com", "v1", "things")
	if typ == nil {
		t.Fatalf("nothing is served of %s", schema)
	}
	return typ
}

// schemaOf is a structural schema by chance; of a type, or of any.
func schemaOf(r *rand.Rand, kind string, depth int) map[string]any {
	if kind == "" {
		kinds := []string{"string", "string", "integer", "number", "boolean", "mixed", "anything", "object", "object", "array", "array"}
		if depth == 0 {
			kinds = kinds[:7]
		}
		kind = kinds[r.IntN(len(kinds))]
	}
	s := map[string]any{"type": kind}
	switch kind {
	case "mixed":
		return map[string]any{"x-kubernetes-int-or-string": true}
	case "anything":
		return map[string]any{"x-kubernetes-preserve-unknown-fields": true}
	case "string":
		if format := []string{"", "", "byte", "date-time", "int-or-string", "ipv4"}[r.IntN(6)]; format != "" {
			s["format"] = format
		}
	case "integer", "number":
		if r.IntN(3) == 0 {
			s["format"] = map[string]string{"integer": "int64", "number": "double"}[kind]
		}
	case "object":
		objectOf(r, s, depth)
	case "array":
		listOf(r, s, depth)
	}
	return s
}

func objectOf(r *rand.Rand, s map[string]any, depth int) {
	properties := map[string]any{}
	switch r.IntN(5) {
	case 0:
		s["additionalProperties"] = schemaOf(r, "", depth-1)
	case 1:
		s["additionalProperties"] = true
	case 2: // no members
	default:
		for i := range 1 + r.IntN(4) {
			properties[fmt.Sprint("member", i)] = schemaOf(r, "", depth-1)
		}
	}
	switch r.IntN(6) {
	case 0:
		s["x-kubernetes-preserve-unknown-fields"] = true
	case 1:
		s["x-kubernetes-map-type"] = []string{"atomic", "granular"}[r.IntN(2)]
	case 2:
		s["x-kubernetes-embedded-resource"], s["x-kubernetes-preserve-unknown-fields"] = true, true
	}
	if s["additionalProperties"] == nil {
		s["properties"] = properties
	}
}

func listOf(r *rand.Rand, s map[string]any, depth int) {
	switch r.IntN(5) {
	case 0:
		s["items"] = schemaOf(r, "", depth-1)
	case 1:
		s["items"], s["x-kubernetes-list-type"] = schemaOf(r, "", depth-1), "atomic"
	case 2:
		s["items"], s["x-kubernetes-list-type"] = map[string]any{"type": "string"}, "set"
	case 3:
		item := map[string]any{"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
			"properties": map[string]any{"kind": map[string]any{"type": "string", "default": "Pod"}, "other": map[string]any{"type": "string", "default": "a"}}}
		s["items"], s["x-kubernetes-list-type"], s["x-kubernetes-list-map-keys"] = item, "map", []string{"kind", "other"}[:1+r.IntN(2)]
	default:
		members := map[string]any{"name": map[string]any{"type": "string"}, "port": map[string]any{"type": "integer"}, "more": schemaOf(r, "", depth-1)}
		if r.IntN(2) == 0 {
			members["port"].(map[string]any)["default"] = 80
		}
		s["items"] = map[string]any{"type": "object", "properties": members}
		s["x-kubernetes-list-type"], s["x-kubernetes-list-map-keys"] = "map", []string{"port", "name"}[:1+r.IntN(2)]
	}
}
