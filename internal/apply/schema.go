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

// Schema describes one kind at one version for managed fields. It is safe for concurrent
// use.
type Schema struct {
	versions Versions

	kind   schema.GroupVersionKind
	empty  []byte // JSON of the object that a create is compared with
	resets map[string]*filter
	custom bool
	// shape is for the fast path, typ for the library. Both are made lazily.
	shape func() *shape
	typ   func() (typed.ParseableType, error)
	// shown holds typ for a structural schema; With sets how it is made.
	shown *library
}

// With returns the schema of a kind with other versions. For a structural schema, shown
// returns the OpenAPI form; nil for other schemas.
func (s *Schema) With(others Versions, shown func() (*spec.Schema, error)) *Schema {
	with := *s
	with.versions = others
	if s.shown != nil && shown != nil {
		with.typ = func() (typed.ParseableType, error) { return s.shown.of(shown) }
	}
	return &with
}

// Versions are the other versions of a kind in which managers may own fields. Entries of an
// unknown version are lost with the next write, but an apply to a custom resource is refused
// while there are any. The zero value means that there are none.
type Versions struct {
	// Schema returns the schema of the kind at apiVersion, nil when that is not served.
	Schema func(apiVersion string) *Schema
	// Convert converts the JSON of an object to another version.
	Convert func(object []byte, from, to string) ([]byte, error)
}

// modelNamer is implemented by the published types: the name of their schema.
type modelNamer interface{ OpenAPIModelName() string }

// Builtin returns the schema of a built-in kind. empty is a new object of the kind's Go
// type at the kind's version. It names the schema, and creates are compared with its JSON.
// A type without an embedded schema gets a deduced one. Builtin is cheap: the schema is
// parsed at the first write, in a millisecond or two, and kept.
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

// Custom returns the schema of a custom resource. The zero ParseableType means that nothing
// is known: types are deduced, lists are atomic. With a status subresource, the object
// itself never owns the status, and the status neither spec nor metadata.
func Custom(kind schema.GroupVersionKind, typ typed.ParseableType, hasStatus bool) *Schema {
	if typ.Schema == nil {
		typ = deduced()
	}
	return newCustom(kind, func() *shape { return newShape(typ.Schema, typ.TypeRef) }, func() (typed.ParseableType, error) { return typ, nil }, hasStatus)
}

func newCustom(kind schema.GroupVersionKind, shape func() *shape, typ func() (typed.ParseableType, error), hasStatus bool) *Schema {
	empty, err := json.Marshal(metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind})
	if err != nil {
		empty = []byte("{}") // impossible: these are strings
	}
	s := &Schema{kind: kind, empty: empty, shape: sync.OnceValue(shape), typ: typ, custom: true}
	if hasStatus {
		s.resets = customResets
	}
	return s
}

// Kind returns the kind and version of the schema.
func (s *Schema) Kind() schema.GroupVersionKind { return s.kind }

// apiVersion returns the version as objects and managed fields name it.
func (s *Schema) apiVersion() string { return s.kind.GroupVersion().String() }

// deduced returns the type of an object without a schema. Each has a schema of its own,
// whose address identifies the version of a typed value.
func deduced() typed.ParseableType {
	d := typed.DeducedParseableType
	d.Schema = &smd.Schema{Types: d.Schema.Types}
	return d
}
