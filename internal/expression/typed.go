package expression

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Typed returns the value of an object: a pointer to a struct of a Kubernetes API. It is the value
// of the object's JSON, but only the parts that an expression uses are converted, and once. The
// object must not change while the value is in use. The value is not safe for concurrent use.
//
// complete adds the managed fields to the object. It is called before an expression uses them; nil
// means that they are set.
func Typed(object any, complete func() error) ref.Val {
	v := reflect.ValueOf(object)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return types.DefaultTypeAdapter.NativeToValue(object)
	}
	o := newStruct(v.Elem())
	o.complete = complete
	return o
}

// adapter converts values as its Adapter does. It returns frequent ones sooner.
type adapter struct{ types.Adapter }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case *object:
		return v
	case *sequence:
		return v
	case types.String:
		return v
	case types.Bool:
		return v
	}
	return a.Adapter.NativeToValue(value)
}

// field is a member of the JSON of a struct.
type field struct {
	path      []int // of embedded structs, and then of the field
	omitEmpty bool
	omitZero  bool
}

// shape is the members of a struct's JSON.
type shape struct {
	index  map[string]int // of names in fields
	fields []field
}

var shapes sync.Map // *shape by reflect.Type

func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	s := &shape{index: map[string]int{}}
	s.add(t, nil)
	shapes.Store(t, s)
	return s
}

// add adds the fields of a struct that is embedded at a path.
func (s *shape) add(t reflect.Type, path []int) {
	for i := range t.NumField() {
		of := t.Field(i)
		tag, options, _ := strings.Cut(of.Tag.Get("json"), ",")
		if tag == "-" || !of.IsExported() {
			continue
		}
		at := append(path[:len(path):len(path)], i)
		if tag == "" && of.Anonymous && of.Type.Kind() == reflect.Struct {
			s.add(of.Type, at)
			continue
		}
		if tag == "" {
			tag = of.Name
		}
		f := field{path: at}
		for option := range strings.SplitSeq(options, ",") {
			f.omitEmpty = f.omitEmpty || option == "omitempty"
			f.omitZero = f.omitZero || option == "omitzero"
		}
		s.index[tag] = len(s.fields)
		s.fields = append(s.fields, f)
	}
}

// omits reports whether the JSON lacks a field with a value.
func (f *field) omits(v reflect.Value) bool {
	if f.omitEmpty {
		switch v.Kind() {
		case reflect.Array, reflect.Map, reflect.Slice, reflect.String:
			if v.Len() == 0 {
				return true
			}
		case reflect.Struct:
		default:
			if v.IsZero() {
				return true
			}
		}
	}
	if !f.omitZero {
		return false
	}
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	if v.CanAddr() {
		if z, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok {
			return z.IsZero()
		}
	}
	return v.IsZero()
}

// valueOf returns the value of a Go value.
func valueOf(v reflect.Value) ref.Val {
	if custom, ok := customOf(v); ok {
		return custom
	}
	switch v.Kind() {
	case reflect.String:
		return types.String(v.String())
	case reflect.Bool:
		return types.Bool(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return types.Int(v.Int())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return types.Int(int64(v.Uint()))
	case reflect.Float32, reflect.Float64:
		return types.Double(v.Float())
	case reflect.Struct:
		return newStruct(v)
	}
	if v.IsNil() {
		return types.NullValue
	}
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return types.String(base64.StdEncoding.EncodeToString(v.Bytes()))
		}
		return &sequence{v: v, items: make([]ref.Val, v.Len())}
	case reflect.Map:
		if m, ok := v.Interface().(map[string]string); ok {
			return stringMap{types.NewStringStringMap(types.DefaultTypeAdapter, m)}
		}
		return &object{v: v}
	case reflect.Pointer, reflect.Interface:
		return valueOf(v.Elem())
	}
	return types.NewErr("unsupported type %v", v.Type())
}

// customs remembers which types have their own JSON.
var customs sync.Map // bool by reflect.Type

var (
	marshaler  = reflect.TypeFor[json.Marshaler]()
	structured = reflect.TypeFor[interface{ ToUnstructured() any }]()
)

func isCustom(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Interface:
		return false
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int32, reflect.Int64:
		if t.PkgPath() == "" {
			return false // most fields
		}
	}
	if is, ok := customs.Load(t); ok {
		return is.(bool)
	}
	p := t
	if t.Kind() != reflect.Pointer {
		p = reflect.PointerTo(t)
	}
	is := p.Implements(marshaler) || p.Implements(structured)
	customs.Store(t, is)
	return is
}

// customOf returns the value of a type with its own JSON.
func customOf(v reflect.Value) (ref.Val, bool) {
	if !isCustom(v.Type()) {
		return nil, false
	}
	native, err := customNative(v)
	if err != nil {
		return types.WrapErr(err), true
	}
	return types.DefaultTypeAdapter.NativeToValue(native), true
}

// customNative returns the decoded JSON of a value of a type with its own.
func customNative(v reflect.Value) (any, error) {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil, nil
		}
	} else if v.CanAddr() {
		v = v.Addr()
	} else {
		copied := reflect.New(v.Type())
		copied.Elem().Set(v)
		v = copied
	}
	if s, ok := v.Interface().(interface{ ToUnstructured() any }); ok {
		return s.ToUnstructured(), nil
	}
	text, err := v.Interface().(json.Marshaler).MarshalJSON()
	if err != nil {
		return nil, err
	}
	var native any
	err = utiljson.Unmarshal(text, &native)
	return native, err
}

// nativeOf returns the decoded JSON of a Go value.
func nativeOf(v reflect.Value) (any, error) {
	if isCustom(v.Type()) {
		return customNative(v)
	}
	switch v.Kind() {
	case reflect.Struct:
		if !v.CanAddr() {
			copied := reflect.New(v.Type()).Elem()
			copied.Set(v)
			v = copied
		}
		return runtime.DefaultUnstructuredConverter.ToUnstructured(v.Addr().Interface())
	case reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil, nil
		}
	default:
		return valueOf(v).Value(), nil
	}
	switch v.Kind() {
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return valueOf(v).Value(), nil
		}
		all := make([]any, v.Len())
		for i := range all {
			var err error
			if all[i], err = nativeOf(v.Index(i)); err != nil {
				return nil, err
			}
		}
		return all, nil
	case reflect.Map:
		all := make(map[string]any, v.Len())
		for entries := v.MapRange(); entries.Next(); {
			native, err := nativeOf(entries.Value())
			if err != nil {
				return nil, err
			}
			all[entries.Key().String()] = native
		}
		return all, nil
	}
	return nativeOf(v.Elem())
}

// whole returns a value with all of its parts converted. Operations that look at all of them use it.
func whole(v reflect.Value) ref.Val {
	native, err := nativeOf(v)
	if err != nil {
		return types.WrapErr(fmt.Errorf("reading a value: %w", err))
	}
	return types.DefaultTypeAdapter.NativeToValue(native)
}

// stringMap is the value of a map of strings.
type stringMap struct{ traits.Mapper }

// Equal compares with another map. Any other value is an error, as in Kubernetes 1.37.
func (m stringMap) Equal(other ref.Val) ref.Val {
	if _, ok := other.(traits.Mapper); !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return m.Mapper.Equal(other)
}

// object is the value of a struct or of a map with texts as keys.
type object struct {
	v      reflect.Value
	shape  *shape             // of a struct
	fields []ref.Val          // of a struct: those that were looked at, or missing
	items  map[string]ref.Val // of a map: those that were looked at
	all    ref.Val            // the whole value, if it was needed
	// complete is that of Typed, for an object and its metadata.
	complete func() error
}

// missing marks a field that the JSON of a struct lacks.
var missing ref.Val = new(missingField)

type missingField struct{ types.Null }

func newStruct(v reflect.Value) *object {
	s := shapeOf(v.Type())
	return &object{v: v, shape: s, fields: make([]ref.Val, len(s.fields))}
}

func (o *object) whole() ref.Val {
	if o.all == nil {
		if failed := o.completed(); failed != nil {
			return failed
		}
		o.all = whole(o.v)
	}
	return o.all
}

// completed adds the managed fields, and returns the error.
func (o *object) completed() ref.Val {
	if o.complete == nil {
		return nil
	}
	if err := o.complete(); err != nil {
		return types.WrapErr(err)
	}
	o.complete = nil
	return nil
}

// mapper returns the whole value if it is a map, else an error.
func (o *object) mapper() (traits.Mapper, ref.Val) {
	all := o.whole()
	m, ok := all.(traits.Mapper)
	if !ok {
		return nil, all
	}
	return m, nil
}

// Find returns the value of a key.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		m, failed := o.mapper()
		if failed != nil {
			return failed, true
		}
		return m.Find(key)
	}
	if o.shape == nil {
		return o.entry(string(name))
	}
	i, ok := o.shape.index[string(name)]
	return o.at(string(name), i, ok)
}

// place is where the objects of a shape have a field.
type place struct {
	shape *shape
	index int
	ok    bool // there is such a field
}

// named is Find for a name that is always the same. last remembers its place between calls.
func (o *object) named(name types.String, last *atomic.Pointer[place]) (ref.Val, bool) {
	if o.shape == nil {
		return o.entry(string(name))
	}
	p := last.Load()
	if p == nil || p.shape != o.shape {
		i, ok := o.shape.index[string(name)]
		p = &place{o.shape, i, ok}
		last.Store(p)
	}
	return o.at(string(name), p.index, p.ok)
}

// at returns the value of the field i of a struct.
func (o *object) at(name string, i int, ok bool) (ref.Val, bool) {
	if !ok {
		return nil, false
	}
	if o.fields[i] == nil {
		o.fields[i] = o.member(name, i)
	}
	if o.fields[i] == missing {
		return nil, false
	}
	return o.fields[i], true
}

// member returns the value of a field, or missing.
func (o *object) member(name string, i int) ref.Val {
	if o.complete != nil && name == "managedFields" {
		if failed := o.completed(); failed != nil {
			return failed
		}
	}
	value := o.field(i)
	if inner, ok := value.(*object); ok && o.complete != nil && name == "metadata" {
		inner.complete = o.complete
	}
	return value
}

func (o *object) field(i int) ref.Val {
	f, v := &o.shape.fields[i], o.v
	for _, i := range f.path {
		v = v.Field(i)
	}
	if f.omits(v) {
		return missing
	}
	return valueOf(v)
}

func (o *object) entry(name string) (ref.Val, bool) {
	if value, ok := o.items[name]; ok {
		return value, true
	}
	v := o.v.MapIndex(reflect.ValueOf(name).Convert(o.v.Type().Key()))
	if !v.IsValid() {
		return nil, false
	}
	if o.items == nil {
		o.items = map[string]ref.Val{}
	}
	o.items[name] = valueOf(v)
	return o.items[name], true
}

// Contains reports whether there is a key.
func (o *object) Contains(key ref.Val) ref.Val {
	if name, ok := key.(types.String); ok && o.shape == nil {
		return types.Bool(o.v.MapIndex(reflect.ValueOf(string(name)).Convert(o.v.Type().Key())).IsValid())
	}
	value, found := o.Find(key)
	if found && value != nil && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(found)
}

// Get returns the value of a key, or an error.
func (o *object) Get(key ref.Val) ref.Val {
	value, found := o.Find(key)
	if !found {
		return types.ValOrErr(value, "no such key: %v", key)
	}
	return value
}

// Size returns the number of keys.
func (o *object) Size() ref.Val {
	if o.shape == nil {
		return types.Int(o.v.Len())
	}
	m, failed := o.mapper()
	if failed != nil {
		return failed
	}
	return m.Size()
}

// Iterator returns an iterator over the keys.
func (o *object) Iterator() traits.Iterator {
	m, failed := o.mapper()
	if failed != nil {
		return types.NewDynamicList(types.DefaultTypeAdapter, []ref.Val{}).Iterator()
	}
	return m.Iterator()
}

// Equal compares with another map. A value that is no map is an error, as in Kubernetes 1.37. So is a member of a struct
// that is compared with a value of another kind. Two structs are equal if they mean the same: quantities by their values.
func (o *object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	if o.shape == nil {
		return o.whole().Equal(other)
	}
	if failed := o.completed(); failed != nil {
		return failed
	}
	if p, ok := other.(*object); ok && p.shape != nil {
		if failed := p.completed(); failed != nil {
			return failed
		}
		return types.Bool(equality.Semantic.DeepEqual(o.v.Interface(), p.v.Interface()))
	}
	if o.Size() != m.Size() {
		return types.False
	}
	for i := o.Iterator(); i.HasNext() == types.True; {
		key := i.Next()
		member, _ := o.Find(key)
		theirs, found := m.Find(key)
		if !found {
			return types.False
		}
		if equal := member.Equal(theirs); equal != types.True {
			return equal
		}
	}
	return types.True
}

// ConvertToNative converts to a Go type.
func (o *object) ConvertToNative(t reflect.Type) (any, error) { return o.whole().ConvertToNative(t) }

// ConvertToType converts to a type.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return o.whole().ConvertToType(t)
}

// Type returns the type of maps.
func (o *object) Type() ref.Type { return types.MapType }

// Value returns the decoded JSON.
func (o *object) Value() any { return o.whole().Value() }

// sequence is the value of a slice.
type sequence struct {
	v     reflect.Value
	items []ref.Val // those that were looked at
	all   ref.Val
}

func (l *sequence) whole() ref.Val {
	if l.all == nil {
		l.all = whole(l.v)
	}
	return l.all
}

func (l *sequence) lister() (traits.Lister, ref.Val) {
	all := l.whole()
	m, ok := all.(traits.Lister)
	if !ok {
		return nil, all
	}
	return m, nil
}

func (l *sequence) at(i int) ref.Val {
	if l.items[i] == nil {
		l.items[i] = valueOf(l.v.Index(i))
	}
	return l.items[i]
}

// Get returns an item, or an error.
func (l *sequence) Get(index ref.Val) ref.Val {
	if i, ok := index.(types.Int); ok && i >= 0 && int64(i) < int64(len(l.items)) {
		return l.at(int(i))
	}
	m, failed := l.lister()
	if failed != nil {
		return failed
	}
	return m.Get(index)
}

// Size returns the number of items.
func (l *sequence) Size() ref.Val { return types.Int(len(l.items)) }

// Iterator returns an iterator over the items.
func (l *sequence) Iterator() traits.Iterator { return &listIterator{of: l} }

// Contains reports whether an item equals a value.
func (l *sequence) Contains(value ref.Val) ref.Val {
	m, failed := l.lister()
	if failed != nil {
		return failed
	}
	return m.Contains(value)
}

// Add returns the items followed by those of another list.
func (l *sequence) Add(other ref.Val) ref.Val {
	m, failed := l.lister()
	if failed != nil {
		return failed
	}
	return m.Add(other)
}

// Equal compares with another list. Any other value is an error, as in Kubernetes 1.37.
func (l *sequence) Equal(other ref.Val) ref.Val {
	if _, ok := other.(traits.Lister); !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return l.whole().Equal(other)
}

// ConvertToNative converts to a Go type.
func (l *sequence) ConvertToNative(t reflect.Type) (any, error) { return l.whole().ConvertToNative(t) }

// ConvertToType converts to a type.
func (l *sequence) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.ListType:
		return l
	case types.TypeType:
		return types.ListType
	}
	return l.whole().ConvertToType(t)
}

// Type returns the type of lists.
func (l *sequence) Type() ref.Type { return types.ListType }

// Value returns the decoded JSON.
func (l *sequence) Value() any { return l.whole().Value() }

type listIterator struct {
	of   *sequence
	next int
}

// HasNext reports whether there is another item.
func (i *listIterator) HasNext() ref.Val { return types.Bool(i.next < len(i.of.items)) }

// Next returns the next item, nil if there is none.
func (i *listIterator) Next() ref.Val {
	if i.next >= len(i.of.items) {
		return nil
	}
	i.next++
	return i.of.at(i.next - 1)
}

// ConvertToNative returns an error.
func (i *listIterator) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("type conversion on iterators not supported")
}

// ConvertToType returns an error.
func (i *listIterator) ConvertToType(t ref.Type) ref.Val { return types.NewErr("no such overload") }

// Equal returns an error.
func (i *listIterator) Equal(other ref.Val) ref.Val { return types.NewErr("no such overload") }

// Type returns the type of iterators.
func (i *listIterator) Type() ref.Type { return types.IteratorType }

// Value returns nil: no native value exists.
func (i *listIterator) Value() any { return nil }
