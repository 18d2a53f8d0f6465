package etcdvalue_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// inCBOR returns a value with CBOR's mark.
func inCBOR(t *testing.T, v any) []byte {
	t.Helper()
	b, err := direct.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("\xd9\xd9\xf7"), b...)
}

// inEnvelope returns an object as protobuf, with more bytes at the end of its message.
func inEnvelope(t *testing.T, kind, apiVersion string, o runtime.Object, more ...byte) []byte {
	t.Helper()
	raw, err := wire.Message(o)
	if err != nil {
		t.Fatal(err)
	}
	return wire.AppendEnvelope(nil, metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}, append(raw, more...))
}

// decode decodes a value that must be readable.
func decode(t *testing.T, collection string, value []byte) etcdvalue.Decoded {
	t.Helper()
	var c etcdvalue.Codec
	d, err := c.Decode(collection, value)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestForms checks that values of built-in kinds in other forms, in which a kube-apiserver can be
// configured to store them, are read, and outdated.
func TestForms(t *testing.T) {
	o := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: "ns", UID: "u"}, Data: map[string]string{"a": "<b>"}, BinaryData: map[string][]byte{"c": {0, 1}},
	}
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.JSONToYAML(text)
	if err != nil {
		t.Fatal(err)
	}
	want := decode(t, "configmaps", inEnvelope(t, "ConfigMap", "v1", o))
	if want.Outdated {
		t.Error("protobuf is outdated")
	}
	for form, value := range map[string][]byte{"JSON": append(text, '\n'), "YAML": asYAML, "CBOR": inCBOR(t, o)} {
		got := decode(t, "configmaps", value)
		if !got.Outdated || !bytes.Equal(got.JSON, want.JSON) || got.RevisionAt != want.RevisionAt {
			t.Errorf("%s: outdated %t\n got %s\nwant %s", form, got.Outdated, got.JSON, want.JSON)
		}
	}
}

// TestServedVersions: values in another version that the server serves are converted.
func TestServedVersions(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "x", Namespace: "ns"}
	cpu := int32(70)
	h := decode(t, "horizontalpodautoscalers.autoscaling", inEnvelope(t, "HorizontalPodAutoscaler", "autoscaling/v1",
		&autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3, TargetCPUUtilizationPercentage: &cpu}}))
	if !h.Outdated || !bytes.Contains(h.JSON, []byte(`"apiVersion":"autoscaling/v2"`)) || !bytes.Contains(h.JSON, []byte(`"averageUtilization":70`)) {
		t.Errorf("outdated %t, %s", h.Outdated, h.JSON)
	}
	e := decode(t, "events", inEnvelope(t, "Event", "events.k8s.io/v1", &eventsv1.Event{ObjectMeta: meta, Note: "hello"}))
	if !e.Outdated || !bytes.Contains(e.JSON, []byte(`"apiVersion":"v1"`)) || !bytes.Contains(e.JSON, []byte(`"message":"hello"`)) {
		t.Errorf("outdated %t, %s", e.Outdated, e.JSON)
	}
}

// TestUnknownFields: fields that the kind does not have are dropped.
func TestUnknownFields(t *testing.T) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"a": "b"}}
	unknown := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "from a later release")
	want, got := inEnvelope(t, "ConfigMap", "v1", o), inEnvelope(t, "ConfigMap", "v1", o, unknown...)
	d := decode(t, "configmaps", got)
	var c etcdvalue.Codec
	if again, err := c.Encode("configmaps", d.JSON, d.RevisionAt); err != nil || !bytes.Equal(again, want) {
		t.Errorf("got %q, %v, want %q", again, err, want)
	}
	if text := `{"kind":"Panda","apiVersion":"a.b/v1","metadata":{"name":"x","later":1}}`; bytes.Contains(decode(t, "pandas.a.b", []byte(text)).JSON, []byte("later")) {
		t.Error("an unknown member of the metadata is kept")
	}
}

// TestCustom: kind, apiVersion and metadata come first, the digits of the revision where the store
// expects them.
func TestCustom(t *testing.T) {
	const value = `{"alpha":{"b":[1,2.5,null],"a":"<"},"apiVersion":"awesome.example/v1","kind":"Panda","metadata":{"annotations":{"resourceVersion":"9"},"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"po","namespace":"ns","uid":"u"},"zeta":true}` + "\n"
	const want = `{"kind":"Panda","apiVersion":"awesome.example/v1","metadata":{"name":"po","namespace":"ns","uid":"u","resourceVersion":"42","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","annotations":{"resourceVersion":"9"}},"alpha":{"b":[1,2.5,null],"a":"<"},"zeta":true}`
	d := decode(t, "pandas.awesome.example", []byte(value))
	if got := string(d.Object("ns/po", 1, 42).Bytes()); got != want || d.Outdated {
		t.Errorf("outdated %t\n got %s\nwant %s", d.Outdated, got, want)
	}
	const sorted = `{"alpha":{"a":"\u003c","b":[1,2.5,null]},"apiVersion":"awesome.example/v1","kind":"Panda","metadata":{"annotations":{"resourceVersion":"9"},"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"name":"po","namespace":"ns","uid":"u"},"zeta":true}` + "\n"
	var c etcdvalue.Codec
	if got, err := c.Encode("pandas.awesome.example", d.JSON, d.RevisionAt); err != nil || string(got) != sorted {
		t.Errorf("got %s, %v, want %s", got, err, sorted)
	}
	inForm := decode(t, "pandas.awesome.example", inCBOR(t, tree(t, []byte(value))))
	if got := string(inForm.Object("ns/po", 1, 42).Bytes()); !inForm.Outdated || got != `{"kind":"Panda","apiVersion":"awesome.example/v1","metadata":{"name":"po","namespace":"ns","uid":"u","resourceVersion":"42","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","annotations":{"resourceVersion":"9"}},"alpha":{"a":"\u003c","b":[1,2.5,null]},"zeta":true}` {
		t.Errorf("from CBOR, outdated %t: %s", inForm.Outdated, got)
	}
	if d := decode(t, "pandas.awesome.example", []byte(`{"kind":"Panda", "apiVersion":"a/v1", "metadata":{"name":"a","name":"b"}}`)); !d.Outdated {
		t.Errorf("repeated members: %s", d.JSON)
	}
}

// TestUnreadable: a value that cannot be read is an error, never an empty object.
func TestUnreadable(t *testing.T) {
	var c etcdvalue.Codec
	for _, bad := range []struct{ collection, value string }{
		{"configmaps", ""}, {"configmaps", "\n"}, {"configmaps", "{}"}, {"configmaps", "null"}, {"configmaps", "[]"}, {"configmaps", "k8s\x00"},
		{"configmaps", "k8s\x00\xff\xff"}, {"configmaps", `{"kind":"ConfigMap","apiVersion":"v1","metadata":7}`}, {"configmaps", "\xd9\xd9\xf7"}, {"configmaps", "\xd9\xd9\xf7\xa1"},
		{"configmaps", "k8s:enc:aescbc:v1:key1:xxxx"}, {"configmaps", "\x00\x01"},
		{"customresourcedefinitions.apiextensions.k8s.io", `{"kind":"X","apiVersion":"apiextensions.k8s.io/v1"}`},
		{"pandas.a.b", ""}, {"pandas.a.b", "null"}, {"pandas.a.b", "{}"}, {"pandas.a.b", `{"kind":"Panda","apiVersion":"a.b/v1"}`}, {"pandas.a.b", "{"},
		{"pandas.a.b", `{"kind":"Panda","apiVersion":"a.b/v1","metadata":[]}`}, {"pandas.a.b", `{"kind":1,"apiVersion":"a.b/v1","metadata":{}}`}, {"pandas.a.b", "\xd9\xd9\xf7\xa0"},
		{"pandas.a.b", `{"kind":"Panda","apiVersion":"a.b/v1","metadata":{}} x`},
	} {
		if d, err := c.Decode(bad.collection, []byte(bad.value)); err == nil {
			t.Errorf("%s %q is read as %s", bad.collection, bad.value, d.JSON)
		}
	}
	var version *etcdvalue.VersionError
	o := &corev1.ConfigMap{}
	if _, err := c.Decode("configmaps", inEnvelope(t, "ConfigMap", "v7", o)); !errors.As(err, &version) || version.Kind.Version != "v7" {
		t.Errorf("an unknown version: %v", err)
	}
	if _, err := c.Decode("configmaps", inEnvelope(t, "Secret", "v1", o)); !errors.As(err, &version) || version.Kind.Kind != "Secret" {
		t.Errorf("another kind: %v", err)
	}
}

// TestEncodeErrors: an object without a place for its revision is refused.
func TestEncodeErrors(t *testing.T) {
	var c etcdvalue.Codec
	const text = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"m","resourceVersion":""}}`
	for _, at := range []int{-1, 0, 2, 5, len(text) - 4, len(text) - 2, len(text), 1000} {
		if value, err := c.Encode("configmaps", []byte(text), at); err == nil {
			t.Errorf("at %d: %q", at, value)
		}
	}
}
