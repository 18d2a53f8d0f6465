package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestAliases checks that text that aliases would make large is rejected before it is large.
func TestAliases(t *testing.T) {
	body := func(n int) []byte {
		return []byte("metadata: {name: a}\ndata:\n  a: &a " + strings.Repeat("x", 50_000) + strings.Repeat("\n  b: *a", 1) +
			"\n  c: \"&*\"\nbinaryData: {}\nextra: [" + strings.Repeat("*a,", n) + "]\n")
	}
	if d, err := wire.Decode(configMaps, wire.YAML, body(2)); err != nil || len(d.Strict) == 0 {
		t.Errorf("a few aliases: %v, %v", d.Strict, err)
	}
	_, err := wire.Decode(configMaps, wire.YAML, body(1000))
	if err == nil || !strings.Contains(err.Error(), "aliases") {
		t.Errorf("a thousand aliases of 50 kB: %v", err)
	}
	if _, err := wire.FromYAML(body(1000)); err == nil {
		t.Error("FromYAML took them")
	}
}

// TestManyTagDirectives: the cost of directives grows with the square of their number, so few are allowed, in
// whatever encoding.
func TestManyTagDirectives(t *testing.T) {
	body := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%%TAG !%x! a\n", i)
		}
		return b.String() + "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n"
	}
	if _, err := wire.Decode(configMaps, wire.YAML, []byte(body(64))); err != nil {
		t.Errorf("64 directives: %v", err)
	}
	var wide []byte // UTF-16
	for _, r := range "\ufeff" + body(65) {
		wide = binary.LittleEndian.AppendUint16(wide, uint16(r))
	}
	for _, text := range [][]byte{[]byte(body(65)), wide} {
		if _, err := wire.Decode(configMaps, wire.YAML, text); err == nil {
			t.Error("Decode took 65 directives")
		}
		if _, err := wire.FromYAML(text); err == nil {
			t.Error("FromYAML took 65 directives")
		}
		if _, _, err := wire.Configuration(wire.YAML, text); err == nil {
			t.Error("Configuration took 65 directives")
		}
	}
}

// TestDeepProtobuf: a message that nests without end is refused, not followed.
func TestDeepProtobuf(t *testing.T) {
	typ := builtin.Catalog().Lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	for _, depth := range []int{20, 2000} {
		schema := apiextensions.JSONSchemaProps{Type: "object"}
		for range depth {
			inner := schema
			schema = apiextensions.JSONSchemaProps{Type: "array", Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &inner}}
		}
		crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: apiextensions.CustomResourceDefinitionSpec{
			Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &schema}}},
		}}
		raw, err := crd.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, Raw: raw}
		body, err := envelope.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		_, err = wire.Decode(typ, wire.Protobuf, append([]byte("k8s\x00"), body...))
		if tooDeep := depth > 500; (err != nil) != tooDeep || tooDeep && !strings.Contains(err.Error(), "nests deeper than 512") {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}

// repeated is a message that has an empty message in a field again and again, below
// other fields.
func repeated(n int, tag byte, below ...byte) []byte {
	b := bytes.Repeat([]byte{tag, 0}, n)
	for _, tag := range below {
		b = protowire.AppendBytes([]byte{tag}, b)
	}
	return b
}

// TestBombs checks that small bodies that would become large are rejected in little time and
// memory, in each format, and that the largest valid bodies are not.
func TestBombs(t *testing.T) {
	const megabyte = 1 << 20
	inYAML := megabyte / 4
	if tier.IsFull(t) {
		inYAML = megabyte
	}
	message := func(kind, version string, raw []byte) []byte {
		return wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: kind, APIVersion: version}, raw)
	}
	pod := func(container string, n int) []byte {
		return []byte(`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[` + strings.Repeat(container+",", n) + `{}]}}`)
	}
	managed := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"m","fieldsType":"FieldsV1","fieldsV1":{` + strings.Repeat(`"f:a":{},`, 300_000) + `"f:b":{}}}]}}`
	laughs := "metadata: {name: a}\na0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 8), i)
	}
	crds := builtin.Catalog().Lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
	for _, bomb := range []struct {
		name   string
		typ    *resource.Type
		media  wire.MediaType
		body   []byte
		refuse bool
	}{
		{"containers in protobuf", pods, wire.Protobuf, message("Pod", "v1", repeated(megabyte, 0x12, 0x12)), true},
		{"environments in protobuf", pods, wire.Protobuf, message("Pod", "v1", repeated(megabyte, 0x3a, 0x12, 0x12)), true},
		{"entries of a map in protobuf", configMaps, wire.Protobuf, message("ConfigMap", "v1", repeated(megabyte, 0x12)), true},
		{"versions in protobuf", crds, wire.Protobuf, message("CustomResourceDefinition", "apiextensions.k8s.io/v1", repeated(megabyte, 0x3a, 0x12)), true},
		{"fields that are not known in protobuf", pods, wire.Protobuf, message("Pod", "v1", repeated(megabyte, 0x7a)), true},
		{"empty containers", pods, wire.JSON, pod("{}", megabyte), true},
		{"containers that are null", pods, wire.JSON, pod("null", megabyte/2), true},
		{"empty containers in YAML", pods, wire.YAML, pod("{}", inYAML), true},
		{"schemas", crds, wire.JSON, []byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"oneOf":[` + strings.Repeat("{},", megabyte) + `{}]}}}]}}`), true},
		{"objects in a string", configMaps, wire.JSON, []byte(`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"` + strings.Repeat("{},null,", 300_000) + `"}}`), false},
		{"lists in lists", configMaps, wire.JSON, []byte(strings.Repeat("[", 3*megabyte)), true},
		{"aliases of aliases", configMaps, wire.YAML, []byte(laughs), true},
		{"managed fields", pods, wire.JSON, []byte(managed), false},
		{"empty finalizers", configMaps, wire.JSON, finalizers(270_000), true},
		{"empty finalizers in protobuf", configMaps, wire.Protobuf, message("ConfigMap", "v1", repeated(megabyte, 0x72, 0x0a)), true},
		{"many finalizers", configMaps, wire.JSON, finalizers(260_000), false},
		{"commas in a string", configMaps, wire.JSON, []byte(`{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"` + strings.Repeat("1,", megabyte) + `"}}`), false},
		{"many containers", pods, wire.JSON, pod(`{"name":"a","image":"b"}`, 90_000), false},
	} {
		t.Run(bomb.name, func(t *testing.T) {
			var err error
			took, made := cost(func() { _, err = wire.Decode(bomb.typ, bomb.media, bomb.body) })
			if refused := err != nil; refused != bomb.refuse {
				t.Fatalf("%d bytes: %v", len(bomb.body), err)
			}
			if t.Logf("%d bytes became %d MiB in %v", len(bomb.body), made>>20, took); made > 400<<20 || took > mostCPU {
				t.Error("this is too much")
			}
		})
	}
}

// FuzzBombs: whatever a body repeats, decoding it takes memory and
// time that one client can be given.
func FuzzBombs(f *testing.F) {
	const (
		head    = `{"kind":"Pod","apiVersion":"v1","spec":{"containers":[`
		largest = 1 << 20
	)
	for i, seed := range []struct{ before, again, after string }{
		{head, "{},", "{}]}}"},
		{head, `{"env":[{}]},`, "{}]}}"},
		{"spec:\n  containers:\n", "  - {}\n", ""},
		{"spec: &a\n  containers: [", "*a,", "]\n"},
		{"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Pod\x12", "\x12\x00", ""},
		{"", "[", ""},
		{`{"metadata":{"managedFields":[{"fieldsV1":{`, `"f:a":{},`, `"f:b":{}}}]}}`},
	} {
		f.Add(seed.before, seed.again, seed.after, uint32(100_000), i)
	}
	medias := []wire.MediaType{wire.JSON, wire.YAML, wire.Protobuf}
	f.Fuzz(func(t *testing.T, before, again, after string, n uint32, i int) {
		if len(again) == 0 || len(before)+len(after) > largest {
			return
		}
		body := []byte(before + strings.Repeat(again, int(n)%(largest/len(again)+1)) + after)
		var err error
		took, made := cost(func() { _, err = wire.Decode(pods, medias[uint(i)%uint(len(medias))], body) })
		if made > 400<<20 || took > mostCPU {
			t.Errorf("%d bytes became %d MiB in %v: %v", len(body), made>>20, took, err)
		}
	})
}

// finalizers is a ConfigMap with empty finalizers.
func finalizers(n int) []byte {
	return []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","finalizers":[` + strings.Repeat(`"",`, n) + `""]}}`)
}

// TestWork: a body of many small values counts as much as a long one, whatever it is written in.
func TestWork(t *testing.T) {
	const long = 1 << 20
	usual := []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{` + strings.Repeat(`"name.of.a.usual.key":"a value of the usual length that is some 60",`, 1000) + `"b":""}}`)
	raw := protowire.AppendBytes([]byte{0x0a}, bytes.Repeat([]byte{0x72, 0}, 20_000))
	for _, test := range []struct {
		name  string
		media wire.MediaType
		body  []byte
		dense bool
	}{
		{"JSON", wire.JSON, finalizers(20_000), true},
		{"YAML in flow style", wire.YAML, finalizers(20_000), true},
		{"YAML in block style", wire.YAML, []byte("metadata:\n  finalizers:\n" + strings.Repeat("  - a\n", 20_000)), true},
		{"aliases in YAML", wire.YAML, []byte("a: &a [" + strings.Repeat("x,", 1000) + "]\nb: [" + strings.Repeat("*a,", 100) + "]\n"), true},
		{"protobuf", wire.Protobuf, wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, raw), true},
		{"CBOR", wire.CBOR, slices.Concat([]byte{0xa1, 0x61, 'a', 0x99, 20_000 >> 8, 20_000 & 0xff}, bytes.Repeat([]byte{0x60}, 20_000)), true},
		{"a usual body", wire.JSON, usual, false},
		{"a small body", wire.JSON, []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}`), false},
	} {
		got := wire.Work(configMaps, test.media, test.body)
		if test.dense && got < long || !test.dense && got > len(test.body)*2 {
			t.Errorf("%s: %d bytes cost as much as %d", test.name, len(test.body), got)
		}
	}
}
