package wire_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestAppendUnmanaged removes managed fields wherever they are in the metadata, and nothing else.
func TestAppendUnmanaged(t *testing.T) {
	const managed = `"managedFields":[{"manager":"a \"managedFields\":[ }","fieldsV1":{"f:metadata":{"f:managedFields":{},"k:{\"a\":[1]}":{}}}}]`
	for _, c := range []struct{ value, want string }{
		{`{"kind":"K","metadata":{"name":"a",` + managed + `},"spec":{"a":1}}`, `{"kind":"K","metadata":{"name":"a"},"spec":{"a":1}}`},
		{`{"metadata":{` + managed + `,"name":"a"}}`, `{"metadata":{"name":"a"}}`},
		{`{"metadata":{"labels":{"a":"}"},` + managed + `,"name":"a"}}`, `{"metadata":{"labels":{"a":"}"},"name":"a"}}`},
		{`{"metadata":{` + managed + `}}`, `{"metadata":{}}`},
		{`{"metadata":{"name":"a","managedFields":[]}}`, `{"metadata":{"name":"a"}}`},
		// These have none.
		{`{"metadata":{"name":"a"},"spec":{` + managed + `}}`, ""},
		{`{"metadata":{"name":"a"},"spec":{"template":{"metadata":{` + managed + `}}}}`, ""},
		{`{"metadata":{"annotations":{"managedFields":"x","y":"\"managedFields\":[1]"}}}`, ""},
		{`{"metadata":{}}`, ""},
		{`{"kind":"Status","status":"Failure"}`, ""},
		{`{"metadata":{` + managed[:len(managed)-1], ""},
	} {
		if c.want == "" {
			c.want = c.value
		}
		if got := string(wire.AppendUnmanaged([]byte("before "), []byte(c.value))); got != "before "+c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.value, got, c.want)
		}
	}
}

// FuzzAppendUnmanaged compares with a decoder, for all texts and places of the member.
func FuzzAppendUnmanaged(f *testing.F) {
	f.Add("a", `"managedFields":[`, "}", true)
	f.Add("metadata", `\"`, `"metadata":{`, false)
	f.Fuzz(func(t *testing.T, key, text, other string, last bool) {
		meta := map[string]any{"annotations": map[string]any{key: text, "managedFields": other}, "managedFields": []any{map[string]any{"manager": text, "fieldsV1": map[string]any{"f:" + key: map[string]any{}}}}}
		if last {
			meta["zone"] = other
		}
		object := map[string]any{"kind": "K", "metadata": meta, "spec": map[string]any{key: text, "managedFields": []any{other}}}
		value, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		got := wire.AppendUnmanaged(nil, value)
		delete(meta, "managedFields")
		want, err := json.Marshal(object)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s\n got %s\nwant %s", value, got, want)
		}
	})
}

// TestNegotiateUnmanaged checks the parameter drop, with the feature and without it.
func TestNegotiateUnmanaged(t *testing.T) {
	const drop = ";drop=metadata.managedFields"
	on, off := wire.Served{CBOR: true, Unmanaged: true}, wire.Served{CBOR: true}
	for _, c := range []struct {
		served  wire.Served
		header  string
		want    wire.Output
		refused bool
	}{
		{on, "application/json" + drop, wire.Output{Media: wire.JSON, Unmanaged: true}, false},
		{off, "application/json" + drop, wire.Output{Media: wire.JSON}, false},
		{off, "application/json;drop=spec", wire.Output{Media: wire.JSON}, false},
		{on, "application/json", wire.Output{Media: wire.JSON}, false},
		{on, "application/json;drop=", wire.Output{Media: wire.JSON}, false},
		{on, "application/json;drop", wire.Output{Media: wire.JSON}, false},
		{on, "application/json;drop=spec, application/yaml", wire.Output{Media: wire.YAML}, false},
		{on, "application/json;drop=spec", wire.Output{}, true},
		{on, "application/json;drop=metadata.managedFields+spec", wire.Output{}, true},
		{on, `application/json;drop="metadata.managedFields"`, wire.Output{}, true},
		{on, "application/json" + drop + ";pretty=1", wire.Output{Media: wire.JSON, Pretty: true, Unmanaged: true}, false},
		{on, "application/json;as=Table;g=meta.k8s.io;v=v1" + drop, wire.Output{Media: wire.JSON, Form: wire.Table, Unmanaged: true}, false},
		{on, "application/vnd.kubernetes.protobuf" + drop + ", application/json", wire.Output{Media: wire.Protobuf, Unmanaged: true}, false},
		{on, "application/cbor" + drop, wire.Output{Media: wire.CBOR, Unmanaged: true}, false},
		{on, "*/*" + drop, wire.Output{Media: wire.JSON, Unmanaged: true}, false},
	} {
		got, err := c.served.Negotiate(c.header, wire.Objects)
		if !reflect.DeepEqual(got, c.want) || (err != nil) != c.refused {
			t.Errorf("%s: %+v, %v", c.header, got, err)
		}
		if c.refused && !strings.Contains(err.Error(), "only the following media types are accepted") {
			t.Errorf("%s: %v", c.header, err)
		}
	}
}
