package testkinds

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Strings finds the strings in the JSON of kinds: members of type string, and those of other types that JSON has as
// strings, such as quantities. It yields each once, also if several kinds share it, as all workloads share those of Pods.
// The zero value has found none.
type Strings struct {
	seen  map[string]bool
	found []String
}

// String is a string of a kind.
type String struct {
	// Name is the path of members: "spec.containers.0.image".
	Name string
	path []any // names of members; 0: the first item of a list; aKey: the keys of a map
}

type aKey struct{}

// anyMember is the name of the member of a map that has no members yet.
const anyMember = "k"

// textTypes are the types, apart from those that are strings in Go, that JSON has as strings.
var textTypes = map[reflect.Type]bool{
	reflect.TypeFor[metav1.Time]():          true,
	reflect.TypeFor[metav1.MicroTime]():     true,
	reflect.TypeFor[metav1.Duration]():      true,
	reflect.TypeFor[apiresource.Quantity](): true,
	reflect.TypeFor[intstr.IntOrString]():   true,
	reflect.TypeFor[[]byte]():               true,
	reflect.TypeFor[runtime.RawExtension](): true,
	reflect.TypeFor[metav1.FieldsV1]():      true,
}

// Of returns the strings of an object's kind.
func (s *Strings) Of(o runtime.Object) []String {
	if s.seen == nil {
		s.seen = map[string]bool{}
	}
	s.found = nil
	s.walk(reflect.TypeOf(o).Elem(), nil)
	return s.found
}

func (s *Strings) walk(t reflect.Type, path []any) {
	path = path[:len(path):len(path)]
	switch {
	case textTypes[t] || t.Kind() == reflect.String || t.Kind() == reflect.Struct && strings.HasSuffix(t.PkgPath(), "apiextensions/v1") && t.Name() == "JSON":
		s.found = append(s.found, String{nameOf(path), path})
	case t.Kind() == reflect.Pointer:
		s.walk(t.Elem(), path)
	case t.Kind() == reflect.Slice:
		s.walk(t.Elem(), append(path, 0))
	case t.Kind() == reflect.Map:
		s.found = append(s.found, String{nameOf(path) + " keys", append(path, aKey{})})
		s.walk(t.Elem(), append(path, anyMember))
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			id := fmt.Sprint(t, ".", f.Name)
			switch {
			case !f.IsExported() || name == "-" || f.Type == reflect.TypeFor[metav1.TypeMeta]():
			case name == "" && f.Anonymous:
				s.walk(f.Type, path)
			case !s.seen[id]:
				s.seen[id] = true
				s.walk(f.Type, append(path, name))
			}
		}
	}
}

func nameOf(path []any) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprintln(path...), "\n"), " ", ".")
}

// Fill returns a copy of an object of the kind with a text at the string's place.
func (s String) Fill(base map[string]any, text string) map[string]any {
	return filled(base, s.path, text).(map[string]any)
}

func filled(in any, path []any, text string) any {
	if len(path) == 0 {
		return text
	}
	switch step := path[0].(type) {
	case string:
		m, _ := in.(map[string]any)
		m = maps.Clone(m)
		if m == nil {
			m = map[string]any{}
		}
		m[step] = filled(m[step], path[1:], text)
		return m
	case int:
		list, _ := in.([]any)
		list = slices.Clone(list)
		if len(list) == 0 {
			list = make([]any, 1)
		}
		list[0] = filled(list[0], path[1:], text)
		return list
	default:
		m, _ := in.(map[string]any)
		var value any = "x"
		for _, v := range m {
			value = v
		}
		return map[string]any{text: value}
	}
}
