package apply

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// embeddedTypes are the types of the embedded schemas that were used. See the package
// comment.
var embeddedTypes types

// types are named types for both implementations. Kinds share them.
type types struct {
	mu     sync.Mutex
	shapes map[string]*shape
	smd    map[string]smd.TypeDef // for the library's way, which many kinds never go
}

// Embedded returns the schema of a built-in kind by its name. It is nil if there is no embedded schema. It is for
// comparisons alone: use Builtin for managed fields.
func Embedded(kind schema.GroupVersionKind) *Schema {
	group, _, _ := strings.Cut(kind.Group, ".")
	place := "io.k8s.api." + group
	switch kind.Group {
	case "":
		place = "io.k8s.api.core"
	case "apiextensions.k8s.io":
		place = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions"
	case "apiregistration.k8s.io":
		place = "io.k8s.kube-aggregator.pkg.apis.apiregistration"
	}
	name := place + "." + kind.Version + "." + kind.Kind
	if strings.Contains(kind.Group, ".") && !strings.HasSuffix(kind.Group, ".k8s.io") || !parse(name, map[string]smd.TypeDef{}) {
		return nil
	}
	return newCustom(kind, func() *shape { return embeddedTypes.shape(name) }, func() (typed.ParseableType, error) { return embeddedTypes.library(name), nil }, false)
}

// shape returns the type with a name, or a deduced one.
func (t *types) shape(name string) *shape {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.shapes[name]; ok {
		return s
	}
	if t.shapes == nil {
		t.shapes = map[string]*shape{}
	}
	found := map[string]smd.TypeDef{}
	if !parse(name, found) {
		d := deduced()
		return newShape(d.Schema, d.TypeRef)
	}
	r := reacher{types: found, seen: map[string]bool{}}
	r.named(name)
	return (&shaper{&smd.Schema{Types: r.list}, t.shapes}).ref(smd.TypeRef{NamedType: &name})
}

// library returns the type for the library, in a schema with the types that it reaches.
func (t *types) library(name string) typed.ParseableType {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.smd == nil {
		t.smd = map[string]smd.TypeDef{}
	}
	if !parse(name, t.smd) {
		return deduced()
	}
	r := reacher{types: t.smd, seen: map[string]bool{}}
	r.named(name)
	return typed.ParseableType{Schema: &smd.Schema{Types: r.list}, TypeRef: smd.TypeRef{NamedType: &name}}
}

// add adds the type with a name, and all that it reaches, to another schema.
func (t *types) add(name string, to map[string]smd.TypeDef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.smd == nil {
		t.smd = map[string]smd.TypeDef{}
	}
	if parse(name, t.smd) {
		t.copy(name, to)
	}
}

// copy is add for a type that is parsed. The caller holds the lock.
func (t *types) copy(name string, to map[string]smd.TypeDef) {
	if _, ok := to[name]; ok {
		return
	}
	to[name] = t.smd[name]
	eachNamed(to[name].Atom, func(name string) { t.copy(name, to) })
}

// parse parses a type and all that it reaches; ok is false when there is no such type.
func parse(name string, into map[string]smd.TypeDef) (ok bool) {
	if _, ok := into[name]; ok {
		return true
	}
	text, err := embeddedText()
	if err == nil {
		lines := index(text)
		if _, ok := lines[name]; !ok {
			return false
		}
		err = build(name, lines, into)
	}
	if err != nil {
		panic("apply: " + err.Error()) // it is part of the program: a test parses all of it
	}
	return true
}

// build parses a line and the lines that it refers to.
func build(name string, lines map[string]string, into map[string]smd.TypeDef) error {
	if _, ok := into[name]; ok {
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
	into[name] = smd.TypeDef{Name: name, Atom: atom}
	for _, to := range p.refs {
		if err := build(to, lines, into); err != nil {
			return err
		}
	}
	return nil
}

// reacher collects the types that a type reaches.
type reacher struct {
	types map[string]smd.TypeDef
	seen  map[string]bool
	list  []smd.TypeDef
}

func (r *reacher) named(name string) {
	if r.seen[name] {
		return
	}
	r.seen[name] = true
	t := r.types[name]
	r.list = append(r.list, t)
	eachNamed(t.Atom, r.named)
}

// eachNamed calls f with the name of each type that an atom refers to.
func eachNamed(a smd.Atom, f func(name string)) {
	ref := func(t smd.TypeRef) {
		if t.NamedType != nil {
			f(*t.NamedType)
			return
		}
		eachNamed(t.Inlined, f)
	}
	if a.List != nil {
		ref(a.List.ElementType)
	}
	if a.Map != nil {
		ref(a.Map.ElementType)
		for _, field := range a.Map.Fields {
			ref(field.Type)
		}
	}
}
