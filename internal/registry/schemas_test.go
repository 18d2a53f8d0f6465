package registry

import (
	"runtime"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// TestSchemasGo checks that a schema for managed fields is freed with its structural schema, even
// if the type stays.
func TestSchemasGo(t *testing.T) {
	r := &Registry{}
	var latest *structuralschema.Structural
	typ := &resource.Type{Names: resource.Names{Version: "v1", Kind: "Thing", Resource: "things"}, Custom: &resource.Custom{
		Structural: func() (*structuralschema.Structural, error) { return latest, nil },
		OpenAPI:    func(int) (*spec.Schema, error) { return latest.ToKubeOpenAPI(), nil },
	}}
	for range 50 {
		latest = &structuralschema.Structural{Generic: structuralschema.Generic{Type: "object"}}
		if _, err := r.schema(t.Context(), typ); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (n int) {
		r.schemas.Range(func(any, any) bool { n++; return true })
		return n
	}
	for range 1000 { // cleanups run concurrently with the collector
		if runtime.GC(); kept() == 1 {
			break
		}
		runtime.Gosched()
	}
	if n := kept(); n != 1 {
		t.Errorf("%d are kept, want that of the latest", n)
	}
	runtime.KeepAlive(latest)
}
