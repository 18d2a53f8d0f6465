package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// A list or map that a kind always shows is null when nobody set it. kube-apiserver
// stores protobuf, which does not tell an empty one from that: neither do we, so that
// both answer alike. A plan says where a Go type has such members.
type plan struct {
	fields []plannedField // of a struct
	items  *plan          // of what a pointer, list or map holds
}

type plannedField struct {
	index int
	clear bool  // an empty list or map becomes nil
	below *plan // what is to do within; nil: nothing
}

// plans holds the plan of each struct type that was looked at; nil: there is nothing to do.
var plans sync.Map

// HasEmpty tells whether an object has lists or maps that DropEmpty sets to nil. It
// takes a pointer to a struct, as DropEmpty does.
func HasEmpty(o any) bool { return planFor(o).run(reflect.ValueOf(o).Elem(), false) }

// DropEmpty sets the empty lists and maps of an object to nil, where that shows.
func DropEmpty(o any) { planFor(o).run(reflect.ValueOf(o).Elem(), true) }

func planFor(o any) *plan {
	t := reflect.TypeOf(o).Elem()
	p, ok := plans.Load(t)
	if !ok {
		p, _ = plans.LoadOrStore(t, planOf(t, nil))
	}
	return p.(*plan)
}

// run tells whether there is something to do, and does it.
func (p *plan) run(v reflect.Value, do bool) (found bool) {
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

// planOf makes the plan of a type, nil when nothing is to do. Types that hold
// themselves, the schemas of custom resources, are left out where they begin again.
func planOf(t reflect.Type, within []reflect.Type) *plan {
	if t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if items := planOf(t.Elem(), within); items != nil {
			return &plan{items: items}
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
	var p plan
	for i := range t.NumField() {
		f := t.Field(i)
		f2 := plannedField{index: i, below: planOf(f.Type, within)}
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
