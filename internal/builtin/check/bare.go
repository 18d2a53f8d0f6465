package check

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Bare is a value as errors of kube-apiserver show it where it checks types of its
// own instead of those of the API: as JSON whose members have the names of Go's
// fields, and none left out. Types of apimachinery keep their names: it has no others.
func Bare(value any) any {
	var out bytes.Buffer
	write(&out, reflect.ValueOf(value))
	return json.RawMessage(out.Bytes())
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
			if i > 0 {
				out.WriteByte(',')
			}
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

// foreign tells the types that know themselves how they are written.
func foreign(t reflect.Type) bool { return strings.HasPrefix(t.PkgPath(), "k8s.io/apimachinery/") }

// writeFields writes the members of a struct, and those of embedded ones among them.
func writeFields(out *bytes.Buffer, v reflect.Value) {
	comma := false
	for i := range v.NumField() {
		f := v.Type().Field(i)
		var made bytes.Buffer
		switch {
		case f.Anonymous && foreign(f.Type):
			text, _ := json.Marshal(v.Field(i).Interface())
			made.Write(bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("{")), []byte("}")))
		case f.Anonymous:
			writeFields(&made, v.Field(i))
		default:
			member(&made, f.Name)
			write(&made, v.Field(i))
		}
		if comma && made.Len() > 0 {
			out.WriteByte(',')
		}
		comma = comma || made.Len() > 0
		out.Write(made.Bytes())
	}
}

func member(out *bytes.Buffer, name string) {
	text, _ := json.Marshal(name)
	out.Write(text)
	out.WriteByte(':')
}

func writeMap(out *bytes.Buffer, v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	out.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			out.WriteByte(',')
		}
		member(out, k.String())
		write(out, v.MapIndex(k))
	}
	out.WriteByte('}')
}
