package apply

import (
	"encoding/json"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// objectMeta is the type of the metadata of every object among the embedded schemas.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// FromStructural is FromOpenAPI of the schema that a structural one is shown as, which it
// asks for only when the library's way has to be gone. It keeps nothing of the structural
// schema.
func FromStructural(kind schema.GroupVersionKind, s *structuralschema.Structural, shown func() (*spec.Schema, error), hasStatus bool) *Schema {
	r := structuralShaper{meta: embeddedTypes.shape(objectMeta)}
	d := deduced()
	r.deduced = newShape(d.Schema, d.TypeRef)
	untyped := "__untyped_atomic_"
	r.untyped = newShape(d.Schema, smd.TypeRef{NamedType: &untyped})
	root := r.of(s, false, true)
	return newCustom(kind, func() *shape { return root }, func() typed.ParseableType {
		o, err := shown()
		if err != nil {
			return d
		}
		t, err := parseOpenAPI(o)
		if err != nil {
			return d
		}
		return t
	}, hasStatus)
}

// structuralShaper makes the shapes of a structural schema: the same as a shaper does of
// the types that the library makes of the schema that it is shown as. Of a schema with
// hundreds of properties that takes a fiftieth of the time, and of the memory.
type structuralShaper struct {
	meta, deduced, untyped *shape
}

// of is the shape of a schema; with keep, what it does not know is kept. An object has
// the members that each one has.
func (r *structuralShaper) of(s *structuralschema.Structural, keep, object bool) *shape {
	keep = keep || s.XPreserveUnknownFields
	switch s.Type {
	case "":
		return &shape{scalar: smd.Untyped, list: r.list(s, keep), dict: r.dict(s, keep, object)}
	case "object":
		return &shape{dict: r.dict(s, keep, object)}
	case "array":
		return &shape{list: r.list(s, keep)}
	case "integer", "number":
		return scalarShape(smd.Numeric)
	case "boolean":
		return scalarShape(smd.Boolean)
	case "string":
		if v := s.ValueValidation; v == nil || v.Format == "" || v.Format == "byte" {
			return scalarShape(smd.String)
		}
	}
	return scalarShape(smd.Untyped)
}

func (r *structuralShaper) dict(s *structuralschema.Structural, keep, object bool) *dictShape {
	d := &dictShape{atomic: s.XMapType != nil && *s.XMapType == "atomic", fields: make(map[string]*shape, len(s.Properties))}
	for name, p := range s.Properties {
		d.fields[name] = r.of(&p, keep, p.XEmbeddedResource)
	}
	if object {
		d.fields["apiVersion"], d.fields["kind"], d.fields["metadata"] = scalarShape(smd.String), scalarShape(smd.String), r.meta
	}
	switch more := s.AdditionalProperties; {
	case more != nil && more.Structural != nil:
		d.others = r.of(more.Structural, keep, more.Structural.XEmbeddedResource)
	case more != nil && more.Bool, more == nil && (keep || len(d.fields) == 0):
		d.others = r.deduced
	}
	d.deduced = len(d.fields) == 0 && d.others != nil && d.others.scalar == smd.Untyped
	return d
}

func (r *structuralShaper) list(s *structuralschema.Structural, keep bool) *listShape {
	l := &listShape{atomic: s.XListType == nil || *s.XListType == "atomic", each: r.untyped}
	if s.Items == nil {
		return l
	}
	l.each = r.of(s.Items, keep, s.Items.XEmbeddedResource)
	if s.XListType == nil || *s.XListType != "map" {
		return l
	}
	for _, name := range s.XListMapKeys {
		k := keyName{name: name}
		if byDefault := s.Items.Properties[name].Default.Object; byDefault != nil {
			k.standsIn, _ = json.Marshal(byDefault) // a scalar of a document
		}
		l.keys = append(l.keys, k)
	}
	slices.SortFunc(l.keys, func(a, b keyName) int { return strings.Compare(a.name, b.name) })
	return l
}
