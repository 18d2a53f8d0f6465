package etcdvalue_test

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestDeepValues: a value that nests as deep as 1.4 MB allow is an error. It does not overflow the stack.
func TestDeepValues(t *testing.T) {
	const size = 1_400_000
	const definitions = "customresourcedefinitions.apiextensions.k8s.io"
	deep := func(begin, end string) string {
		n := size / (len(begin) + len(end))
		return strings.Repeat(begin, n) + "1" + strings.Repeat(end, n)
	}
	var codec etcdvalue.Codec
	for name, value := range map[string]struct {
		collection string
		value      []byte
	}{
		"definition in protobuf": {definitions, wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: "CustomResourceDefinition", APIVersion: "apiextensions.k8s.io/v1"}, deepSchema(size))},
		"definition": {definitions, []byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"a.b.c"},"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":` +
			strings.Replace(deep(`{"not":`, "}"), "1", "{}", 1) + `}}]}}`)},
		"default":         {definitions, []byte(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"a.b.c"},"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"default":` + deep("[", "]") + `}}}]}}`)},
		"custom resource": {"foos.example.com", []byte(`{"kind":"Foo","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":` + deep(`{"a":`, "}") + "}")},
		"list":            {"foos.example.com", []byte(`{"kind":"Foo","apiVersion":"example.com/v1","metadata":{"name":"a"},"spec":` + deep("[", "]") + "}")},
		"metadata":        {"foos.example.com", []byte(`{"kind":"Foo","apiVersion":"example.com/v1","metadata":` + deep(`{"a":`, "}") + "}")},
		"unknown member":  {"configmaps", []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"x":` + deep("[", "]") + "}")},
		"kind":            {"configmaps", []byte(`{"kind":` + deep("[", "]") + `}`)},
		"YAML":            {"foos.example.com", []byte("kind: Foo\napiVersion: example.com/v1\nspec: " + deep("[", "]"))},
		"CBOR":            {"foos.example.com", slices.Concat([]byte{0xd9, 0xd9, 0xf7, 0xa1, 0x41, 'a'}, []byte(strings.Repeat("\x81", size)), []byte{1})},
	} {
		if _, err := codec.Decode(value.collection, value.value); err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

// deepSchema returns the message of a definition whose schema nests.
func deepSchema(size int) []byte {
	field := func(n protowire.Number, b []byte) []byte {
		return append(binary.AppendUvarint(protowire.AppendTag(nil, n, protowire.BytesType), uint64(len(b))), b...)
	}
	var heads [][]byte // from the inner to the outer ones
	for n := 0; n < size; {
		const not = 28
		head := binary.AppendUvarint(protowire.AppendTag(nil, not, protowire.BytesType), uint64(n))
		heads = append(heads, head)
		n += len(head)
	}
	slices.Reverse(heads)
	version := append(field(1, []byte("v1")), field(4, field(1, slices.Concat(heads...)))...)
	return field(2, field(7, version))
}
