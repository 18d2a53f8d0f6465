package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Text stands in every field of an object in TestProtobufText; noText is as long, and is
// no UTF-8.
const (
	someText = "Wm9Q"
	noText   = "W\xffm\xfe"
)

// fillText puts text into each field of a value that can hold some, down to a depth.
func fillText(v reflect.Value, depth int) {
	if depth == 0 {
		return
	}
	raw := `{"` + someText + `":"` + someText + `"}`
	switch o := v.Addr().Interface().(type) {
	case *metav1.Time, *metav1.MicroTime:
		return
	case *apiresource.Quantity:
		*o = apiresource.MustParse("1")
		return
	case *metav1.FieldsV1:
		o.SetRawBytes([]byte(raw))
		return
	case *runtime.RawExtension:
		o.Raw = []byte(raw)
		return
	case *apiextensionsv1.JSON:
		o.Raw = []byte(raw)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(someText)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillText(v.Elem(), depth)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(someText))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillText(v.Index(0), depth-1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillText(key, depth-1)
		fillText(value, depth-1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillText(v.Field(i), depth-1)
			}
		}
	}
}

// TestProtobufText puts bytes that are not UTF-8 into each field of each kind, one after the other:
// a body with such a string is rejected, and fields of bytes accept them. An accepted value is
// returned as it was sent.
func TestProtobufText(t *testing.T) {
	fields, taken, most, least := 0, 0, 100, 3000
	if tier.IsFull(t) {
		most, least = 400, 5000
	}
	for typ := range builtin.Catalog().Types() {
		o := typ.New()
		if _, ok := o.(interface{ Unmarshal([]byte) error }); !ok {
			continue
		}
		fillText(reflect.ValueOf(o).Elem(), 12)
		raw, err := wire.Message(o)
		if err != nil {
			t.Fatalf("%s: %v", typ.Kind, err)
		}
		send := func(raw []byte) (wire.Decoded, error) {
			head := metav1.TypeMeta{Kind: typ.Kind, APIVersion: typ.GroupVersion().String()}
			return wire.Decode(typ, wire.Protobuf, wire.AppendEnvelope(nil, head, raw))
		}
		if _, err := send(raw); err != nil {
			t.Fatalf("%s with text everywhere: %v", typ.Kind, err)
		}
		// Schemas hold schemas in thirty fields: a part of them will do.
		step := 1 + bytes.Count(raw, []byte(someText))/most
		for at, n := 0, 0; ; at, n = at+1, n+1 {
			i := bytes.Index(raw[at:], []byte(someText))
			if i < 0 {
				break
			}
			if at += i; n%step != 0 {
				continue
			}
			wrong := bytes.Clone(raw)
			copy(wrong[at:], noText)
			fields++
			d, err := send(wrong)
			if err != nil {
				if !strings.Contains(err.Error(), "UTF-8") {
					t.Errorf("%s, byte %d: %v", typ.Kind, at, err)
				}
				continue
			}
			taken++
			shown, err := json.Marshal(d.Object)
			if err != nil || bytes.Contains(shown, []byte(`\ufffd`)) || !bytes.Equal(shown, bytes.ToValidUTF8(shown, nil)) {
				t.Errorf("%s, byte %d: it is taken, and shown as %v %.300s", typ.Kind, at, err, shown)
			}
		}
	}
	if fields < least || taken == 0 {
		t.Errorf("%d fields were tried, %d of them hold bytes", fields, taken)
	}
}

// TestProtobufJSON: a field that holds JSON is shown as a part of the object, so that
// nothing else may be there.
func TestProtobufJSON(t *testing.T) {
	revisions := builtin.Catalog().Lookup("apps", "v1", "controllerrevisions")
	for raw, want := range map[string]string{
		``: "holds JSON", `null`: "", `{"a":[1],"a":2}`: "", ` 7 `: "",
		`{"a":`: "holds JSON", `{}{}`: "holds JSON", `x`: "holds JSON", `"` + noText + `"`: "UTF-8",
		strings.Repeat("[", 600) + strings.Repeat("]", 600): "nests deeper",
	} {
		// {metadata: {}, data: {raw: ...}}
		message := append([]byte{0x12}, appendLength(append([]byte{0x0a}, appendLength([]byte(raw))...))...)
		head := metav1.TypeMeta{Kind: "ControllerRevision", APIVersion: "apps/v1"}
		d, err := wire.Decode(revisions, wire.Protobuf, wire.AppendEnvelope(nil, head, message))
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%.20q: %v, want %q", raw, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.20q: %v", raw, err)
		} else if _, err := wire.Encode(revisions, d.Object); err != nil {
			t.Errorf("%.20q: %v", raw, err)
		}
	}
}

// BenchmarkDecodeProtobuf decodes an object as a client with typed objects sends it.
func BenchmarkDecodeProtobuf(b *testing.B) {
	pod, err := wire.Read(b.Context(), pods, []byte(runningPod))
	if err != nil {
		b.Fatal(err)
	}
	raw, err := wire.Message(pod)
	if err != nil {
		b.Fatal(err)
	}
	body := wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, raw)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.Decode(pods, wire.Protobuf, body); err != nil {
			b.Fatal(err)
		}
	}
}

// appendLength is bytes behind their length.
func appendLength(value []byte) []byte { return protowire.AppendBytes(nil, value) }

// TestProtobufTextNamesField: the error names the field, wherever it is.
func TestProtobufTextNamesField(t *testing.T) {
	pods := builtin.Catalog().Lookup("", "v1", "pods")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"k": "good"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "image", Env: []corev1.EnvVar{{Name: "NAME"}}}}},
	}
	raw, err := wire.Message(pod)
	if err != nil {
		t.Fatal(err)
	}
	for text, field := range map[string]string{"good": "metadata.labels", "image": "spec.containers.image", "NAME": "spec.containers.env.name"} {
		wrong := bytes.Replace(raw, []byte(text), []byte("\xff"+text[1:]), 1)
		head := metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		_, err := wire.Decode(pods, wire.Protobuf, wire.AppendEnvelope(nil, head, wrong))
		if want := field + ": a string is not valid UTF-8"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
