package testkinds

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Entries are the ways in which a list is filled: the text that an entry has in its
// strings and, if it contains %d, numbers.
var Entries = []struct{ Name, Text string }{
	{"names", "n-%d"},
	{"garbage", "-/\x01 %d"},
	{"copies", ""},
}

// Lists finds the lists and maps of kinds. It yields each field once, also if several
// kinds share it, as all workloads share those of Pods. The zero value has found none.
type Lists struct {
	seen  map[string]bool
	found []List
}

// List is a list or a map of a kind.
type List struct {
	// Name is the path of Go names: "Spec.Containers".
	Name string
	path []int // indexes of fields; -1: the first entry of a list
}

// Of returns the lists and maps of an object's kind, those of its metadata apart.
func (l *Lists) Of(o runtime.Object) []List {
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.found = nil
	l.walk(reflect.TypeOf(o).Elem(), nil, nil)
	return l.found
}

func (l *Lists) walk(t reflect.Type, path []int, names []string) {
	if len(path) > 14 || strings.Count(strings.Join(names, "."), "[0]") > 4 {
		return
	}
	switch t {
	case reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[apiresource.Quantity](), reflect.TypeFor[metav1.TypeMeta]():
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		l.walk(t.Elem(), path, names)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			id := fmt.Sprint(t, ".", f.Name)
			if !f.IsExported() || l.seen[id] {
				continue
			}
			k := f.Type.Kind()
			if k == reflect.Pointer {
				k = f.Type.Elem().Kind()
			}
			if k == reflect.Slice || k == reflect.Map || k == reflect.Struct {
				l.seen[id] = true
				l.walk(f.Type, append(path[:len(path):len(path)], i), append(names[:len(names):len(names)], f.Name))
			}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return
		}
		l.found = append(l.found, List{strings.Join(names, "."), path})
		l.walk(t.Elem(), append(path[:len(path):len(path)], -1), append(names[:len(names):len(names)], "[0]"))
	case reflect.Map:
		l.found = append(l.found, List{strings.Join(names, "."), path})
	}
}

// at returns the value at a path, and makes the pointers and items on the way that are missing.
func at(o runtime.Object, path []int) reflect.Value {
	v := reflect.ValueOf(o).Elem()
	for _, i := range path {
		v = made(v)
		if i >= 0 {
			v = v.Field(i)
			continue
		}
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		v = v.Index(0)
	}
	return made(v)
}

// made follows pointers, and makes the values that they lack.
func made(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	return v
}

// Fill returns a copy of an object of the kind with n entries in the list, made with the
// Text of one of Entries.
func (l List) Fill(base runtime.Object, text string, n int) runtime.Object {
	o := base.DeepCopyObject()
	v := at(o, l.path)
	if v.Kind() == reflect.Map {
		m := reflect.MakeMapWithSize(v.Type(), n)
		var value reflect.Value
		for iter := v.MapRange(); iter.Next(); {
			value = iter.Value()
		}
		for i := range n {
			key, one := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			if value.IsValid() {
				one.Set(value)
			}
			number(key, "k%d"+text, i, 1)
			number(one, text, i, 3)
			m.SetMapIndex(key, one)
		}
		v.Set(m)
		return o
	}
	list := reflect.MakeSlice(v.Type(), n, n)
	for i := range n {
		if v.Len() > 0 {
			deepCopy(list.Index(i), v.Index(0))
		}
		number(list.Index(i), text, i, 4)
	}
	v.Set(list)
	return o
}

func deepCopy(to, from reflect.Value) {
	if into := from.Addr().MethodByName("DeepCopyInto"); into.IsValid() {
		into.Call([]reflect.Value{to.Addr()})
	} else {
		to.Set(from)
	}
}

// number puts a text with a number into the strings of a value, and the number into its
// numbers; no text leaves the value as it is.
func number(v reflect.Value, text string, i, depth int) {
	if text == "" || depth == 0 {
		return
	}
	switch o := v.Addr().Interface().(type) {
	case *metav1.Time, *metav1.MicroTime, *runtime.RawExtension:
		return
	case *apiresource.Quantity:
		*o = *apiresource.NewQuantity(int64(i), apiresource.DecimalSI)
		return
	case *intstr.IntOrString:
		*o = intstr.FromInt32(int32(i%60000 + 1))
		return
	}
	differ := strings.Contains(text, "%d")
	switch v.Kind() {
	case reflect.String:
		// Enumerations stay as they are: a changed value would be invalid.
		if v.String() == "" || strings.ToLower(v.String()) == v.String() {
			if differ {
				text = fmt.Sprintf(text, i)
			}
			v.SetString(text)
		}
	case reflect.Int32, reflect.Int64:
		if differ {
			v.SetInt(int64(i%60000 + 1))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			number(v.Elem(), text, i, depth)
		}
	case reflect.Struct:
		for j := range v.NumField() {
			if v.Type().Field(j).IsExported() {
				number(v.Field(j), text, i, depth-1)
			}
		}
	case reflect.Slice:
		for j := range v.Len() {
			number(v.Index(j), text, i, depth-1)
		}
	}
}

// Typed decodes an object that Objects returned.
func Typed[O runtime.Object](t testing.TB, from map[string]any, into O) O {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%T: %v", into, err)
	}
	return into
}
