package projects

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// spot is a value in an object.
type spot struct {
	path  string // without the indices of lists
	value any
	set   func(any)
	del   func() // nil for an element of a list
}

// spots are the values in an object, without its type, name and namespace.
func spots(v any, path string) (all []spot) {
	switch v := v.(type) {
	case tree:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			at := path + "." + name
			if slices.Contains([]string{".apiVersion", ".kind", ".metadata.name", ".metadata.namespace", ".status"}, at) {
				continue
			}
			if at != ".metadata" {
				all = append(all, spot{at, v[name], func(x any) { v[name] = x }, func() { delete(v, name) }})
			}
			all = append(all, spots(v[name], at)...)
		}
	case []any:
		for i := range v {
			all = append(all, spot{path + "[]", v[i], func(x any) { v[i] = x }, nil})
			all = append(all, spots(v[i], path+"[]")...)
		}
	}
	return all
}

// raw is a number or another value in a text of its own.
func raw(text string) any { return json.RawMessage(text) }

// values are the values that the fault sets.
var values = map[string][]any{
	"null":         {nil},
	"empty":        {"", tree{}, []any{}},
	"zero":         {raw("0"), raw("0.0"), raw("-0"), false},
	"large number": {raw("9223372036854775807"), raw("9223372036854775808"), raw("-9223372036854775809"), raw("1e20"), raw("4294967296"), raw("2147483648")},
	"odd number":   {raw("-1"), raw("1.5"), raw("1e3"), raw("1.0"), raw("-0.0"), raw("0.1e1"), raw("123456789012345678901234567890"), raw("1.7976931348623157e308")},
	"odd text": {
		"a b", "A", "-", "é", "\u0000", "null", "true", "1", "1.0", "1e3", "100m", "1Gi", "-1s", "2024-02-30T00:00:00Z", "2024-01-01T00:00:00+01:00", "a/b", "*", "https://[::1", "10.0.0.300",
		strings.Repeat("x", 64), strings.Repeat("x", 254), strings.Repeat("é", 130), "=", "aGVsbG8", "<a>&",
	},
	"wrong type": {"text", raw("3"), true, tree{"a": "b"}, []any{"a"}, []any{tree{}}, []any{nil}, tree{"a": nil}},
}

// faults are the kinds of faults that mutate makes.
var faults = append(slices.Sorted(maps.Keys(values)), "none", "missing", "unknown", "other case", "twice", "nil element", "shorter list", "changed")

// mutate makes one fault of a kind in an object. It returns the path, without indices, and false if nothing in the object can
// have that fault.
func mutate(r *rand.Rand, o tree, fault string) (path string, ok bool) {
	all := spots(o, "")
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if with, ok := values[fault]; ok {
		if len(all) == 0 {
			return "", false
		}
		all[0].set(with[r.IntN(len(with))])
		return all[0].path, true
	}
	if fault == "none" {
		return "", true
	}
	for _, s := range all {
		list, _ := s.value.([]any)
		object, _ := s.value.(tree)
		text, isText := s.value.(string)
		switch {
		case fault == "missing" && s.del != nil:
			s.del()
		case fault == "unknown" && object != nil:
			object["unknownMember"] = []any{"x", raw("1"), nil, tree{}}[r.IntN(4)]
		case fault == "other case" && len(object) > 0:
			name := slices.Sorted(maps.Keys(object))[r.IntN(len(object))]
			object[strings.ToUpper(name[:1])+name[1:]] = object[name]
		case fault == "twice" && len(list) > 0:
			s.set(append(slices.Clone(list), list[r.IntN(len(list))]))
		case fault == "nil element" && len(list) > 0:
			s.set(append(slices.Clone(list), nil))
		case fault == "shorter list" && len(list) > 0:
			i := r.IntN(len(list))
			s.set(slices.Delete(slices.Clone(list), i, i+1))
		case fault == "changed" && isText && text != "":
			s.set(text + "1")
		default:
			continue
		}
		return s.path, true
	}
	return "", false
}
