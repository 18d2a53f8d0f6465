package wire_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

var (
	configMaps   = builtin.Catalog().Lookup("", "v1", "configmaps")
	roles        = builtin.Catalog().Lookup("rbac.authorization.k8s.io", "v1", "roles")
	autoscalers  = builtin.Catalog().Lookup("autoscaling", "v2", "horizontalpodautoscalers")
	autoscalers1 = builtin.Catalog().Lookup("autoscaling", "v1", "horizontalpodautoscalers")
)

// How the messages about a body that says nothing usable begin.
const (
	unrecognized = "the object provided is unrecognized (must be of type ConfigMap): "
	noVersion    = unrecognized + "couldn't get version/kind; json parse error: "
	anonymous    = `struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }`
)

// TestDecodeErrors: clients show the words as they are.
func TestDecodeErrors(t *testing.T) {
	for _, row := range []struct {
		name  string
		t     *resource.Type
		media wire.MediaType
		body  string
		want  string
	}{
		{"another kind", configMaps, wire.JSON, `{"kind":"Secret","apiVersion":"v1"}`, `Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"another kind, by name alone", configMaps, wire.JSON, `{"kind":"Secret"}`, `Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"another kind, in any case", configMaps, wire.JSON, `{"KIND":"Secret"}`, `Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		{"another group", roles, wire.JSON, `{"kind":"Deployment","apiVersion":"apps/v1"}`, `Deployment in version "v1" cannot be handled as a Role: converting (v1.Deployment) to (rbac.Role): unknown conversion`},
		{"a list", configMaps, wire.JSON, `{"kind":"List","apiVersion":"v1","items":[]}`, `List in version "v1" cannot be handled as a ConfigMap: converting (v1.List) to (core.ConfigMap): unknown conversion`},
		{"a list of the kind", configMaps, wire.JSON, `{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`, `ConfigMapList in version "v1" cannot be handled as a ConfigMap: converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion`},
		{"an unknown kind", configMaps, wire.JSON, `{"kind":"Nope","apiVersion":"v1"}`, `Nope in version "v1" cannot be handled as a ConfigMap: no kind "Nope" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`},
		{"an unknown version", configMaps, wire.JSON, `{"kind":"ConfigMap","apiVersion":"v2"}`, `ConfigMap in version "v2" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "v2" in scheme "pkg/runtime/scheme.go:111"`},
		{"another version", autoscalers, wire.JSON, `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1"}`, `the API version in the data (autoscaling/v1) does not match the expected API version (autoscaling/v2)`},
		{"no version", configMaps, wire.JSON, `{"kind":"ConfigMap","apiVersion":"a/b/c"}`, unrecognized + `unexpected GroupVersion string: a/b/c ({"kind":"ConfigMap","apiVersio ...)`},
		{"empty", configMaps, wire.JSON, ``, noVersion + `unexpected end of JSON input (<empty>)`},
		{"truncated", configMaps, wire.JSON, `{"metadata":{"name":"a"}`, noVersion + `unexpected end of JSON input ({"metadata":{"name":"a"})`},
		{"an array", configMaps, wire.JSON, `[]`, noVersion + `json: cannot unmarshal array into Go value of type ` + anonymous + ` (5b5d)`},
		{"a number", configMaps, wire.JSON, `5`, noVersion + `json: cannot unmarshal number into Go value of type ` + anonymous + ` (35)`},
		{"something behind", configMaps, wire.JSON, `{} x`, noVersion + `invalid character 'x' after top-level value ({} x)`},
		{"a kind that is no string", configMaps, wire.JSON, `{"kind":5}`, noVersion + `json: cannot unmarshal number into Go struct field .kind of type string ({"kind":5})`},
		{"a member of a wrong type", configMaps, wire.JSON, `{"data":{"k":1}}`, `ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string`},
		{"not UTF-8", configMaps, wire.JSON, "{\"data\":{\"k\":\"\xff\"}}", unrecognized + "the body is not valid UTF-8 ({\"data\":{\"k\":\"\xff\"}})"},
		{"too deep", configMaps, wire.JSON, strings.Repeat(`{"a":`, 100_000), unrecognized + `the body nests deeper than 512 ({"a":{"a":{"a":{"a":{"a":{"a": ...)`},
		{"bad YAML", configMaps, wire.YAML, `kind: [`, unrecognized + `yaml: line 1: did not find expected node content (6b696e643a205b)`},
		{"no protobuf", configMaps, wire.Protobuf, `abc`, unrecognized + `provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (616263)`},
		{"empty protobuf", configMaps, wire.Protobuf, ``, unrecognized + `empty data (<empty>)`},
		{"protobuf without a message", configMaps, wire.Protobuf, "k8s\x00", unrecognized + `empty body (6b387300)`},
		{"protobuf that is torn", configMaps, wire.Protobuf, "k8s\x00\x0a\xff", unrecognized + `unexpected EOF (6b3873000aff)`},
	} {
		_, err := wire.Decode(row.t, row.media, []byte(row.body))
		var s apierrors.APIStatus
		if !errors.As(err, &s) || s.Status().Code != 400 || s.Status().Message != row.want {
			t.Errorf("%s: got %v, want 400 %s", row.name, err, row.want)
		}
	}
}

// TestStrict: the complaints of field validation, in their order.
func TestStrict(t *testing.T) {
	for _, row := range []struct {
		name  string
		media wire.MediaType
		body  string
		want  []string
	}{
		{"nothing", wire.JSON, `{"metadata":{"name":"a"},"data":{"k":"v"}}`, nil},
		{"unknown and duplicate", wire.JSON, `{"metadata":{"name":"a","name":"b"},"x":1,"data":{"k":"1","k":"2"}}`, []string{`duplicate field "metadata.name"`, `unknown field "x"`, `duplicate field "data.k"`}},
		{"case matters", wire.JSON, `{"Data":{"k":"v"}}`, []string{`unknown field "Data"`}},
		{"YAML", wire.YAML, "metadata:\n  name: a\n  nope: b\ndata:\n  a: b\n  a: c\n  d: e\n  d: f\n", []string{"yaml: unmarshal errors:\n  line 6: key \"a\" already set in map\n  line 8: key \"d\" already set in map", `unknown field "metadata.nope"`}},
	} {
		d, err := wire.Decode(configMaps, row.media, []byte(row.body))
		if err != nil || !slices.Equal(d.Strict, row.want) {
			t.Errorf("%s: %q, %v, want %q", row.name, d.Strict, err, row.want)
		}
	}
	if got, want := wire.StrictError(configMaps, []string{"a", "b"}).Error(), `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: a, b`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestEncode: the revision goes to its place, whatever else the object holds.
func TestEncode(t *testing.T) {
	const tricky = `"resourceVersion":"0"`
	o := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", GenerateName: tricky, Namespace: tricky, UID: tricky, ResourceVersion: "99",
			Labels: map[string]string{"a": tricky, "resourceVersion": "0"}, Annotations: map[string]string{"resourceVersion": "0"},
		},
		Data: map[string]string{"resourceVersion": "0", "b": "<&>\u2028" + tricky},
	}
	e, err := wire.Encode(configMaps, o.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	full := slices.Concat(e.Bytes[:e.RevisionAt], []byte("1234"), e.Bytes[e.RevisionAt:])
	var got corev1.ConfigMap
	if err := json.Unmarshal(full, &got); err != nil {
		t.Fatalf("%v in %s", err, full)
	}
	if got.ResourceVersion != "1234" || got.Labels["a"] != tricky || got.Data["b"] != o.Data["b"] || got.Namespace != tricky {
		t.Errorf("%s", full)
	}
	if !bytes.HasPrefix(full, []byte(wire.Head(configMaps))) || bytes.HasSuffix(full, []byte("\n")) {
		t.Errorf("%s", full)
	}
}

// TestAs checks that an object stored in one version is read in another.
func TestAs(t *testing.T) {
	stored := autoscalers1.StoredVersion()
	min := int32(2)
	e, err := wire.Encode(stored, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &min, MaxReplicas: 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	value := slices.Concat(e.Bytes[:e.RevisionAt], []byte("7"), e.Bytes[e.RevisionAt:])
	for _, as := range []*resource.Type{autoscalers, autoscalers1} {
		got, err := wire.As(context.Background(), as, value)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(got, []byte(wire.Head(as))) || !bytes.Contains(got, []byte(`"resourceVersion":"7"`)) || !bytes.Contains(got, []byte(`"minReplicas":2`)) {
			t.Errorf("%s: %s", as.Version, got)
		}
	}
}

// FuzzDecode: whatever comes is a client's error or an object that can be stored.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"metadata":{"name":"a"},"data":{"k":"v","k":"w"}}`, "metadata:\n  name: a\n", "k8s\x00\x12\x04\x0a\x02\x0a\x00", `{"kind":"Secret"}`, `{"apiVersion":"/"}`} {
		for i := range 3 {
			f.Add(seed, i)
		}
	}
	medias := []wire.MediaType{wire.JSON, wire.YAML, wire.Protobuf}
	f.Fuzz(func(t *testing.T, body string, i int) {
		media := medias[uint(i)%uint(len(medias))]
		d, err := wire.Decode(configMaps, media, []byte(body))
		if err != nil {
			var s apierrors.APIStatus
			if !errors.As(err, &s) || s.Status().Code != 400 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		e, err := wire.Encode(configMaps, d.Object)
		if err != nil {
			t.Fatal(err)
		}
		again, err := wire.Decode(configMaps, wire.JSON, slices.Concat(e.Bytes[:e.RevisionAt], []byte("1"), e.Bytes[e.RevisionAt:]))
		if err != nil || len(again.Strict) > 0 || again.Object.(metav1.Object).GetResourceVersion() != "1" {
			t.Fatalf("%s: %v %v", e.Bytes, again.Strict, err)
		}
	})
}
