package check

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Bare returns a value as kube-apiserver's errors show it where its validation works on internal
// types: JSON whose members have the Go names of the fields, with no field left out. Types of
// apimachinery have no internal version and keep their JSON names.
//
// The JSON is made when the error is shown; most of many errors with one large value are not shown.
// The value must not change until then.
func Bare(value any) any { return bare{value} }

// bare is a value that is encoded with internal names. It has one field so that values compare as
// their contents do.
type bare struct{ value any }

// MarshalJSON implements json.Marshaler.
func (b bare) MarshalJSON() ([]byte, error) {
	return BareJSON(b.value), nil
}

// BareJSON returns the JSON that Bare shows.
func BareJSON(value any) json.RawMessage {
	var out bytes.Buffer
	write(&out, reflect.ValueOf(value))
	return out.Bytes()
}

func write(out *bytes.Buffer, v reflect.Value) {
	if !v.IsValid() {
		out.WriteString("null")
		return
	}
	switch kind := v.Kind(); {
	case kind == reflect.Pointer && !v.IsNil() && !foreign(v.Type().Elem()):
		write(out, v.Elem())
	case kind == reflect.Struct && !foreign(v.Type()):
		out.WriteByte('{')
		writeFields(out, v)
		out.WriteByte('}')
	case kind == reflect.Slice && !v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8:
		out.WriteByte('[')
		for i := range v.Len() {
			separate(out)
			write(out, v.Index(i))
		}
		out.WriteByte(']')
	case kind == reflect.Map && !v.IsNil():
		writeMap(out, v)
	default:
		text, _ := json.Marshal(v.Interface())
		out.Write(text)
	}
}

// foreign reports whether a type has a JSON form of its own.
func foreign(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") }

// separate writes a comma after a preceding member or item.
func separate(out *bytes.Buffer) {
	if s := out.Bytes(); len(s) > 0 && s[len(s)-1] != '{' && s[len(s)-1] != '[' {
		out.WriteByte(',')
	}
}

// writeFields writes the members of a struct, including those of embedded structs.
func writeFields(out *bytes.Buffer, v reflect.Value) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		switch {
		case f.Name == "TypeMeta":
		case f.Anonymous && foreign(f.Type): // the metadata
			if text, err := json.Marshal(value.Interface()); err == nil && len(text) > 2 {
				separate(out)
				out.Write(text[1 : len(text)-1])
			}
		case f.Anonymous:
			writeFields(out, value)
		default:
			member(out, f.Name)
			write(out, value)
		}
	}
}

func member(out *bytes.Buffer, name string) {
	separate(out)
	text, _ := json.Marshal(name)
	out.Write(text)
	out.WriteByte(':')
}

func writeMap(out *bytes.Buffer, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	out.WriteByte('{')
	for _, k := range keys {
		member(out, k.String())
		write(out, v.MapIndex(k))
	}
	out.WriteByte('}')
}
