package builtin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// source adapts a random generator to randfill.
type source struct{ *rand.Rand }

func (s source) Int63() int64 { return s.Int64() }
func (s source) Seed(int64)   {}

// filler returns a filler that sets every field to a value that JSON can represent.
func filler(r *rand.Rand) *randfill.Filler {
	return randfill.New().RandSource(source{r}).NilChance(0.1).NumElements(1, 3).MaxDepth(14).Funcs(
		func(s *string, _ randfill.Continue) { *s = fmt.Sprintf("s<%d>&é", r.IntN(1000)) },
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(1+r.Int64N(1<<31), 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) {
			*t = metav1.NewMicroTime(time.UnixMicro(1 + r.Int64N(1<<50)))
		},
		func(d *metav1.Duration, _ randfill.Continue) { d.Duration = time.Duration(r.IntN(1000)) * time.Second },
		func(q *apiresource.Quantity, _ randfill.Continue) {
			*q = apiresource.MustParse(fmt.Sprintf("%dMi", 1+r.IntN(999)))
		},
		func(i *intstr.IntOrString, _ randfill.Continue) { *i = intstr.FromInt32(int32(r.IntN(99))) },
		func(f *metav1.FieldsV1, _ randfill.Continue) {
			*f = *metav1.NewFieldsV1(`{"f:a":{"k:{\"n\":\"}\"}":{}}}`)
		},
		func(e *runtime.RawExtension, _ randfill.Continue) { e.Raw = []byte(`{"a":1,"b":[{}]}`) },
		func(j *apiextensionsv1.JSON, _ randfill.Continue) { j.Raw = []byte(`{"a":1}`) },
		func(m *metav1.TypeMeta, _ randfill.Continue) { *m = metav1.TypeMeta{} }, // protobuf does not encode it for parts of an object
	)
}

// TestEveryKindInEveryMedium encodes and decodes an object of each kind with every field filled as
// JSON, YAML, protobuf and CBOR, extracts its metadata, and makes a row of its table.
func TestEveryKindInEveryMedium(t *testing.T) {
	r, n := testrand.New(t), 1
	if tier.IsFull(t) {
		n = 4
	}
	types := everyType()
	if len(types) < 70 {
		t.Errorf("%d types", len(types))
	}
	for _, typ := range types {
		t.Run(typ.GroupVersionKind().String(), func(t *testing.T) {
			for range n {
				o := typ.New()
				filler(r).Fill(o)
				o.GetObjectKind().SetGroupVersionKind(typ.GroupVersionKind())
				everyMedium(t, typ, o)
			}
			everyMedium(t, typ, typ.New()) // with no field set
		})
	}
}

// everyType returns the types of the catalog and of its subresources, each once.
func everyType() []*resource.Type {
	var all []*resource.Type
	add := func(t *resource.Type) {
		if !slices.ContainsFunc(all, func(o *resource.Type) bool { return o.GroupVersionKind() == t.GroupVersionKind() }) {
			all = append(all, t)
		}
	}
	for t := range shared().Types() {
		add(t)
	}
	for t := range shared().Types() {
		for i := range t.Subresources {
			if t.Subresources[i].Exchange != nil {
				add(t.Subresources[i].Exchange)
			}
		}
	}
	return all
}

func everyMedium(t *testing.T, typ *resource.Type, o runtime.Object) {
	t.Helper()
	sent, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	first, err := wire.Decode(typ, wire.JSON, sent)
	if err != nil {
		t.Fatal(err)
	}
	text, err := wire.ToYAML(sent)
	if err != nil {
		t.Fatal(err)
	}
	bodies := map[wire.MediaType][]byte{wire.YAML: text}
	for _, media := range []wire.MediaType{wire.Protobuf, wire.CBOR} {
		out := wire.Output{Media: media}
		raw, err := out.Binary().Raw(first.Object.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		bodies[media] = out.Binary().Object(nil, wire.TypeOf(typ, out), raw)
	}
	checkCBOR(t, typ, first.Object.DeepCopyObject(), bodies[wire.CBOR])
	for media, body := range bodies {
		d, err := wire.Decode(typ, media, body)
		if err != nil || len(d.Strict) > 0 {
			t.Fatalf("%s: %v %v", media, d.Strict, err)
		}
		d.Object.GetObjectKind().SetGroupVersionKind(typ.GroupVersionKind()) // protobuf has it in the envelope
		first.Object.GetObjectKind().SetGroupVersionKind(typ.GroupVersionKind())
		if !equality.Semantic.DeepEqual(d.Object, first.Object) {
			t.Fatalf("%s (-got +want):\n%s", media, cmp.Diff(encoded(t, d.Object), encoded(t, first.Object)))
		}
	}
	if typ.Collection == "" || typ.Conversion != nil {
		return
	}
	stored, err := wire.Encode(typ, first.Object)
	if err != nil {
		t.Fatal(err)
	}
	meta, err := wire.MetadataOf(stored.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	var got metav1.ObjectMeta
	if err := json.Unmarshal(meta, &got); err != nil {
		t.Fatalf("%v: %s", err, meta)
	}
	if want := *first.Object.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta); !equality.Semantic.DeepEqual(got, want) {
		t.Fatalf("metadata (-got +want):\n%s", cmp.Diff(got, want))
	}
	checkMessages(t, typ, stored.Bytes, first.Object)
	checkRow(t, typ, first.Object)
	checkRowOfSome(t, typ, stored.Bytes)
}

// checkRowOfSome checks that a row made of the declared members alone equals that of the whole
// object.
func checkRowOfSome(t *testing.T, typ *resource.Type, stored []byte) {
	t.Helper()
	whole, err := wire.Read(context.Background(), typ, stored)
	if err != nil {
		t.Fatal(err)
	}
	some, err := wire.ReadSome(context.Background(), typ, stored, typ.Display.Columns.Reads)
	if err != nil {
		t.Fatal(err)
	}
	if len(some.(metav1.Object).GetManagedFields()) > 0 {
		t.Error("the managed fields are decoded for a row")
	}
	now := time.Now()
	var want, got resource.Row
	typ.Display.Columns.Cells(whole, &want)
	typ.Display.Columns.Cells(some, &got)
	if diff := cmp.Diff(string(got.Append(nil, now)), string(want.Append(nil, now))); diff != "" {
		t.Errorf("another row (-got +want):\n%s", diff)
	}
}

// checkMessages checks that the protobuf made directly from stored bytes equals that of the decoded
// object, except for the resource version.
func checkMessages(t *testing.T, typ *resource.Type, stored []byte, o runtime.Object) {
	t.Helper()
	stored = bytes.Replace(stored, []byte(`"resourceVersion":""`), []byte(`"resourceVersion":"77"`), 1)
	o = o.DeepCopyObject()
	o.(metav1.Object).SetResourceVersion("77")
	want, err := wire.Message(o)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.MessageOf(typ, stored)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("another message (-got +want):\n%s\nof %s", cmp.Diff(got, want), stored)
	}
	meta, err := wire.MetadataOf(stored)
	if err != nil {
		t.Fatal(err)
	}
	want, err = wire.Message(&metav1.PartialObjectMetadata{ObjectMeta: *o.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)})
	if err != nil {
		t.Fatal(err)
	}
	if got, err = wire.PartialMessage(meta); err != nil || !bytes.Equal(got, want) {
		t.Errorf("another message of the metadata, %v (-got +want):\n%s", err, cmp.Diff(got, want))
	}
}

// checkCBOR checks that the CBOR equals that of the apimachinery serializer, in any order of
// members.
func checkCBOR(t *testing.T, typ *resource.Type, o runtime.Object, body []byte) {
	t.Helper()
	o.GetObjectKind().SetGroupVersionKind(typ.GroupVersionKind())
	var buffer bytes.Buffer
	if err := cbor.NewSerializer(nil, nil).Encode(o, &buffer); err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := errors.Join(direct.Unmarshal(body, &got), direct.Unmarshal(buffer.Bytes(), &want)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, want); diff != "" || len(body) != buffer.Len() {
		t.Fatalf("%d bytes of CBOR, not %d (-got +want):\n%s", len(body), buffer.Len(), diff)
	}
}

// checkRow checks that a row has a cell for each column, and that printing does not modify the
// object.
func checkRow(t *testing.T, typ *resource.Type, o runtime.Object) {
	t.Helper()
	before := o.DeepCopyObject()
	var row resource.Row
	typ.Display.Columns.Cells(o, &row)
	if !equality.Semantic.DeepEqual(o, before) {
		t.Errorf("its cells change the object (-got +want):\n%s", cmp.Diff(encoded(t, o), encoded(t, before)))
	}
	var got metav1.TableRow
	if err := json.Unmarshal([]byte("{"+string(row.Append(nil, time.Now()))+"}"), &got); err != nil {
		t.Fatal(err)
	}
	var columns []metav1.TableColumnDefinition
	if err := json.Unmarshal(typ.Display.Columns.Definitions(), &columns); err != nil {
		t.Fatal(err)
	}
	extra := 0
	if typ.Kind == "IPAddress" { // as in kube-apiserver: the age has no column
		extra = 1
	}
	if len(got.Cells) != len(columns)+extra {
		t.Errorf("%d cells for %d columns: %v", len(got.Cells), len(columns), got.Cells)
	}
	for i, c := range columns {
		undescribed := map[string]bool{"RuntimeClass Handler": true}
		if c.Description == "" && !undescribed[typ.Kind+" "+c.Name] {
			t.Errorf("the column %s has no description", c.Name)
		}
		if number, _ := got.Cells[i].(float64); c.Type == "integer" && fmt.Sprint(number) == "" || strings.TrimSpace(c.Name) != c.Name {
			t.Errorf("the column %s has %v", c.Name, got.Cells[i])
		}
	}
}

func encoded(t *testing.T, o runtime.Object) string {
	t.Helper()
	b, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
