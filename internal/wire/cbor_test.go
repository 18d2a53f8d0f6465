package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

var (
	pods        = builtin.Catalog().Lookup("", "v1", "pods")
	definitions = builtin.Catalog().Lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	inCBOR      = wire.Output{Media: wire.CBOR}
)

func toCBOR(t testing.TB, v any) []byte {
	t.Helper()
	b, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fromCBOR(t testing.TB, b []byte) (v any) {
	t.Helper()
	if err := direct.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %x", err, b)
	}
	return v
}

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDecodeCBOR: the words are those of kube-apiserver.
func TestDecodeCBOR(t *testing.T) {
	const (
		unknown = unrecognized + "unable to determine group/version/kind: "
		handled = `ConfigMap in version "v1" cannot be handled as a ConfigMap: `
	)
	for _, row := range []struct{ name, body, want string }{
		{"empty", "", unknown + "EOF (<empty>)"},
		{"a break", "ff", unknown + `cbor: unexpected "break" code (ff)`},
		{"an array", "80", unknown + "cbor: cannot unmarshal array into Go value of type v1.TypeMeta (cannot decode CBOR array to struct without toarray option) (80)"},
		{"a tag of nothing", "d9d9f7", unknown + "unexpected EOF (d9d9f7)"},
		{"something behind", "a0a0", unknown + "cbor: 1 bytes of extraneous data starting at index 1 (a0a0)"},
		{"a key twice", "a26161016161f6", unknown + `cbor: found duplicate map key "a" at map element index 1 (a26161016161f6)`},
		{"a number for a kind", "a1446b696e6401", unknown + "cbor: cannot unmarshal positive integer into Go struct field v1.TypeMeta.kind of type string (a1446b696e6401)"},
		{"a number for a name", "a1486d65746164617461a1446e616d6505", handled + "cbor: cannot unmarshal positive integer into Go struct field v1.ConfigMap.metadata of type string"},
		{"not UTF-8", "a1686d65746164617461a1646e616d6561ff", handled + "cbor: invalid UTF-8 string"},
		{"not UTF-8, as bytes", "a14464617461a1416b41ff", handled + "cbor: invalid UTF-8 in a byte string that stands for text"},
		{"another kind", hex.EncodeToString(toCBOR(t, map[string]any{"kind": "Pod"})), `Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion`},
		{"an unknown kind", hex.EncodeToString(toCBOR(t, map[string]any{"kind": "Nope", "apiVersion": "v9"})), `Nope in version "v9" cannot be handled as a ConfigMap: no kind "Nope" is registered for version "v9" in scheme "pkg/runtime/scheme.go:111"`},
	} {
		_, err := wire.Decode(configMaps, wire.CBOR, fromHex(t, row.body))
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusBadRequest || status.Status().Message != row.want {
			t.Errorf("%s:\n%v, want\n%s", row.name, err, row.want)
		}
	}
}

// TestDecodeCBORFields: the first unknown field is reported, and all are dropped.
func TestDecodeCBORFields(t *testing.T) {
	body := toCBOR(t, map[string]any{
		"bogus": 1, "other": 2, "metadata": map[string]any{"name": "a"}, "data": map[string]any{"k": "<é>"}, "binaryData": map[string]any{"b": []byte{0xff, 0}},
	})
	for _, b := range [][]byte{body, append([]byte("\xd9\xd9\xf7"), body...)} {
		d, err := wire.Decode(configMaps, wire.CBOR, b)
		if err != nil {
			t.Fatal(err)
		}
		m := d.Object.(*corev1.ConfigMap)
		if len(d.Strict) != 1 || !strings.HasPrefix(d.Strict[0], "cbor: found unknown field at map element index ") {
			t.Errorf("the complaints are %q", d.Strict)
		}
		if m.Name != "a" || m.Data["k"] != "<é>" || string(m.BinaryData["b"]) != "\xff\x00" {
			t.Errorf("%+v", m)
		}
	}
}

// TestCBORNotText: invalid text does not matter in parts that are not decoded.
func TestCBORNotText(t *testing.T) {
	if d, err := wire.Decode(configMaps, wire.CBOR, []byte("\xa2\x42\xffx\x01\x68metadata\xa1\x64name\x41a")); err != nil || len(d.Strict) != 1 || d.Object.(*corev1.ConfigMap).Name != "a" {
		t.Errorf("an unknown field: %v, %v", d.Strict, err)
	}
	if d, err := wire.Decode(configMaps, wire.CBOR, []byte("\xa1\x6abinaryData\xa1\x61k\xd6\x42\xff\x00")); err != nil || string(d.Object.(*corev1.ConfigMap).BinaryData["k"]) != "\xff\x00" {
		t.Errorf("bytes: %v", err)
	}
}

// TestConfigurationCBOR: an applied configuration is the same in CBOR as in JSON.
func TestConfigurationCBOR(t *testing.T) {
	config, complaint, err := wire.Configuration(wire.CBOR, toCBOR(t, map[string]any{"a": 1 << 60, "b": []byte("hello"), "c": []any{nil, "x", 1.5}}))
	if want := `{"a":1152921504606846976,"b":"aGVsbG8=","c":[null,"x",1.5]}`; string(config) != want || complaint != "" || err != nil {
		t.Errorf("%s %q %v, want %s", config, complaint, err, want)
	}
	for body, want := range map[string]string{"ff": `cbor: unexpected "break" code`, "": "EOF", "a10101": "cbor: cannot unmarshal positive integer into Go value of type string"} {
		if _, _, err := wire.Configuration(wire.CBOR, fromHex(t, body)); err == nil || err.Error() != wire.DecodingPatch+want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}
}

// TestCBORForms compares objects, lists, events and documents with those of the library.
func TestCBORForms(t *testing.T) {
	r := testrand.New(t)
	b := inCBOR.Binary()
	remaining := int64(7)
	for _, n := range []int{0, 1, 23, 24, 300, 70_000} {
		list := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "tok", RemainingItemCount: &remaining}, Items: []corev1.ConfigMap{}}
		f := wire.ListOf(configMaps, wire.ListMeta{Revision: 77, Continue: "tok", Remaining: &remaining})
		text := b.ListHead(nil, &f, wire.ListSize{Items: n})
		for range n {
			m := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", r.IntN(30))}, BinaryData: map[string][]byte{"k": []byte("v")}}
			list.Items = append(list.Items, m)
			raw, err := b.Raw(m.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			text = b.Item(text, wire.ItemTypeOf(configMaps, inCBOR), raw)
		}
		same(t, append(text, b.Tail...), &list)
	}
	partial := wire.Output{Media: wire.CBOR, Form: wire.PartialList}
	f := wire.PartialListOf(partial, wire.ListMeta{Revision: 5})
	same(t, b.ListHead(nil, &f, wire.ListSize{}), &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "5"}})
	raw, err := b.RawPartial([]byte(`{"name":"a","labels":{"b":"c"},"creationTimestamp":"2026-01-02T03:04:05Z"}`))
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "a", Labels: map[string]string{"b": "c"}, CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	item := metav1.PartialObjectMetadata{TypeMeta: wire.ItemTypeOf(configMaps, partial), ObjectMeta: meta}
	same(t, append(b.ListHead(nil, &f, wire.ListSize{Items: 1}), b.Item(nil, wire.ItemTypeOf(configMaps, partial), raw)...),
		&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "5"}, Items: []metav1.PartialObjectMetadata{item}})

	var inner bytes.Buffer
	if err := cbor.NewSerializer(nil, nil).Encode(&item, &inner); err != nil {
		t.Fatal(err)
	}
	same(t, b.Event(nil, "ADDED", item.TypeMeta, raw), &metav1.WatchEvent{Type: "ADDED", Object: kruntime.RawExtension{Raw: inner.Bytes()}})

	status, err := b.Append(nil, []byte(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","details":{"retryAfterSeconds":3},"code":404}`))
	if err != nil {
		t.Fatal(err)
	}
	same(t, status, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Details: &metav1.StatusDetails{RetryAfterSeconds: 3}, Code: 404})
}

// same compares CBOR with the library's encoding of an object.
func same(t *testing.T, got []byte, o kruntime.Object) {
	t.Helper()
	var want bytes.Buffer
	var w any = o
	if event, ok := w.(*metav1.WatchEvent); ok {
		want.WriteString("\xd9\xd9\xf7")
		want.Write(toCBOR(t, event))
	} else if err := cbor.NewSerializer(nil, nil).Encode(o, &want); err != nil {
		t.Fatal(err)
	}
	a, b := fromCBOR(t, got), fromCBOR(t, want.Bytes())
	if !reflect.DeepEqual(a, b) || len(got) != want.Len() || !bytes.HasPrefix(got, []byte("\xd9\xd9\xf7")) {
		t.Errorf("%T: %d bytes, want %d (-got +want):\n%.2000s", o, len(got), want.Len(), cmp.Diff(a, b))
	}
}

// head is the head of a data item with a count of four bytes.
func head(major byte, n uint32) []byte {
	return []byte{major<<5 | 26, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// containers is a Pod whose containers are the elements of an array.
func containers(elements []byte, n uint32) []byte {
	b := []byte("\xa1\x64spec\xa1\x6acontainers")
	return append(append(b, head(4, n)...), elements...)
}

// cborBombs are bodies that would cost more than they say.
func cborBombs() map[string]struct {
	body []byte
	code int32
} {
	const largest = 3 << 20
	keys := func(n int) []byte {
		b := append([]byte("\xa1\x64spec\xa1\x6abogusbogus"), head(5, uint32(n))...)
		for i := range n {
			b = append(b, 0x44, byte(i), byte(i>>8)&0x7f, byte(i>>15), 'k')
			for j := range 3 {
				b[len(b)-4+j] &= 0x7f
			}
			b = append(b, 0xa0)
		}
		return b
	}
	nested := func(b string, n int) []byte {
		return append([]byte("\xa1\x64spec\xa1\x6abogusbogus"), strings.Repeat(b, n)...)
	}
	return map[string]struct {
		body []byte
		code int32
	}{
		"arrays in arrays":                 {nested("\x81", largest), 400},
		"maps in maps":                     {nested("\xa1\x61k", largest/3), 400},
		"arrays without an end":            {nested("\x9f", largest), 400},
		"tags of tags":                     {nested("\xc1", largest), 400},
		"self-described, again and again":  {nested("\xd9\xd9\xf7", largest/3), 400},
		"an array of four billion":         {containers(nil, 1<<32-1), 400},
		"an array larger than memory":      {[]byte("\x9b\xff\xff\xff\xff\xff\xff\xff\xff"), 400},
		"a map larger than memory":         {[]byte("\xbb\xff\xff\xff\xff\xff\xff\xff\xff"), 400},
		"a string larger than memory":      {[]byte("\x5b\xff\xff\xff\xff\xff\xff\xff\xff"), 400},
		"a million empty containers":       {containers(bytes.Repeat([]byte{0xa0}, 1<<20), 1<<20), 413},
		"three million containers of null": {containers(bytes.Repeat([]byte{0xf6}, largest-100), largest-100), 413},
		"three million numbers":            {containers(bytes.Repeat([]byte{0x00}, largest-100), largest-100), 413},
		"more entries than there may be":   {keys(1 << 18), 413},
		"a string of a million parts":      {append(nested("\x5f", 1), bytes.Repeat([]byte{0x40}, 1<<20)...), 413},
		"a string that never ends":         {append(nested("\x5f", 1), bytes.Repeat([]byte{0x41, 'x'}, 1000)...), 400},
		"the same key ten thousand times":  {append(append([]byte("\xa1\x68metadata\xa1\x66labels"), head(5, 10_000)...), bytes.Repeat([]byte("\x61k\x61v"), 10_000)...), 400},
		"a big number":                     {[]byte("\xa1\x64spec\xc2\x58\x20" + strings.Repeat("\xff", 32)), 400},
		"not a number":                     {[]byte("\xa1\x64spec\xf9\x7e\x00"), 400},
		"an undefined simple value":        {[]byte("\xa1\x64spec\xe0"), 400},
	}
}

// mostCPU is the CPU time that the tests let a call have. Calls take a small part of it, unless their time grows with the
// square of the input.
const mostCPU = 20 * time.Second

// cost returns the CPU time of a call, and how many bytes it allocates.
func cost(f func()) (cpu time.Duration, bytes uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := testkinds.CPUTime()
	f()
	cpu = testkinds.CPUTime() - begin
	runtime.ReadMemStats(&after)
	return cpu, after.TotalAlloc - before.TotalAlloc
}

// TestCBORBombs: they end fast, without much memory, with 400 or 413.
func TestCBORBombs(t *testing.T) {
	for name, bomb := range cborBombs() {
		for read, f := range map[string]func() error{
			"an object": func() error { _, err := wire.Decode(pods, wire.CBOR, bomb.body); return err },
			"options": func() error {
				o := &metav1.DeleteOptions{}
				_, err := wire.ReadOptions(bomb.body, schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, o)
				return err
			},
			"a configuration": func() error { _, _, err := wire.Configuration(wire.CBOR, bomb.body); return err },
		} {
			var err error
			took, bytes := cost(func() { err = f() })
			var status apierrors.APIStatus
			code := int32(http.StatusBadRequest) // another error becomes a Status
			if errors.As(err, &status) {
				code = status.Status().Code
			}
			ignored := read == "options" && bomb.code == 400 // in fields that options have not
			if err == nil && !ignored || code != bomb.code {
				t.Errorf("%s as %s: %d %.200v, want %d", name, read, code, err, bomb.code)
			}
			if took > mostCPU || bytes > 64<<20 {
				t.Errorf("%s as %s: %v and %d bytes", name, read, took, bytes)
			}
		}
	}
}

// TestCBORLimits checks that large valid bodies are accepted.
func TestCBORLimits(t *testing.T) {
	data := map[string]any{}
	for i := range 50_000 {
		data[strings.Repeat("k", 1+i%7)+string(rune('a'+i%26))+time.Duration(i).String()] = "value"
	}
	d, err := wire.Decode(configMaps, wire.CBOR, toCBOR(t, map[string]any{"data": data}))
	if err != nil || len(d.Object.(*corev1.ConfigMap).Data) != len(data) {
		t.Errorf("fifty thousand keys: %v", err)
	}
	schemas := any(map[string]any{"type": "object"})
	for range 120 {
		schemas = map[string]any{"type": "array", "items": schemas}
	}
	deep := map[string]any{"spec": map[string]any{"versions": []any{map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": schemas}}}}}
	if _, err := wire.Decode(definitions, wire.CBOR, toCBOR(t, deep)); err != nil {
		t.Errorf("a deep schema: %v", err)
	}
	if _, err := wire.Decode(configMaps, wire.CBOR, fromHex(t, "bf646461 7461bf5f4161ff7f6178ffffff"[:8]+"7461bf5f4161ff7f6178ffffff")); err != nil {
		t.Errorf("without lengths: %v", err)
	}
}

// FuzzFieldsCBOR: a set of managed fields is written as the field's library writes it.
func FuzzFieldsCBOR(f *testing.F) {
	var many strings.Builder
	for i := range 300 {
		many.WriteString(`"f:` + time.Duration(i).String() + `":{},`)
	}
	for _, s := range []string{
		"{}", "null", "", `{"f:a":{"k:{\"n\":\"}\"}":{".":{},"f:b":{}}}}`, `{"f:a\u00e9\u003c":{}}`, `{"a":1}`, `{"a":{}`, `{"a":{}}}`, ` {"a":{}}`, `{"a" :{}}`, `{"a":{},"a":{}}`, `{"":{},}`, `{,}`, `{"a"}`, "{\"\xff\":{}}",
		"{" + strings.TrimSuffix(many.String(), ",") + "}", strings.Repeat(`{"a":`, 600) + "{}" + strings.Repeat("}", 600), "\xa0", "\xa1\x41a\xa0",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		object := func() *metav1.PartialObjectMetadata {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(s)}}}}
		}
		want, libraryErr := direct.Marshal(object())
		got, err := inCBOR.Binary().Raw(object())
		if err != nil {
			if libraryErr == nil {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		var a, b any
		gotErr, wantErr := direct.Unmarshal(got, &a), direct.Unmarshal(want, &b)
		switch {
		case libraryErr != nil || wantErr != nil: // no JSON, which is never stored
		case gotErr != nil:
			t.Errorf("%q: %v", s, gotErr)
		case cmp.Diff(a, b) != "":
			t.Errorf("%q (-got +want):\n%s", s, cmp.Diff(a, b))
		}
	})
}

// FuzzCBOR checks that no body costs more than its length allows, and that a decoded object is
// encoded and decoded again to the same.
func FuzzCBOR(f *testing.F) {
	for _, bomb := range cborBombs() {
		if len(bomb.body) < 1<<12 {
			f.Add(bomb.body)
		}
	}
	for _, s := range []string{"a0", "d9d9f7a1686d65746164617461a1646e616d656161", "a16464617461a1616bd64178", "bf6464617461bf5f4161ff7f6178ffffff", "a16a62696e61727944617461a16161d541ff"} {
		f.Add(fromHex(f, s))
	}
	r := rand.New(rand.NewPCG(1, 2))
	f.Add(slices.Concat([]byte("\xa1\x64data"), head(5, 3), []byte("\x61a\x61b\x61c\x61d\x61e\x61f")))
	f.Add(bytes.Repeat([]byte{byte(r.IntN(256))}, 100))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 1<<16 {
			return
		}
		for _, typ := range []*struct {
			name string
			read func() (kruntime.Object, error)
		}{
			{"a Pod", func() (kruntime.Object, error) { d, err := wire.Decode(pods, wire.CBOR, body); return d.Object, err }},
			{"a ConfigMap", func() (kruntime.Object, error) {
				d, err := wire.Decode(configMaps, wire.CBOR, body)
				return d.Object, err
			}},
			{"a definition", func() (kruntime.Object, error) {
				d, err := wire.Decode(definitions, wire.CBOR, body)
				return d.Object, err
			}},
			{"a configuration", func() (kruntime.Object, error) { _, _, err := wire.Configuration(wire.CBOR, body); return nil, err }},
		} {
			var o kruntime.Object
			var err error
			took, size := cost(func() { o, err = typ.read() })
			if took > 20*time.Second || size > 1<<20+uint64(len(body))*4096 {
				t.Errorf("%s: %d bytes of body took %v and %d bytes", typ.name, len(body), took, size)
			}
			if err != nil || o == nil {
				continue
			}
			if _, err := inCBOR.Binary().Raw(o.DeepCopyObject()); err != nil {
				t.Errorf("%s: what was read is not written: %v", typ.name, err)
			}
		}
	})
}
