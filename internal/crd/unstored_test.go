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
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestOwnersOfUnstoredParts checks that a write changes no managed field if a part of its body that it does not store
// does not fit the schema: the spec in a write of the status, and the status in a write of the object.
func TestOwnersOfUnstoredParts(t *testing.T) {
	part := tree{"type": "object", "properties": tree{"v": tree{"type": "string"}, "w": tree{"type": "string"}}}
	r, target := withStatus(t, tree{"type": "object", "properties": tree{"spec": part, "status": part}})
	owners := func() string {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Store.Any().Get("things.example.com", "default/a").Bytes(), &o); err != nil {
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

// TestNullStatus checks the apply of null to the status. As in kube-apiserver, an object without a status accepts it, and
// stores it if the schema allows it. A status that only the applying manager owns would become null, which is an error.
func TestNullStatus(t *testing.T) {
	properties := tree{"v": tree{"type": "string"}}
	part, nullable := tree{"type": "object", "properties": properties}, tree{"type": "object", "properties": properties, "nullable": true}
	const null, wrong = `"status":null`, "must be of type object"
	for name, c := range map[string]struct {
		status  tree
		applies []string
		stored  bool   // null
		err     string // of the last apply
	}{
		"of an object without a status": {status: part, applies: []string{null}},
		"that the schema allows":        {status: nullable, applies: []string{null}, stored: true},
		"over an own status":            {status: part, applies: []string{`"status":{"v":"a"}`, null}, err: wrong},
	} {
		r, target := withStatus(t, tree{"type": "object", "properties": tree{"spec": part, "status": c.status}})
		target.Subresource = "status"
		apply := func(status string) (registry.Object, error) {
			return r.Patch(t.Context(), target, registry.Patch{
				Type:  types.ApplyPatchType,
				Bytes: []byte(`{"apiVersion":"example.com/v1","kind":"K","metadata":{"name":"a"},` + status + `}`),
			}, registry.WriteOptions{FieldManager: "m"})
		}
		var made registry.Object
		var err error
		for _, status := range c.applies {
			made, err = apply(status)
		}
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("null %s: %v, want %s", name, err, c.err)
			}
			continue
		case err != nil:
			t.Errorf("null %s: %v", name, err)
			continue
		}
		stored := string(made.Stored.Bytes())
		if !strings.Contains(stored, `"f:status":{}`) || strings.Contains(stored, null) != c.stored {
			t.Errorf("null %s: stored %s", name, stored)
		}
		if again, err := apply(null); err != nil || again.Stored.Modified != made.Stored.Modified {
			t.Errorf("null %s, again: %v, or another version", name, err)
		}
	}
}

// withStatus returns a registry with a custom kind that has a status, and the target of an object of it.
func withStatus(t *testing.T, schema tree) (*registry.Registry, registry.Target) {
	t.Helper()
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	value, at := stored("things.example.com")
	before, rest, _ := strings.Cut(string(value), `"schema":{`)
	_, rest, _ = strings.Cut(rest, `}}]},"status"`)
	value = []byte(before + `"schema":{"openAPIV3Schema":` + text(t, schema) + `},"subresources":{"status":{}}}]},"status"` + rest)
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
	return r, target
}
