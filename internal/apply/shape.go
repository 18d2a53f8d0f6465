package apply

import (
	"encoding/json"
	"slices"
	"strings"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// shape is a resolved type of the schema: the values that fit it. Nil fits no value.
type shape struct {
	scalar smd.Scalar // empty: no scalar
	list   *listShape
	dict   *dictShape
}

type listShape struct {
	atomic bool
	odd    bool      // neither atomic nor associative: the library complains
	keys   []keyName // sorted; none: a set
	each   *shape
}

// keyName is a key of a list, with the JSON that is its default.
type keyName struct {
	name     string
	standsIn []byte
	place    int // among the keys in the schema's order
}

type dictShape struct {
	atomic bool
	// deduced: the members are unknown, so any set fits it.
	deduced bool
	fields  map[string]*shape
	others  *shape
}

func (d *dictShape) of(key []byte) *shape {
	if s, ok := d.fields[string(key)]; ok {
		return s
	}
	return d.others
}

// shaper resolves the types of one schema.
type shaper struct {
	schema *smd.Schema
	named  map[string]*shape
}

func newShape(s *smd.Schema, root smd.TypeRef) *shape {
	return (&shaper{s, map[string]*shape{}}).ref(root)
}

func (r *shaper) ref(t smd.TypeRef) *shape {
	if t.NamedType == nil {
		if t.Inlined == (smd.Atom{}) {
			return nil
		}
		if a := t.Inlined; a.List == nil && a.Map == nil {
			return scalarShape(*a.Scalar)
		}
		return r.fill(&shape{}, t.Inlined)
	}
	name := *t.NamedType
	if t.ElementRelationship != nil {
		name += "!" + string(*t.ElementRelationship)
	}
	if s, ok := r.named[name]; ok {
		return s
	}
	atom, ok := r.schema.Resolve(t)
	if !ok || atom == (smd.Atom{}) {
		return nil
	}
	s := &shape{}
	r.named[name] = s
	return r.fill(s, atom)
}

// scalarShapes are the shapes of most fields.
var scalarShapes = []*shape{{scalar: smd.String}, {scalar: smd.Numeric}, {scalar: smd.Boolean}, {scalar: smd.Untyped}}

func scalarShape(is smd.Scalar) *shape {
	for _, s := range scalarShapes {
		if s.scalar == is {
			return s
		}
	}
	return &shape{scalar: is}
}

func (r *shaper) fill(s *shape, a smd.Atom) *shape {
	if a.Scalar != nil {
		s.scalar = *a.Scalar
	}
	if l := a.List; l != nil {
		s.list = &listShape{
			atomic: l.ElementRelationship == smd.Atomic,
			odd:    l.ElementRelationship != smd.Atomic && l.ElementRelationship != smd.Associative,
		}
		s.list.each = r.ref(l.ElementType)
		s.list.keys = r.keys(l)
	}
	if m := a.Map; m != nil {
		s.dict = &dictShape{
			atomic:  m.ElementRelationship == smd.Atomic,
			deduced: m.Fields == nil && deducedRef(m.ElementType),
			fields:  make(map[string]*shape, len(m.Fields)),
		}
		for _, f := range m.Fields {
			s.dict.fields[f.Name] = r.ref(f.Type)
		}
		s.dict.others = r.ref(m.ElementType)
	}
	return s
}

// Names that the library gives to types without a schema.
const (
	untypedName = "__untyped_atomic_"
	deducedName = "__untyped_deduced_"
)

func deducedRef(t smd.TypeRef) bool {
	if t.NamedType != nil {
		return *t.NamedType == deducedName
	}
	return t.Inlined.Scalar != nil && *t.Inlined.Scalar == smd.Untyped
}

// keys returns the keys of a list's elements, with their defaults.
func (r *shaper) keys(l *smd.List) []keyName {
	var keys []keyName
	each, _ := r.schema.Resolve(l.ElementType)
	for _, name := range l.Keys {
		k := keyName{name: name, place: len(keys)}
		if each.Map != nil {
			if f, ok := each.Map.FindField(name); ok && f.Default != nil {
				k.standsIn, _ = json.Marshal(f.Default) // a scalar of a document
			}
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b keyName) int { return strings.Compare(a.name, b.name) })
	return keys
}

// ComparesWhole reports whether the value at a path is in a list that is compared as a whole. A path
// has the names of members, and an empty name for an element of a list.
func (s *Schema) ComparesWhole(path []string) bool {
	at, atomic := s.shape(), false
	for _, name := range path {
		switch {
		case at == nil:
			return false
		case name == "" && at.list != nil:
			if atomic || at.list.atomic {
				return true
			}
			at = at.list.each
		case at.dict != nil:
			atomic = atomic || at.dict.atomic
			at = at.dict.of([]byte(name))
		default:
			return false
		}
	}
	return false
}
