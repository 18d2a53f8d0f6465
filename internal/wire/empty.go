package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// A list or map without omitempty is null in JSON when it is not set. kube-apiserver stores
// protobuf, which does not distinguish an empty list from an unset one. So Tidemark drops
// the difference, and both servers respond alike. In lists and maps of bytes it is the other way
// round: protobuf has empty bytes for null, as in the data of Secrets. empties describes where a Go
// type has such members.
type empties struct {
	fields []emptyField // of a struct
	items  *empties     // of the elements of a pointer, list or map
	bytes  bool         // a list or map of bytes
}

type emptyField struct {
	index int
	name  string
	clear bool     // an empty list or map counts
	below *empties // the empties within; nil: none
}

// allEmpties holds the empties by struct type; nil: the type has none. allWithin
// holds those of HasEmptyWithin. See the package comment.
var allEmpties, allWithin sync.Map

// HasEmpty reports whether an object has values that DropEmpty changes. It
// takes a pointer to a struct, as DropEmpty does.
func HasEmpty(o any) bool { return emptiesIn(o, false).run(reflect.ValueOf(o).Elem(), false) }

// HasEmptyWithin reports whether elements of lists have empty lists or maps that are set. Where
// they have omitempty, encoding/json omits them. It takes a pointer to a struct.
func HasEmptyWithin(o any) bool { return emptiesIn(o, true).run(reflect.ValueOf(o).Elem(), false) }

// MarshalSent is json.Marshal for an object as a client sent it. Empty lists and maps that are set are
// there, if keep returns true for the path of their parent. A path has the names of members, and an
// empty name for an element of a list.
func MarshalSent(o any, keep func(path []string) bool) ([]byte, error) {
	b, err := json.Marshal(o)
	if err != nil || !HasEmptyWithin(o) {
		return b, err
	}
	var tree map[string]any
	if err := utiljson.Unmarshal(b, &tree); err != nil {
		return nil, err
	}
	a := adder{keep: keep}
	a.add(emptiesIn(o, true), reflect.ValueOf(o).Elem(), tree)
	return json.Marshal(tree)
}

// DropEmpty sets the empty lists and maps without omitempty in an object to nil, and nulls in lists
// and maps of bytes to empty bytes.
func DropEmpty(o any) { emptiesIn(o, false).run(reflect.ValueOf(o).Elem(), true) }

func emptiesIn(o any, within bool) *empties {
	all := &allEmpties
	if within {
		all = &allWithin
	}
	t := reflect.TypeOf(o).Elem()
	p, ok := all.Load(t)
	if !ok {
		p, _ = all.LoadOrStore(t, emptiesOf(t, nil, scope{within: within}))
	}
	return p.(*empties)
}

// adder adds empty lists and maps to the form of an object as JSON.
type adder struct {
	keep func(path []string) bool
	path []string
}

func (a *adder) add(p *empties, v reflect.Value, to any) {
	if p == nil {
		return
	}
	depth := len(a.path)
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			a.add(p.items, v.Elem(), to)
		}
	case reflect.Slice:
		list, _ := to.([]any)
		a.path = append(a.path, "")
		for i := range min(v.Len(), len(list)) {
			a.add(p.items, v.Index(i), list[i])
		}
	case reflect.Map:
		members, _ := to.(map[string]any)
		for key, value := range v.Seq2() {
			a.path = append(a.path[:depth], key.String())
			a.add(p.items, value, members[key.String()])
		}
	case reflect.Struct:
		if members, ok := to.(map[string]any); ok {
			a.members(p, v, members)
		}
	}
	a.path = a.path[:depth]
}

func (a *adder) members(p *empties, v reflect.Value, to map[string]any) {
	depth := len(a.path)
	for _, f := range p.fields {
		switch member := v.Field(f.index); {
		case f.clear && !member.IsNil() && member.Len() == 0:
			if !a.keep(a.path) {
				continue
			}
			if to[f.name] = []any{}; member.Kind() == reflect.Map {
				to[f.name] = map[string]any{}
			}
		case f.name == "":
			a.add(f.below, member, to)
		default:
			a.path = append(a.path, f.name)
			a.add(f.below, member, to[f.name])
			a.path = a.path[:depth]
		}
	}
}

// run reports whether there are empty lists and maps, and sets them to nil where do is set.
func (p *empties) run(v reflect.Value, do bool) (found bool) {
	if p == nil {
		return false
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			found = p.items.run(v.Elem(), do)
		}
	case reflect.Slice:
		for i := range v.Len() {
			found = p.items.run(v.Index(i), do) || found
			if p.bytes && v.Index(i).IsNil() {
				if found = true; do {
					v.Index(i).SetBytes([]byte{})
				}
			}
		}
	case reflect.Map:
		if p.bytes {
			return emptyBytes(v, do)
		}
		// Its values cannot be changed in place.
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			if p.items.run(value, do) {
				found = true
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Struct:
		for _, f := range p.fields {
			member := v.Field(f.index)
			if f.clear && !member.IsNil() && member.Len() == 0 {
				found = true
				if do {
					member.SetZero()
				}
			}
			found = f.below.run(member, do) || found
		}
	}
	return found
}

// emptyBytes reports whether a map of bytes has nulls, and makes them empty where do is set.
func emptyBytes(v reflect.Value, do bool) (found bool) {
	for key, value := range v.Seq2() {
		if !value.IsNil() {
			continue
		}
		if found = true; do {
			v.SetMapIndex(key, reflect.MakeSlice(v.Type().Elem(), 0, 0))
		}
	}
	return found
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// scope is which empty lists and maps count: those without omitempty, or those within elements of lists.
type scope struct{ within, inList bool }

func (s scope) counts(options string) bool {
	if s.within {
		return s.inList
	}
	return !strings.Contains(options, "omitempty")
}

// emptiesOf returns the empties of a type, nil when it has none. Recursive types, such as
// the schemas of custom resources, are cut where they recur.
func emptiesOf(t reflect.Type, within []reflect.Type, s scope) *empties {
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if e := t.Elem(); t.Kind() != reflect.Pointer && e.Kind() == reflect.Slice && e.Elem().Kind() == reflect.Uint8 {
			return &empties{bytes: !s.within}
		}
		s.inList = s.inList || t.Kind() == reflect.Slice
		if items := emptiesOf(t.Elem(), within, s); items != nil {
			return &empties{items: items}
		}
		return nil
	case reflect.Struct:
	default:
		return nil
	}
	for _, w := range within {
		if w == t {
			return nil
		}
	}
	within = append(within, t)
	var p empties
	for i := range t.NumField() {
		f := t.Field(i)
		f2 := emptyField{index: i, below: emptiesOf(f.Type, within, s)}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		list := f.Type.Kind() == reflect.Map || f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8
		f2.name = name
		f2.clear = list && name != "" && name != "-" && s.counts(options)
		if f2.clear || f2.below != nil {
			p.fields = append(p.fields, f2)
		}
	}
	if p.fields == nil {
		return nil
	}
	return &p
}
