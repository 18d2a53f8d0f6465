package wire

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// plan describes how the JSON of a type, as encoding/json writes it, becomes the message
// that the type's own Marshal method writes. It is made once from the tags of the Go type.
type plan struct {
	fields []planField // in the order of JSON, which is that of the Go type
	// ascending: the fields are in the order of their numbers.
	ascending bool
}

// planField is a member, and the field that it becomes.
type planField struct {
	name   string // of the member
	number protowire.Number
	tag    []byte
	shape  planShape
	kind   planKind
	of     *plan // of messages
	// absent is the encoding of the field when there is no such member.
	absent []byte
}

// planShape is how a value is repeated in a field.
type planShape uint8

const (
	planOne      planShape = iota
	planRepeated           // a list
	planMap                // an object of any members
	planInline             // the members of a message among those of the outer one
	planIgnored            // the message has no such field
)

// planKind is how a value is encoded.
type planKind uint8

const (
	planMessage planKind = iota
	planString
	planInt
	planBool
	planBytes
	planTime
	planMicroTime
	planDuration
	planQuantity
	planIntOrString
	planRaw   // a message of one field with any JSON in it
	planItems // a message of one field with strings in it
)

// customKinds are the types with their own JSON form.
var customKinds = map[reflect.Type]planKind{
	reflect.TypeFor[metav1.Time]():          planTime,
	reflect.TypeFor[metav1.MicroTime]():     planMicroTime,
	reflect.TypeFor[metav1.Duration]():      planDuration,
	reflect.TypeFor[apiresource.Quantity](): planQuantity,
	reflect.TypeFor[intstr.IntOrString]():   planIntOrString,
	reflect.TypeFor[runtime.RawExtension](): planRaw,
	reflect.TypeFor[metav1.FieldsV1]():      planRaw,
	reflect.TypeFor[apiextensions.JSON]():   planRaw,
}

// plans of the built-in kinds that were used; nil for a kind that has none. See the package
// comment.
var plans sync.Map // *resource.Type -> *plan

// planOf returns the plan of a built-in kind.
func planOf(t *resource.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p, err := planner{}.plan(reflect.TypeOf(t.New()).Elem())
	if err != nil {
		p = nil
	}
	plans.Store(t, p)
	return p
}

// metadataPlan is the plan of an object's metadata.
var metadataPlan = sync.OnceValue(func() *plan {
	p, err := planner{}.plan(reflect.TypeFor[metav1.ObjectMeta]())
	if err != nil {
		return nil
	}
	return p
})

// planner makes plans. It holds those that it has begun, since types may be recursive.
type planner map[reflect.Type]*plan

func (b planner) plan(t reflect.Type) (*plan, error) {
	if p := b[t]; p != nil {
		return p, nil
	}
	if t.Kind() != reflect.Struct || custom(t) {
		return nil, fmt.Errorf("%v has a form of its own", t)
	}
	p := &plan{ascending: true}
	b[t] = p
	last := protowire.Number(0)
	for i := range t.NumField() {
		if err := b.field(p, t.Field(i)); err != nil {
			return nil, fmt.Errorf("%v: %w", t, err)
		}
	}
	for i := range p.fields {
		f := &p.fields[i]
		if f.shape == planIgnored {
			continue
		}
		p.ascending = p.ascending && f.number > last
		last = f.number
	}
	return p, nil
}

// custom reports whether the type has its own JSON decoder.
func custom(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// field adds a field of a Go type to a plan.
func (b planner) field(p *plan, sf reflect.StructField) error {
	name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
	tag := sf.Tag.Get("protobuf")
	f := planField{name: name}
	switch {
	case tag == "" && sf.Anonymous && name == "":
		// TypeMeta of an object: it is in the envelope.
		for i := range sf.Type.NumField() {
			inner, _, _ := strings.Cut(sf.Type.Field(i).Tag.Get("json"), ",")
			p.fields = append(p.fields, planField{name: inner, shape: planIgnored})
		}
		return nil
	case tag == "" || tag == "-":
		f.shape = planIgnored
		p.fields = append(p.fields, f)
		return nil
	case name == "" && !sf.Anonymous || name == "-":
		return fmt.Errorf("the field %s has no name in JSON", sf.Name)
	case name == "":
		f.shape = planInline
	}
	parts := strings.Split(tag, ",")
	if len(parts) < 2 {
		return fmt.Errorf("the tag %q", tag)
	}
	number, err := strconv.Atoi(parts[1])
	if err != nil {
		return err
	}
	f.number = protowire.Number(number)
	if err := b.value(&f, sf.Type); err != nil {
		return fmt.Errorf("%s: %w", sf.Name, err)
	}
	wireType := protowire.BytesType
	if f.kind == planInt || f.kind == planBool {
		wireType = protowire.VarintType
	}
	f.tag = protowire.AppendTag(nil, f.number, wireType)
	if f.absent, err = absentField(&f, sf.Type); err != nil {
		return err
	}
	p.fields = append(p.fields, f)
	return nil
}

// value sets how the values of a type are encoded.
func (b planner) value(f *planField, t reflect.Type) (err error) {
	switch {
	case f.shape == planInline && t.Kind() != reflect.Struct:
		return fmt.Errorf("%v among other members", t)
	case t.Kind() == reflect.Pointer:
		t = t.Elem()
	case t.Kind() == reflect.Map:
		if t.Key().Kind() != reflect.String {
			return fmt.Errorf("%v has other keys than strings", t)
		}
		f.shape, t = planMap, t.Elem()
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && !isMessage(t):
		f.shape, t = planRepeated, t.Elem()
	}
	f.kind, f.of, err = b.single(t)
	return err
}

// isMessage reports whether values of the type are messages of their own.
func isMessage(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[message]())
}

func (b planner) single(t reflect.Type) (planKind, *plan, error) {
	if k, ok := customKinds[t]; ok {
		return k, nil, nil
	}
	switch {
	case custom(t):
		return 0, nil, fmt.Errorf("%v has a form of its own", t)
	case t.Kind() == reflect.String:
		return planString, nil, nil
	case t.Kind() == reflect.Bool:
		return planBool, nil, nil
	case t.Kind() == reflect.Int32 || t.Kind() == reflect.Int64:
		return planInt, nil, nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return planBytes, nil, nil
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return planItems, nil, nil
	case t.Kind() == reflect.Struct:
		p, err := b.plan(t)
		return planMessage, p, err
	}
	return 0, nil, fmt.Errorf("%v", t)
}

// absentField returns the encoding of a field without a member: the generated code writes
// each scalar and each message that is not a pointer.
func absentField(f *planField, t reflect.Type) ([]byte, error) {
	if f.shape != planOne || t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		return nil, nil
	}
	if t.Kind() != reflect.Struct {
		return append(f.tag[:len(f.tag):len(f.tag)], 0), nil
	}
	zero, err := marshal(reflect.New(t).Interface())
	if err != nil {
		return nil, err
	}
	return protowire.AppendBytes(f.tag[:len(f.tag):len(f.tag)], zero), nil
}
