package crd

import (
	"math"
	"reflect"
	"slices"
	"unicode/utf8"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// fits reports whether a value is sure to be valid, as most values are. It visits the members
// of the value, where the library visits those of the schema. If fits cannot decide, it
// returns false, and the library validates the value and finds the errors. The schema is
// passed by value, because taking the address of a map's value would allocate a copy.
func (c *compiled) fits(s structuralschema.Structural, v any) bool {
	return (&fitting{c, patternWork{uncounted: maxUncounted}}).fits(s, v)
}

// fitting is the state of one call of compiled.fits.
type fitting struct {
	*compiled
	work patternWork
}

func (c *fitting) fits(s structuralschema.Structural, v any) bool {
	limits := s.ValueValidation
	if s.XIntOrString {
		return fitsMixed(limits, v)
	}
	if limits != nil && (len(limits.AllOf) > 0 || len(limits.OneOf) > 0 || len(limits.AnyOf) > 0 || limits.Not != nil || limits.MultipleOf != nil || limits.UniqueItems) {
		return false
	}
	if s.Type == "" { // anything is valid
		return s.XPreserveUnknownFields && limits == nil && len(s.Properties) == 0 && s.Items == nil && v != nil
	}
	if limits == nil {
		limits = &structuralschema.ValueValidation{}
	}
	switch v := v.(type) {
	case map[string]any:
		return s.Type == "object" && c.fitsObject(s, limits, v)
	case []any:
		return s.Type == "array" && c.fitsList(s, limits, v)
	case string:
		return s.Type == "string" && c.fitsText(limits, v)
	case int64:
		return (s.Type == "integer" || s.Type == "number") && fitsNumber(s.Type, limits, float64(v), true)
	case float64:
		return s.Type == "number" && fitsNumber(s.Type, limits, v, false)
	case bool:
		return s.Type == "boolean" && len(limits.Enum) == 0 && limits.Format == ""
	}
	return false
}

// mixed is the validation that an int-or-string may have in addition.
var mixed = structuralschema.ValueValidation{AnyOf: []structuralschema.NestedValueValidation{
	{ForbiddenGenerics: structuralschema.Generic{Type: "integer"}},
	{ForbiddenGenerics: structuralschema.Generic{Type: "string"}},
}}

func fitsMixed(limits *structuralschema.ValueValidation, v any) bool {
	if limits != nil && !reflect.DeepEqual(limits, &mixed) {
		return false
	}
	switch v.(type) {
	case string, int64:
		return true
	}
	return false
}

// within reports whether a size is within limits.
func within(n int, least, most *int64) bool {
	return (least == nil || int64(n) >= *least) && (most == nil || int64(n) <= *most)
}

func (c *fitting) fitsObject(s structuralschema.Structural, limits *structuralschema.ValueValidation, v map[string]any) bool {
	if len(limits.Enum) > 0 || limits.Format != "" || !within(len(v), limits.MinProperties, limits.MaxProperties) {
		return false
	}
	for _, name := range limits.Required {
		if _, ok := v[name]; !ok {
			return false
		}
	}
	for name, member := range v {
		p, ok := s.Properties[name]
		switch {
		case ok:
			if !c.fits(p, member) {
				return false
			}
		case s.AdditionalProperties == nil:
		case s.AdditionalProperties.Structural != nil:
			if !c.fits(*s.AdditionalProperties.Structural, member) {
				return false
			}
		case !s.AdditionalProperties.Bool:
			return false
		}
	}
	return true
}

func (c *fitting) fitsList(s structuralschema.Structural, limits *structuralschema.ValueValidation, v []any) bool {
	if len(limits.Enum) > 0 || limits.Format != "" || !within(len(v), limits.MinItems, limits.MaxItems) {
		return false
	}
	if s.Items == nil {
		return len(v) == 0
	}
	for _, item := range v {
		if !c.fits(*s.Items, item) {
			return false
		}
	}
	return true
}

func (c *fitting) fitsText(limits *structuralschema.ValueValidation, v string) bool {
	switch n := len(limits.Enum); {
	case n > manyValues:
		if !c.enumOf(limits.Enum).has(v) {
			return false
		}
	case n > 0 && !slices.ContainsFunc(limits.Enum, func(one structuralschema.JSON) bool { return one.Object == any(v) }):
		return false
	}
	if limits.Format != "" && (!strfmt.Default.ContainsName(limits.Format) || !strfmt.Default.Validates(limits.Format, v)) {
		return false
	}
	if (limits.MinLength != nil || limits.MaxLength != nil) && !within(utf8.RuneCountInString(v), limits.MinLength, limits.MaxLength) {
		return false
	}
	if limits.Pattern == "" {
		return true
	}
	matches, err := c.matches(limits.Pattern, v, &c.work)
	return err == nil && matches
}

// exact is the limit below which every integer is a float64.
const exact = 1 << 53

// fitsNumber is fits for a number. Whole: it is an int64, whose bounds the library takes as
// integers.
func fitsNumber(kind string, limits *structuralschema.ValueValidation, v float64, whole bool) bool {
	low, high := -float64(exact), float64(exact)
	switch limits.Format {
	case "", "int64", "double":
	case "int32":
		low, high = math.MinInt32, math.MaxInt32
	default:
		return false
	}
	if len(limits.Enum) > 0 || limits.Format == "double" && kind != "number" || limits.Format != "" && limits.Format != "double" && kind != "integer" {
		return false
	}
	inside := func(n float64) bool { return n > low && n < high && (!whole || n == math.Trunc(n)) }
	if limits.Minimum != nil {
		if !inside(*limits.Minimum) || v < *limits.Minimum || limits.ExclusiveMinimum && v == *limits.Minimum {
			return false
		}
	}
	if limits.Maximum != nil {
		if !inside(*limits.Maximum) || v > *limits.Maximum || limits.ExclusiveMaximum && v == *limits.Maximum {
			return false
		}
	}
	return inside(v)
}
