package celenv

import (
	"reflect"
	"unsafe"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/mutation"
	objects "k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// An expression can make a list that refers to another list twice, which refers to a third list twice, and so on.
// Such a value needs little memory, but reading it takes twice as long for each level. This file measures a value
// before a function reads it.

// partBytes is the size that each part of a value counts, in bytes of text.
const partBytes = 20

// Fits reports whether the size of a value is at most 10 MB: its text, and 20 bytes for each value in it. A value
// that is referred to several times counts several times. Fits stops at the limit, so its own time is bounded.
// Callers that convert the result of an expression call Fits first.
func Fits(v ref.Val) bool {
	room := maxMade
	return fits(v, &room)
}

// parts returns the size of a value in parts, if it fits.
func parts(v ref.Val) uint64 {
	room := maxMade
	fits(v, &room)
	return uint64(maxMade-room) / partBytes
}

// fits subtracts the size of a value from *room, and reports whether that was enough.
func fits(v ref.Val, room *int) bool {
	if *room -= partBytes; *room < 0 {
		return false
	}
	switch v := v.(type) {
	case types.String:
		*room -= len(v)
	case types.Bytes:
		*room -= len(v)
	case *types.Optional:
		return !v.HasValue() || fits(v.GetValue(), room)
	case *mutation.JSONPatchVal:
		*room -= len(v.Path) + len(v.From)
		return *room >= 0 && (v.Val == nil || fits(v.Val, room))
	case *objects.ObjectVal:
		for name, value := range fieldsOf(v) {
			if *room -= len(name); *room < 0 || !fits(value, room) {
				return false
			}
		}
	case traits.Mapper:
		for i := v.Iterator(); i.HasNext() == types.True; {
			name := i.Next()
			if !fits(name, room) || !fits(v.Get(name), room) {
				return false
			}
		}
	case traits.Lister:
		for i := v.Iterator(); i.HasNext() == types.True; {
			if !fits(i.Next(), room) {
				return false
			}
		}
	}
	return *room >= 0
}

// objectFields is the field of an ObjectVal with its fields; false for a version of the library that has none.
var objectFields, hasObjectFields = reflect.TypeFor[objects.ObjectVal]().FieldByName("fields")

// fieldsOf returns the fields of an object that an expression made. The library does not export them, and
// its conversions read all that is in them.
func fieldsOf(v *objects.ObjectVal) map[string]ref.Val {
	if !hasObjectFields || objectFields.Type != reflect.TypeFor[map[string]ref.Val]() {
		return nil
	}
	return *(*map[string]ref.Val)(unsafe.Add(unsafe.Pointer(v), objectFields.Offset))
}

// Types of lists and maps. Those of baseList and baseMap are of the input, unless their values are of CEL.
var (
	baseList   = reflect.TypeOf(types.NewRefValList(types.DefaultTypeAdapter, nil))
	baseMap    = reflect.TypeOf(types.NewRefValMap(types.DefaultTypeAdapter, nil))
	concatList = reflect.TypeOf(types.NewStringList(types.DefaultTypeAdapter, []string{""}).(traits.Adder).Add(types.NewStringList(types.DefaultTypeAdapter, []string{""})))
)

// isMade reports whether the expression made a value that has others.
func isMade(v ref.Val) bool {
	switch v := v.(type) {
	case types.String, types.Int, types.Bool, types.Null:
		return false
	case *sumOfLists, *objects.ObjectVal, *mutation.JSONPatchVal:
		return true
	case *types.Optional:
		return v.HasValue() && isMade(v.GetValue())
	}
	switch reflect.TypeOf(v) {
	case baseList, baseMap:
		switch v.Value().(type) {
		case []ref.Val, map[ref.Val]ref.Val:
			return true
		}
	case concatList:
		return true
	}
	return isUnion(v)
}

// isUnion reports whether a value is the sum of two lists that the schema of a definition calls sets or maps. The library
// does not export their types.
func isUnion(v ref.Val) bool {
	switch reflect.TypeOf(v).String() {
	case "*common.refValSetList", "*common.refValMapList":
		return true
	}
	return false
}

// isContainer reports whether a value has others.
func isContainer(v ref.Val) bool {
	switch v.(type) {
	case types.String, types.Int, types.Bool:
		return false
	case traits.Lister, traits.Mapper, *types.Optional, *objects.ObjectVal, *mutation.JSONPatchVal:
		return true
	}
	return false
}
