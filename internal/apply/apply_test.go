package apply_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/tidemark-dev/tidemark/internal/apply"
)

func configMaps(t *testing.T) *apply.Schema {
	t.Helper()
	s, err := apply.Builtin(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func configMap(data string) []byte {
	return []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","uid":"u"},"data":` + data + `}`)
}

func patchOf(data string) []byte {
	return []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":` + data + `}`)
}

// entry writes an entry as it is expected.
func entry(manager, operation, at, fields string) string {
	return fmt.Sprintf(`{"manager":%q,"operation":%q,"apiVersion":"v1","time":%q,"fieldsType":"FieldsV1","fieldsV1":%s}`, manager, operation, at, fields)
}

func at(second int) time.Time { return time.Date(2024, 1, 1, 0, 0, second, 999, time.UTC) }

// TestTimes: an entry has the time of its last change, in whole seconds, and a write
// that changes nothing keeps it.
func TestTimes(t *testing.T) {
	s := configMaps(t)
	first, err := s.Update(nil, nil, configMap(`{"k":"1"}`), apply.Write{Manager: "m", Time: at(1)})
	if err != nil {
		t.Fatal(err)
	}
	if want := "[" + entry("m", "Update", "2024-01-01T00:00:01Z", `{"f:data":{".":{},"f:k":{}}}`) + "]"; string(first) != want {
		t.Errorf("created: got %s, want %s", first, want)
	}
	same, err := s.Update(first, configMap(`{"k":"1"}`), configMap(`{"k":"1"}`), apply.Write{Manager: "m", Time: at(2)})
	if err != nil || !bytes.Equal(same, first) {
		t.Errorf("no change: got %s, %v", same, err)
	}
	second, err := s.Update(first, configMap(`{"k":"1"}`), configMap(`{"k":"2"}`), apply.Write{Manager: "m", Time: at(3)})
	if want := "[" + entry("m", "Update", "2024-01-01T00:00:03Z", `{"f:data":{".":{},"f:k":{}}}`) + "]"; err != nil || string(second) != want {
		t.Errorf("changed: got %s, %v, want %s", second, err, want)
	}
}

// TestUnkeyed: an object keeps its entries while a list has an element without keys, whether the list changes or not.
func TestUnkeyed(t *testing.T) {
	s, err := apply.Builtin(schema.GroupVersionKind{Version: "v1", Kind: "ServiceAccount"}, &corev1.ServiceAccount{})
	if err != nil {
		t.Fatal(err)
	}
	account := func(rest string) []byte {
		return []byte(`{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"a","uid":"u"}` + rest + `}`)
	}
	keyed := account(`,"secrets":[{"name":"s"}]`)
	managed, err := s.Update(nil, nil, keyed, apply.Write{Manager: "m", Time: at(1)})
	if err != nil || managed == nil {
		t.Fatalf("got %s, %v", managed, err)
	}
	old := keyed
	for _, next := range [][]byte{
		account(`,"secrets":[{}]`),
		account(`,"automountServiceAccountToken":true,"secrets":[{}]`),
		account(`,"imagePullSecrets":[{"name":"p"}],"secrets":[{},{}]`),
		account(`,"automountServiceAccountToken":false,"secrets":[{},{}]`),
		keyed,
	} {
		got, err := s.Update(managed, old, next, apply.Write{Manager: "n", Time: at(2)})
		if err != nil || !bytes.Equal(got, managed) {
			t.Errorf("%s: got %s, %v, want %s", next, got, err, managed)
		}
		old = next
	}
	next := account(`,"automountServiceAccountToken":true,"secrets":[{"name":"s"}]`)
	if got, err := s.Update(managed, old, next, apply.Write{Manager: "n", Time: at(2)}); err != nil || bytes.Equal(got, managed) {
		t.Errorf("a list with keys: got %s, %v", got, err)
	}
}

// TestUntracked checks that an object without managed fields gets none before the first apply.
func TestUntracked(t *testing.T) {
	s := configMaps(t)
	got, err := s.Update(nil, configMap(`{"k":"1"}`), configMap(`{"k":"2"}`), apply.Write{Manager: "m", Time: at(1)})
	if err != nil || got != nil {
		t.Errorf("got %s, %v", got, err)
	}
	_, got, err = s.Apply(nil, configMap(`{"k":"1"}`), patchOf(`{"l":"2"}`), apply.Write{Manager: "m", Time: at(2)}, false)
	want := "[" + entry("m", "Apply", "2024-01-01T00:00:02Z", `{"f:data":{"f:l":{}}}`) + "," +
		entry("before-first-apply", "Update", "2024-01-01T00:00:02Z", `{"f:data":{".":{},"f:k":{}}}`) + "]"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

// TestManyUpdaters checks that the eleventh updater merges the oldest two entries.
func TestManyUpdaters(t *testing.T) {
	s := configMaps(t)
	data := map[string]string{"a": "1"}
	encode := func() []byte {
		b, err := json.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		return configMap(string(b))
	}
	old := encode()
	managed, err := s.Update(nil, nil, old, apply.Write{Manager: "m0", Time: at(0)})
	for i := 1; i <= 10 && err == nil; i++ {
		data[string(rune('a'+i))] = "1"
		next := encode()
		managed, err = s.Update(managed, old, next, apply.Write{Manager: fmt.Sprint("m", i), Time: at(i)})
		old = next
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(managed), `"operation"`); n != 10 {
		t.Errorf("%d entries: %s", n, managed)
	}
	if want := entry("ancient-changes", "Update", "2024-01-01T00:00:01Z", `{"f:data":{".":{},"f:a":{},"f:b":{}}}`); !strings.Contains(string(managed), want) {
		t.Errorf("got %s\nwant %s in it", managed, want)
	}
}

// TestErrors checks the parts of errors that clients depend on.
func TestErrors(t *testing.T) {
	s := configMaps(t)
	managed, err := s.Update(nil, nil, configMap(`{"a":"1","b":"1"}`), apply.Write{Manager: "curl", Time: at(1)})
	if err != nil {
		t.Fatal(err)
	}
	live := configMap(`{"a":"1","b":"1"}`)
	live, managed, err = s.Apply(managed, live, patchOf(`{"c":"1"}`), apply.Write{Manager: "m1", Time: at(2)}, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, patch string
		code        int32
		message     string
		causes      string
	}{
		{"one conflict", string(patchOf(`{"c":"2"}`)), http.StatusConflict, `Apply failed with 1 conflict: conflict with "m1": .data.c`,
			`[{FieldManagerConflict conflict with "m1" .data.c}]`},
		{"conflicts", string(patchOf(`{"a":"2","b":"2","c":"2"}`)), http.StatusConflict,
			"Apply failed with 3 conflicts: conflicts with \"curl\" using v1:\n- .data.a\n- .data.b\nconflicts with \"m1\":\n- .data.c",
			`[{FieldManagerConflict conflict with "curl" using v1 .data.a} {FieldManagerConflict conflict with "curl" using v1 .data.b} {FieldManagerConflict conflict with "m1" .data.c}]`},
		{"undeclared", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"bogus":1}`, http.StatusBadRequest,
			"failed to create typed patch object (/x; /v1, Kind=ConfigMap): .bogus: field not declared in schema", ""},
		{"kind", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}`, http.StatusBadRequest, "invalid object type: /v1, Kind=Secret", ""},
		{"managed fields", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","managedFields":[]}}`, http.StatusBadRequest, "metadata.managedFields must be nil", ""},
		{"wrong type", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":1}}`, http.StatusBadRequest,
			"failed to create typed patch object (/x; /v1, Kind=ConfigMap): .data.a: expected string, got &value.valueUnstructured{Value:1}", ""},
		{"twice", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","finalizers":["a","a"]}}`, http.StatusBadRequest,
			`failed to create typed patch object (/x; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [="a"]`, ""},
		{"no object", `[]`, http.StatusBadRequest, "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}", ""},
	} {
		_, _, err := s.Apply(managed, live, []byte(c.patch), apply.Write{Manager: "two", Time: at(3)}, false)
		var status *apierrors.StatusError
		if !errors.As(err, &status) || status.ErrStatus.Code != c.code || status.ErrStatus.Message != c.message {
			t.Errorf("%s: got %v", c.name, err)
			continue
		}
		if c.causes != "" && fmt.Sprint(status.ErrStatus.Details.Causes) != c.causes {
			t.Errorf("%s: causes %v", c.name, status.ErrStatus.Details.Causes)
		}
	}
}

// TestSubresourceConflict checks that a conflict names the subresource of the other manager.
func TestSubresourceConflict(t *testing.T) {
	s, err := apply.Builtin(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, &appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	patch := func(n int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":9},"status":{"replicas":%d}}`, n)
	}
	live, managed, err := s.Apply(nil, nil, patch(3), apply.Write{Manager: "ctl", Subresource: "status", Time: at(1)}, false)
	if err != nil || strings.Contains(string(managed), "f:spec") {
		t.Fatalf("the status does not own the spec: %s, %v", managed, err)
	}
	_, _, err = s.Apply(managed, live, patch(4), apply.Write{Manager: "other", Subresource: "status", Time: at(1)}, false)
	if want := `Apply failed with 1 conflict: conflict with "ctl" with subresource "status": .status.replicas`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestBefore: rows of G7.
func TestBefore(t *testing.T) {
	live := "[" + entry("m", "Update", "2024-01-01T00:00:01Z", `{"f:data":{}}`) + "]"
	other := "[" + entry("n", "Update", "2024-01-01T00:00:01Z", `{"f:data":{}}`) + "]"
	for _, c := range []struct{ sent, want string }{
		{"", live}, {"null", live}, {"[]", ""}, {"[{}]", ""}, {other, other}, {`[{"manager":"x"}]`, live}, {"{", live},
		{`[{"manager":"x","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV2"}]`, live},
	} {
		if got := apply.Before([]byte(live), []byte(c.sent)); string(got) != c.want {
			t.Errorf("%s: got %s", c.sent, got)
		}
	}
}

// TestManagerOf.
func TestManagerOf(t *testing.T) {
	for agent, want := range map[string]string{
		"": "", "curl/8.1": "curl", "kubectl": "kubectl", "some-tool/v1.2 (linux) extra": "some-tool", "a\x00b\tc/1": "abc",
		"é/1": "é", strings.Repeat("x", 200): strings.Repeat("x", 128), "/x": "",
	} {
		if got := apply.ManagerOf(agent); got != want {
			t.Errorf("%q: got %q, want %q", agent, got, want)
		}
	}
}

// TestVersions checks that fields owned in another version are compared in that version. An update
// drops entries of a version that is no longer served; an apply is rejected while there are any.
func TestVersions(t *testing.T) {
	gvk := func(version string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Thing"}
	}
	v1, v2 := apply.Custom(gvk("v1"), typed.ParseableType{}, false), apply.Custom(gvk("v2"), typed.ParseableType{}, false)
	versions := apply.Versions{
		Schema: func(apiVersion string) *apply.Schema {
			return map[string]*apply.Schema{"example.com/v1": v1, "example.com/v2": v2}[apiVersion]
		},
		Convert: func(object []byte, from, to string) ([]byte, error) { // v1 calls color what v2 calls colour
			text := strings.Replace(string(object), from, to, 1)
			if to == "example.com/v2" {
				return []byte(strings.ReplaceAll(text, `"color"`, `"colour"`)), nil
			}
			return []byte(strings.ReplaceAll(text, `"colour"`, `"color"`)), nil
		},
	}
	v1, v2 = v1.With(versions, nil), v2.With(versions, nil)
	object := func(version, spec string) []byte {
		return []byte(`{"apiVersion":"example.com/` + version + `","kind":"Thing","metadata":{"name":"x","uid":"u"},"spec":` + spec + `}`)
	}
	managed, err := v1.Update(nil, nil, object("v1", `{"color":"red","size":1}`), apply.Write{Manager: "old", Time: at(1)})
	if err != nil {
		t.Fatal(err)
	}
	gone := strings.Replace(string(managed), `}]`, `},{"manager":"gone","operation":"Update","apiVersion":"example.com/v0","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}]`, 1)
	patch := []byte(`{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"x"},"spec":{"size":2}}`)
	_, _, err = v2.Apply([]byte(gone), object("v2", `{"colour":"red","size":1}`), patch, apply.Write{Manager: "a", Time: at(2)}, true)
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != 400 || err.Error() != "request to convert CR to an invalid group/version: example.com/v0" {
		t.Errorf("got %v", err)
	}
	managed, err = v2.Update([]byte(gone), object("v2", `{"colour":"red","size":1}`), object("v2", `{"colour":"blue","size":1}`), apply.Write{Manager: "new", Time: at(2)})
	want := `[{"manager":"old","operation":"Update","apiVersion":"example.com/v1","time":"2024-01-01T00:00:01Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{".":{},"f:size":{}}}},` +
		`{"manager":"new","operation":"Update","apiVersion":"example.com/v2","time":"2024-01-01T00:00:02Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:colour":{}}}}]`
	if err != nil || string(managed) != want {
		t.Errorf("got %s, %v\nwant %s", managed, err, want)
	}
	_, _, err = v2.Apply(managed, object("v2", `{"colour":"blue","size":1}`), patch, apply.Write{Manager: "a", Time: at(3)}, false)
	if err == nil || err.Error() != `Apply failed with 1 conflict: conflict with "old" using example.com/v1: .spec.size` {
		t.Errorf("got %v", err)
	}
}

// TestReplicas checks that a manager that scales owns the replicas of the object.
func TestReplicas(t *testing.T) {
	r := apply.Replicas{"v1": {"spec", "replicas"}}
	object := "[" + entry("m", "Update", "2024-01-01T00:00:01Z", `{"f:spec":{"f:paused":{},"f:replicas":{}}}`) + "]"
	scale, err := r.ToScale([]byte(object))
	if want := strings.Replace("["+entry("m", "Update", "2024-01-01T00:00:01Z", `{"f:spec":{"f:replicas":{}}}`)+"]", `"v1"`, `"autoscaling/v1"`, 1); err != nil || string(scale) != want {
		t.Errorf("got %s, %v, want %s", scale, err, want)
	}
	same, err := r.FromScale([]byte(object), scale, schema.GroupVersion{Version: "v1"})
	if err != nil || string(same) != object {
		t.Errorf("got %s, %v", same, err)
	}
	taken := `[{"manager":"hpa","operation":"Update","apiVersion":"autoscaling/v1","time":"2024-01-01T00:00:02Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"subresource":"scale"}]`
	got, err := r.FromScale([]byte(object), []byte(taken), schema.GroupVersion{Version: "v1"})
	want := `[{"manager":"hpa","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:replicas":{}}},"subresource":"scale"},` +
		entry("m", "Update", "2024-01-01T00:00:01Z", `{"f:spec":{"f:paused":{}}}`) + "]"
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

// TestUnchanged checks that each part of an application counts, and that old ones are evicted.
func TestUnchanged(t *testing.T) {
	var u apply.Unchanged
	w := apply.Write{Manager: "m"}
	of := func(version, patch string, w apply.Write, force bool, p ...string) apply.Application {
		return apply.NewApplication(version, []byte(patch), w, force, p...)
	}
	known := of("1", "p", w, false)
	u.Add(known)
	if !u.Has(of("1", "p", apply.Write{Manager: "m", Time: at(1)}, false)) {
		t.Error("the time does not count")
	}
	for i, other := range []apply.Application{
		of("2", "p", w, false), of("1", "q", w, false), of("1", "p", apply.Write{Manager: "n"}, false), of("1", "p", w, true),
		of("1", "p", apply.Write{Manager: "m", Subresource: "status"}, false), of("1", "p", w, false, ""), of("1", "", w, false, "p"),
	} {
		if u.Has(other) {
			t.Errorf("%d is taken for another one", i)
		}
	}
	for i := range 1 << 15 {
		u.Add(of(fmt.Sprint("x", i), "", w, false))
	}
	if u.Has(known) {
		t.Error("nothing is forgotten")
	}
}
