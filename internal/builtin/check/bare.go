package check

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Bare is a value as errors of kube-apiserver show it: with the members of types of
// the API named as their fields are in Go, and none left out.
func Bare(value any) any {
	var b bytes.Buffer
	if err := writeBare(&b, reflect.ValueOf(value)); err != nil {
		return value
	}
	return json.RawMessage(b.Bytes())
}

func writeBare(b *bytes.Buffer, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			break
		}
		return writeBare(b, v.Elem())
	case reflect.Struct:
		if strings.HasPrefix(v.Type().PkgPath(), "k8s.io/api/") {
			return writeStruct(b, v)
		}
	case reflect.Slice:
		if v.IsNil() || v.Type().Elem().Kind() == reflect.Uint8 {
			break
		}
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeBare(b, v.Index(i)); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case reflect.Map:
		if v.IsNil() || v.Type().Key().Kind() != reflect.String {
			break
		}
		return writeMap(b, v)
	}
	if !v.IsValid() {
		b.WriteString("null")
		return nil
	}
	encoded, err := json.Marshal(v.Interface())
	b.Write(encoded)
	return err
}

// writeStruct writes the fields of a struct; those of structs that are embedded stand
// among its own.
func writeStruct(b *bytes.Buffer, v reflect.Value) error {
	b.WriteByte('{')
	first := true
	for f, value := range fields(v) {
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteString(`"` + f + `":`)
		if err := writeBare(b, value); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}

func fields(v reflect.Value) func(yield func(string, reflect.Value) bool) {
	return func(yield func(string, reflect.Value) bool) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Anonymous && f.Type.Kind() == reflect.Struct {
				for name, value := range fields(v.Field(i)) {
					if !yield(name, value) {
						return
					}
				}
				continue
			}
			if f.IsExported() && !yield(f.Name, v.Field(i)) {
				return
			}
		}
	}
}

func writeMap(b *bytes.Buffer, v reflect.Value) error {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	b.WriteByte('{')
	for i, k := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(k.String())
		if err != nil {
			return err
		}
		b.Write(name)
		b.WriteByte(':')
		if err := writeBare(b, v.MapIndex(k)); err != nil {
			return err
		}
	}
	b.WriteByte('}')
	return nil
}
