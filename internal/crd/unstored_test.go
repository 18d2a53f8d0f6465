package crd_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestOwnersOfUnstoredParts checks that a write changes no managed field if a part of its body that it does not store
// does not fit the schema: the spec in a write of the status, and the status in a write of the object.
func TestOwnersOfUnstoredParts(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	value, at := stored("things.example.com")
	before, rest, _ := strings.Cut(string(value), `"schema":{`)
	_, rest, _ = strings.Cut(rest, `}}]},"status"`)
	part := tree{"type": "object", "properties": tree{"v": tree{"type": "string"}, "w": tree{"type": "string"}}}
	schema := text(t, tree{"type": "object", "properties": tree{"spec": part, "status": part}})
	value = []byte(before + `"openAPIV3Schema":` + schema + `},"subresources":{"status":{}}}]},"status"` + rest)
	value = []byte(strings.Replace(string(value), before, before+`"schema":{`, 1))
	for _, w := range []store.Write{
		{Collection: "namespaces", Key: "default", Value: []byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`)},
		{Collection: crd.Collection, Key: "things.example.com", Value: value, RevisionAt: at},
	} {
		if _, err := s.Commit(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	set := crd.NewSet(s, builtin.Catalog(), nil)
	t.Cleanup(set.Close)
	r := &registry.Registry{Store: s}
	target := registry.Target{Type: set.Catalog().Lookup("example.com", "v1", "things"), Namespace: "default"}
	if _, err := r.Create(t.Context(), target, registry.Body{Media: wire.JSON, Bytes: custom(t, "a")}, registry.WriteOptions{FieldManager: "first"}); err != nil {
		t.Fatal(err)
	}
	target.Name = "a"
	owners := func() string {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(s.Any().Get("things.example.com", "default/a").Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range o.ManagedFields {
			all = append(all, e.Manager)
		}
		return strings.Join(all, " ")
	}
	want := "first"
	for i, c := range []struct {
		subresource, patch string
		owns               bool
	}{
		{"status", `{"spec":{"v":1.5},"status":{"v":"a"}}`, false},
		{"status", `{"spec":{"v":{}},"status":{"v":"b"}}`, false},
		{"status", `{"spec":[],"status":{"v":"c"}}`, false},
		{"status", `{"spec":{"v":"other"},"status":{"v":"d"}}`, true},
		{"", `{"spec":{"w":"b"},"status":{"v":1}}`, false},
		{"", `{"spec":{"w":"c"},"status":{"v":"other"}}`, true},
	} {
		target.Subresource = c.subresource
		manager := fmt.Sprint("m", i)
		if _, err := r.Patch(t.Context(), target, registry.Patch{Type: types.MergePatchType, Bytes: []byte(c.patch)}, registry.WriteOptions{FieldManager: manager}); err != nil {
			t.Fatal(c.patch, err)
		}
		if c.owns {
			want += " " + manager
		}
		if got := owners(); got != want {
			t.Fatalf("%s: the managers are %q, want %q", c.patch, got, want)
		}
	}
}
