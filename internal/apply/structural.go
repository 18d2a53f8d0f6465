package apply

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// objectMeta is the type of the metadata of every object among the embedded schemas.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// FromStructural is FromOpenAPI for a structural schema, whose OpenAPI form With provides.
// The result holds no reference to the structural schema.
func FromStructural(kind schema.GroupVersionKind, s *structuralschema.Structural, hasStatus bool) *Schema {
	d, untyped := deduced(), untypedName
	r := structuralShaper{
		meta:    embeddedTypes.shape(objectMeta),
		deduced: newShape(d.Schema, d.TypeRef),
		untyped: newShape(d.Schema, smd.TypeRef{NamedType: &untyped}),
	}
	object := *s
	object.XEmbeddedResource = true // the root is an object, too
	root := r.of(object, false)
	made := newCustom(kind, func() *shape { return root }, func() (typed.ParseableType, error) {
		return typed.ParseableType{}, errors.New("the structural schema has no OpenAPI form")
	}, hasStatus)
	made.shown = new(library)
	return made
}

// library holds the library's form of a structural schema, which few writes need.
type library struct {
	mu  sync.Mutex
	typ typed.ParseableType // of the zero value nothing is made yet
}

func (l *library) of(shown func() (*spec.Schema, error)) (typed.ParseableType, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.typ.Schema != nil {
		return l.typ, nil
	}
	s, err := shown()
	if err != nil {
		return l.typ, err
	}
	typ, err := parseOpenAPI(s)
	if err == nil {
		l.typ = typ
	}
	return typ, err
}

// structuralShaper makes the shapes of a structural schema. They are the same as those that
// a shaper makes of the library's types for the schema's OpenAPI form, but need no copies
// of each property.
type structuralShaper struct {
	meta, deduced, untyped *shape
}

// of returns the shape of a schema; with keep, unknown fields are kept.
func (r *structuralShaper) of(s structuralschema.Structural, keep bool) *shape {
	keep = keep || s.XPreserveUnknownFields
	switch s.Type {
	case "":
		return &shape{scalar: smd.Untyped, list: r.list(s, keep), dict: r.dict(s, keep)}
	case "object":
		return &shape{dict: r.dict(s, keep)}
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

func (r *structuralShaper) dict(s structuralschema.Structural, keep bool) *dictShape {
	d := &dictShape{atomic: s.XMapType != nil && *s.XMapType == "atomic", fields: make(map[string]*shape, len(s.Properties))}
	for name, p := range s.Properties {
		d.fields[name] = r.of(p, keep)
	}
	if s.XEmbeddedResource {
		d.fields["apiVersion"], d.fields["kind"], d.fields["metadata"] = scalarShape(smd.String), scalarShape(smd.String), r.meta
	}
	switch more := s.AdditionalProperties; {
	case more != nil && more.Structural != nil:
		d.others = r.of(*more.Structural, keep)
	case more != nil && more.Bool, more == nil && (keep || len(d.fields) == 0):
		d.others = r.deduced
	}
	// As in a shaper, which does not distinguish arbitrary from deduced types.
	d.deduced = len(d.fields) == 0 && d.others != nil && d.others.scalar == smd.Untyped
	return d
}

func (r *structuralShaper) list(s structuralschema.Structural, keep bool) *listShape {
	l := &listShape{atomic: s.XListType == nil || *s.XListType == "atomic", each: r.untyped}
	if s.Items == nil {
		return l
	}
	l.each = r.of(*s.Items, keep)
	if s.XListType == nil || *s.XListType != "map" {
		return l
	}
	for _, name := range s.XListMapKeys {
		k := keyName{name: name, place: len(l.keys)}
		if byDefault := s.Items.Properties[name].Default.Object; byDefault != nil && !(s.Items.XEmbeddedResource && ofEveryObject(name)) {
			k.standsIn, _ = json.Marshal(byDefault) // a scalar of a document
		}
		l.keys = append(l.keys, k)
	}
	slices.SortFunc(l.keys, func(a, b keyName) int { return strings.Compare(a.name, b.name) })
	return l
}

// ofEveryObject reports whether each object has the member, whatever its schema says.
func ofEveryObject(name string) bool {
	return name == "apiVersion" || name == "kind" || name == "metadata"
}
