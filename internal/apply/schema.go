package apply

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Schema is what managed fields need to know of one kind at one version. It is
// safe for concurrent use.
type Schema struct {
	versions Versions

	kind   schema.GroupVersionKind
	empty  []byte // JSON of the object that a create is compared with
	resets map[string]*filter
	// shape is for the straight way, typ for the library's: made when first asked for.
	shape func() *shape
	typ   func() (typed.ParseableType, error)
	// shown is where typ is kept of a structural schema, which With says how to make.
	shown *library
}

// With is the schema of a kind that has other versions, and of a structural schema that
// is shown as the function tells; nil where it is none.
func (s *Schema) With(others Versions, shown func() (*spec.Schema, error)) *Schema {
	with := *s
	with.versions = others
	if s.shown != nil && shown != nil {
		with.typ = func() (typed.ParseableType, error) { return s.shown.of(shown) }
	}
	return &with
}

// Versions are the other versions of one kind, in which managers may own fields. What is
// owned in a version that is not known is lost with the next write. The zero value: there
// are none.
type Versions struct {
	// Schema answers with the schema of the kind at apiVersion, or nil when it is not
	// served (any more).
	Schema func(apiVersion string) *Schema
	// Convert makes the JSON of an object of the kind into that of another version.
	Convert func(object []byte, from, to string) ([]byte, error)
}

// modelNamer is what the published types are: their name among the schemas.
type modelNamer interface{ OpenAPIModelName() string }

// Builtin makes the schema of a built-in kind. The empty object is a new one of the
// kind's Go type at the kind's version; it names the schema, and its JSON is what a
// create is compared with. A type that is not among the embedded schemas gets a
// deduced one. It costs next to nothing: what the kind reaches is parsed with its
// first write, in a millisecond or two, and kept.
func Builtin(kind schema.GroupVersionKind, empty runtime.Object) (*Schema, error) {
	empty = empty.DeepCopyObject()
	empty.GetObjectKind().SetGroupVersionKind(kind)
	zero, err := json.Marshal(empty)
	if err != nil {
		return nil, fmt.Errorf("an empty %s: %w", kind.Kind, err)
	}
	s := &Schema{kind: kind, empty: zero, resets: resetsOf(kind.GroupKind())}
	n, ok := reflect.Zero(reflect.TypeOf(empty).Elem()).Interface().(modelNamer)
	if !ok {
		d := deduced()
		s.typ = func() (typed.ParseableType, error) { return d, nil }
		s.shape = sync.OnceValue(func() *shape { return newShape(d.Schema, d.TypeRef) })
		return s, nil
	}
	name := n.OpenAPIModelName()
	s.shape = sync.OnceValue(func() *shape { return embeddedTypes.shape(name) })
	s.typ = sync.OnceValues(func() (typed.ParseableType, error) { return embeddedTypes.library(name), nil })
	return s, nil
}

// Custom makes the schema of a custom resource. The zero ParseableType means that
// nothing is known: types are deduced, lists are atomic. With a status subresource,
// the object itself never owns the status, and the status neither spec nor metadata.
func Custom(kind schema.GroupVersionKind, typ typed.ParseableType, hasStatus bool) *Schema {
	if typ.Schema == nil {
		typ = deduced()
	}
	return newCustom(kind, func() *shape { return newShape(typ.Schema, typ.TypeRef) }, func() (typed.ParseableType, error) { return typ, nil }, hasStatus)
}

func newCustom(kind schema.GroupVersionKind, shape func() *shape, typ func() (typed.ParseableType, error), hasStatus bool) *Schema {
	empty, err := json.Marshal(metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind})
	if err != nil {
		empty = []byte("{}") // cannot be: these are strings
	}
	s := &Schema{kind: kind, empty: empty, shape: sync.OnceValue(shape), typ: typ}
	if hasStatus {
		s.resets = customResets
	}
	return s
}

// Kind is the kind and version that the schema is of.
func (s *Schema) Kind() schema.GroupVersionKind { return s.kind }

// apiVersion is how objects and managed fields name the version.
func (s *Schema) apiVersion() string { return s.kind.GroupVersion().String() }

// deduced is the type of what has no schema. Each has a schema of its own, by whose
// address a typed value's version is known.
func deduced() typed.ParseableType {
	d := typed.DeducedParseableType
	d.Schema = &smd.Schema{Types: d.Schema.Types}
	return d
}
