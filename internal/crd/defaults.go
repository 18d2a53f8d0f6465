package crd

import (
	"fmt"
	"math"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A short object can have many empty items, and the schema a default of many members for each: together
// they take gigabytes. So the library's Default is not used. The defaults of a schema are collected once,
// each with its size after the defaults within it are set. So the growth of an object is known before
// anything is set, and the work follows the object and its growth, not the number of properties in the
// schema.

// maxDefaults is the number of bytes that defaults may add to an object: the size of the largest body.
const maxDefaults = 3 << 20

// defaults are the defaults in a schema. Nil: there are none.
type defaults struct {
	value    any // of this schema, as the definition has it; nil: none
	bytes    int // about the size of value with the defaults within it
	nullable bool

	missing    []missing // members with a default
	properties map[string]structuralschema.Structural
	members    map[string]*defaults
	others     *defaults // of members that are no properties
	items      *defaults
}

// missing is a member that is set if it is missing.
type missing struct {
	name string
	of   *defaults
}

// defaultsOf collects the defaults of a schema.
func defaultsOf(s *structuralschema.Structural) *defaults {
	if s == nil {
		return nil
	}
	d := &defaults{nullable: s.Nullable, properties: s.Properties, items: defaultsOf(s.Items)}
	for name, p := range s.Properties {
		of := defaultsOf(&p)
		if of == nil {
			continue
		}
		if d.members == nil {
			d.members = map[string]*defaults{}
		}
		d.members[name] = of
		if of.value != nil {
			d.missing = append(d.missing, missing{name, of})
		}
	}
	if s.AdditionalProperties != nil {
		d.others = defaultsOf(s.AdditionalProperties.Structural)
	}
	if s.Default.Object == nil && d.members == nil && d.others == nil && d.items == nil {
		return nil
	}
	if d.value = s.Default.Object; d.value != nil {
		left := maxDefaults
		if d.visit(d.value, &left, false) {
			_, d.bytes = size(d.value)
			d.bytes += maxDefaults - left
		} else {
			d.bytes = math.MaxInt32 // which no object has room for
		}
	}
	return d
}

// fill sets the defaults in a value. If they are larger than maxDefaults, it sets none and returns false.
func (d *defaults) fill(v any) bool {
	if d == nil {
		return true
	}
	left := maxDefaults
	if !d.visit(v, &left, false) {
		return false
	}
	d.visit(v, &left, true)
	return true
}

// visit sets the defaults in a value, or only subtracts their size. It returns false when nothing is left.
func (d *defaults) visit(v any, left *int, set bool) bool {
	if d == nil {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		for _, m := range d.missing {
			if was, found := v[m.name]; found && (was != nil || m.of.nullable) {
				continue
			}
			if set {
				v[m.name] = runtime.DeepCopyJSONValue(m.of.value) // visited below
			} else if *left -= len(m.name) + m.of.bytes; *left < 0 {
				return false
			}
		}
		if d.members == nil && d.others == nil {
			return true
		}
		for name, member := range v {
			of, known := d.members[name]
			if !known {
				if _, isProperty := d.properties[name]; isProperty {
					continue
				}
				of = d.others
			}
			if member == nil && of.replacesNull() && !known {
				if !set {
					if *left -= of.bytes; *left < 0 {
						return false
					}
					continue
				}
				member = runtime.DeepCopyJSONValue(of.value)
				v[name] = member
			}
			if !of.visit(member, left, set) {
				return false
			}
		}
	case []any:
		if d.items == nil {
			return true
		}
		for i, item := range v {
			if item == nil && d.items.replacesNull() {
				if !set {
					if *left -= d.items.bytes; *left < 0 {
						return false
					}
					continue
				}
				item = runtime.DeepCopyJSONValue(d.items.value)
				v[i] = item
			}
			if !d.items.visit(item, left, set) {
				return false
			}
		}
	}
	return true
}

// replacesNull reports whether a null is replaced by the default.
func (d *defaults) replacesNull() bool { return d != nil && !d.nullable && d.value != nil }

// errOvergrown is the error of an object whose defaults are too large.
func errOvergrown() *field.Error {
	return field.Invalid(nil, nil, fmt.Sprintf("the defaults of the definition add more than %d bytes to the object", maxDefaults))
}
