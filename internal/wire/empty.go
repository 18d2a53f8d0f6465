package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// A list or map without omitempty is null in JSON when it is not set. kube-apiserver stores
// protobuf, which does not distinguish an empty list from an unset one. So Tidemark drops
// the difference, and both servers respond alike. empties describes where a Go type has
// such members.
type empties struct {
	fields []emptyField // of a struct
	items  *empties     // of what a pointer, list or map holds
}

type emptyField struct {
	index int
	clear bool     // an empty list or map becomes nil
	below *empties // what is to do within; nil: nothing
}

// allEmpties holds the empties by struct type; nil: the type has none. See the package
// comment.
var allEmpties sync.Map

// HasEmpty reports whether an object has lists or maps that DropEmpty sets to nil. It
// takes a pointer to a struct, as DropEmpty does.
func HasEmpty(o any) bool { return emptiesIn(o).run(reflect.ValueOf(o).Elem(), false) }

// DropEmpty sets the empty lists and maps without omitempty in an object to nil.
func DropEmpty(o any) { emptiesIn(o).run(reflect.ValueOf(o).Elem(), true) }

func emptiesIn(o any) *empties {
	t := reflect.TypeOf(o).Elem()
	p, ok := allEmpties.Load(t)
	if !ok {
		p, _ = allEmpties.LoadOrStore(t, emptiesOf(t, nil))
	}
	return p.(*empties)
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
		}
	case reflect.Map: // its values cannot be changed in place
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

var marshaler = reflect.TypeFor[json.Marshaler]()

// emptiesOf returns the empties of a type, nil when it has none. Recursive types, such as
// the schemas of custom resources, are cut where they recur.
func emptiesOf(t reflect.Type, within []reflect.Type) *empties {
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if items := emptiesOf(t.Elem(), within); items != nil {
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
		f2 := emptyField{index: i, below: emptiesOf(f.Type, within)}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		list := f.Type.Kind() == reflect.Map || f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() != reflect.Uint8
		f2.clear = list && name != "" && name != "-" && !strings.Contains(options, "omitempty")
		if f2.clear || f2.below != nil {
			p.fields = append(p.fields, f2)
		}
	}
	if p.fields == nil {
		return nil
	}
	return &p
}
