// Package unexported finds fields of structs that the libraries do not export, where they have no method for a purpose.
package unexported

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Field returns the field of a struct with a name and the type T. of is a pointer to the struct. It returns an error if
// the struct has no such field, so that a new version of a library does not go unnoticed. Writers need to know when the
// library reads the field.
func Field[T any](of any, name string) (*T, error) {
	v := reflect.Indirect(reflect.ValueOf(of))
	if v.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%T has no field %s", of, name)
	}
	f := v.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() || !f.CanAddr() {
		return nil, fmt.Errorf("%T has no field %s of type %v", of, name, reflect.TypeFor[T]())
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr())), nil
}
