package registry

import (
	"context"
	"encoding/json"
	"fmt"
	goruntime "runtime"
	"weak"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// schema returns the schema of a type for managed fields, and builds it at the first use. The
// schema of a Go type stays in memory. The schema of a structural schema must not refer to it or to
// the type, so that all of them can be freed together.
func (r *Registry) schema(ctx context.Context, t *resource.Type) (*apply.Schema, error) {
	s, err := r.ownSchema(t)
	if err != nil {
		return nil, fmt.Errorf("the schema of %s: %w", t.GroupVersionKind(), err)
	}
	if t.Custom == nil {
		return s, nil
	}
	var others apply.Versions
	if len(t.Versions) > 1 {
		others = r.schemaVersions(ctx, t)
	}
	return s.With(others, func() (*spec.Schema, error) { return t.Custom.OpenAPI(3) }), nil
}

// SchemaOf returns the schema of a type. It is safe for concurrent use.
func (r *Registry) SchemaOf(ctx context.Context, t *resource.Type) (*apply.Schema, error) {
	return r.schema(ctx, t)
}

// Schema returns the schema of the objects of a form, for apply configurations. As in
// kube-apiserver, the bodies of subresources that belong to another group have none: Scale, Eviction,
// TokenRequest.
func (a *Attributes) Schema(ctx context.Context, f Form) (*apply.Schema, error) {
	t := a.typeOf(f)
	if x := a.Exchanged(); x != a.Type {
		t = x
	}
	if t == nil || f.Kind.GroupVersion() != f.Resource.GroupVersion() {
		return nil, fmt.Errorf("no corresponding type for %v", f.Kind)
	}
	return a.registry.schema(ctx, t)
}

// ownSchema is schema without the parts that depend on the type of a custom kind.
func (r *Registry) ownSchema(t *resource.Type) (*apply.Schema, error) {
	if t.Custom == nil {
		return r.cachedSchema(t, func() (*apply.Schema, error) {
			s, err := apply.Builtin(t.GroupVersionKind(), t.New())
			if err != nil || len(t.Versions) < 2 {
				return s, err
			}
			return s.With(r.schemaVersions(context.Background(), t), nil), nil // no webhook converts built-in kinds
		})
	}
	hasStatus := t.Subresource("status") != nil
	from, err := t.Custom.Structural()
	if err != nil {
		return nil, err
	}
	if from == nil { // there is no structural schema
		shown, err := t.Custom.OpenAPI(3)
		if err != nil {
			return nil, err
		}
		return apply.FromOpenAPI(t.GroupVersionKind(), shown, hasStatus)
	}
	key := weak.Make(from)
	return r.cachedSchema(key, func() (*apply.Schema, error) {
		goruntime.AddCleanup(from, func(key weak.Pointer[structuralschema.Structural]) { r.schemas.Delete(key) }, key)
		return apply.FromStructural(t.GroupVersionKind(), from, hasStatus), nil
	})
}

// cachedSchema returns the schema of a key, and builds it at the first use.
func (r *Registry) cachedSchema(key any, build func() (*apply.Schema, error)) (*apply.Schema, error) {
	if s, ok := r.schemas.Load(key); ok {
		return s.(*apply.Schema), nil
	}
	s, err := build()
	if err != nil {
		return nil, err
	}
	kept, _ := r.schemas.LoadOrStore(key, s)
	return kept.(*apply.Schema), nil
}

// schemaVersions returns the other versions of a type.
func (r *Registry) schemaVersions(ctx context.Context, t *resource.Type) apply.Versions {
	return apply.Versions{
		Schema: func(apiVersion string) *apply.Schema {
			other := t.At(apiVersion)
			if other == nil {
				return nil
			}
			s, err := r.schema(ctx, other)
			if err != nil {
				return nil
			}
			return s
		},
		Convert: func(object []byte, from, to string) ([]byte, error) {
			a, b := t.At(from), t.At(to)
			if a == nil || b == nil {
				return nil, fmt.Errorf("no version %s or %s is served any more", from, to)
			}
			return convert(ctx, a, b, object)
		},
	}
}

// convert converts an object, as JSON, to another version.
func convert(ctx context.Context, from, to *resource.Type, object []byte) ([]byte, error) {
	o, err := wire.Unmarshal(object, from.New)
	if err != nil {
		return nil, err
	}
	if o, err = convertObject(ctx, from, to, o); err != nil {
		return nil, err
	}
	o.GetObjectKind().SetGroupVersionKind(to.GroupVersionKind())
	return json.Marshal(o)
}
