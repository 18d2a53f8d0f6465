package crd

import (
	"fmt"
	"math"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A short object can have many empty items, and the schema a large default for each: together they take
// gigabytes. So the library's Default is not used. The defaults of a schema are collected once, each with
// its size after the defaults within it are set. So the growth of an object is known before anything is
// set. The work depends on the object and its growth, not on the number of properties in the schema.

// maxDefaults is the maximum number of bytes that defaults may add to an object: the size of the largest body.
const maxDefaults = 3 << 20

// defaults are the defaults in a schema. Nil: there are none.
type defaults struct {
	value    any // the default of this schema, as the definition has it; nil: none
	bytes    int // the approximate size of value with the defaults within it
	nullable bool

	missing    []missing // the properties with a default
	properties map[string]structuralschema.Structural
	members    map[string]*defaults // of the properties that have or contain defaults
	others     *defaults            // of members that are no properties
	items      *defaults
}

// missing is a property that is set if an object lacks it.
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

// visit sets the defaults in a value. If set is false, it only subtracts their size from left. It returns false when nothing
// is left.
func (d *defaults) visit(v any, left *int, set bool) bool {
	if d == nil {
		return true
	}
	switch v := v.(type) {
	case map[string]any:
		return d.visitMissing(v, left, set) && d.visitMembers(v, left, set)
	case []any:
		if d.items == nil {
			return true
		}
		for i, item := range v {
			made, ok := d.items.visitPart(item, left, set)
			if !ok {
				return false
			}
			if set && item == nil {
				v[i] = made
			}
		}
	}
	return true
}

// visitMissing is visit for the properties that an object lacks, without the defaults within them.
func (d *defaults) visitMissing(v map[string]any, left *int, set bool) bool {
	for _, m := range d.missing {
		if was, found := v[m.name]; found && (was != nil || m.of.nullable) {
			continue
		}
		if set {
			v[m.name] = runtime.DeepCopyJSONValue(m.of.value)
		} else if *left -= len(m.name) + m.of.bytes; *left < 0 {
			return false
		}
	}
	return true
}

// visitMembers is visit for the members that an object has.
func (d *defaults) visitMembers(v map[string]any, left *int, set bool) bool {
	if d.members == nil && d.others == nil {
		return true
	}
	for name, member := range v {
		if of, ok := d.members[name]; ok { // visitMissing replaces null
			if !of.visit(member, left, set) {
				return false
			}
			continue
		}
		if _, isProperty := d.properties[name]; isProperty {
			continue
		}
		made, ok := d.others.visitPart(member, left, set)
		if !ok {
			return false
		}
		if set && member == nil {
			v[name] = made
		}
	}
	return true
}

// visitPart is visit for an item, or for a member that is no property. It returns the value in the place of null, too.
func (d *defaults) visitPart(v any, left *int, set bool) (made any, ok bool) {
	if v == nil && d.replacesNull() {
		if !set {
			*left -= d.bytes
			return nil, *left >= 0
		}
		v = runtime.DeepCopyJSONValue(d.value)
	}
	return v, d.visit(v, left, set)
}

// replacesNull reports whether the default replaces null.
func (d *defaults) replacesNull() bool { return d != nil && !d.nullable && d.value != nil }

// errOvergrown returns the error for an object whose defaults are too large.
func errOvergrown() *field.Error {
	return field.Invalid(nil, nil, fmt.Sprintf("the defaults of the definition add more than %d bytes to the object", maxDefaults))
}
