package apply

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Schema is what managed fields need to know of one kind at one version. It is
// safe for concurrent use. Its exported fields must be set before that.
type Schema struct {
	// Versions tells of the other versions of the kind, in which managers may own
	// fields. What is owned in a version that is not known is lost with the next write.
	Versions Versions

	kind   schema.GroupVersionKind
	empty  []byte // JSON of the object that a create is compared with
	resets map[string]*filter
	typ    typed.ParseableType
	shape  func() *shape // made when first asked for
}

// Versions are the other versions of one kind. The zero value: there are none.
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
// deduced one. It costs a few milliseconds at most, and memory: keep the result.
func Builtin(kind schema.GroupVersionKind, empty runtime.Object) (*Schema, error) {
	empty = empty.DeepCopyObject()
	empty.GetObjectKind().SetGroupVersionKind(kind)
	zero, err := json.Marshal(empty)
	if err != nil {
		return nil, fmt.Errorf("an empty %s: %w", kind.Kind, err)
	}
	typ := deduced()
	if n, ok := reflect.Zero(reflect.TypeOf(empty).Elem()).Interface().(modelNamer); ok {
		if typ, err = embeddedType(n.OpenAPIModelName()); err != nil {
			return nil, err
		}
	}
	s := newSchema(kind, typ, zero)
	s.resets = resetsOf(kind.GroupKind())
	return s, nil
}

func newSchema(kind schema.GroupVersionKind, typ typed.ParseableType, empty []byte) *Schema {
	return &Schema{kind: kind, empty: empty, typ: typ, shape: sync.OnceValue(func() *shape {
		return newShape(typ.Schema, typ.TypeRef)
	})}
}

// Custom makes the schema of a custom resource. The zero ParseableType means that
// nothing is known: types are deduced, lists are atomic. With a status subresource,
// the object itself never owns the status, and the status neither spec nor metadata.
func Custom(kind schema.GroupVersionKind, typ typed.ParseableType, hasStatus bool) *Schema {
	if typ.Schema == nil {
		typ = deduced()
	}
	empty, err := json.Marshal(metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind})
	if err != nil {
		empty = []byte("{}") // cannot be: these are strings
	}
	s := newSchema(kind, typ, empty)
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

// built are the types that kinds asked for so far. Kinds share them.
var built = struct {
	sync.Mutex
	types map[string]smd.TypeDef
}{types: map[string]smd.TypeDef{}}

// embeddedType puts together the schema of one named type, with no more than what
// it reaches.
func embeddedType(name string) (typed.ParseableType, error) {
	built.Lock()
	defer built.Unlock()
	if _, ok := built.types[name]; !ok {
		text, err := embeddedText()
		if err != nil {
			return typed.ParseableType{}, err
		}
		lines := index(text)
		if _, ok := lines[name]; !ok {
			return deduced(), nil
		}
		if err := build(name, lines); err != nil {
			return typed.ParseableType{}, err
		}
	}
	r := reacher{seen: map[string]bool{}}
	r.named(name)
	return typed.ParseableType{Schema: &smd.Schema{Types: r.types}, TypeRef: smd.TypeRef{NamedType: &name}}, nil
}

// build parses a type and what it reaches into built.types.
func build(name string, lines map[string]string) error {
	if _, ok := built.types[name]; ok {
		return nil
	}
	line, ok := lines[name]
	if !ok {
		return fmt.Errorf("the embedded schemas have no %s", name)
	}
	p := &parser{rest: line}
	atom := p.atom()
	if p.err != nil || p.rest != "" {
		return fmt.Errorf("the embedded schema of %s is damaged before %q: %w", name, p.rest, p.err)
	}
	built.types[name] = smd.TypeDef{Name: name, Atom: atom}
	for _, to := range p.refs {
		if err := build(to, lines); err != nil {
			return err
		}
	}
	return nil
}

// reacher collects the types that one reaches.
type reacher struct {
	seen  map[string]bool
	types []smd.TypeDef
}

func (r *reacher) named(name string) {
	if r.seen[name] {
		return
	}
	r.seen[name] = true
	t := built.types[name]
	r.types = append(r.types, t)
	r.atom(t.Atom)
}

func (r *reacher) atom(a smd.Atom) {
	if a.List != nil {
		r.ref(a.List.ElementType)
	}
	if a.Map != nil {
		r.ref(a.Map.ElementType)
		for _, f := range a.Map.Fields {
			r.ref(f.Type)
		}
	}
}

func (r *reacher) ref(t smd.TypeRef) {
	if t.NamedType != nil {
		r.named(*t.NamedType)
		return
	}
	r.atom(t.Inlined)
}
