package patch_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/tidemark-dev/tidemark/internal/patch"
)

const configMap = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","finalizers":["x.y/z"]},"data":{"k":"1"}}`

type function func(document, change []byte) (patch.Patched, error)

func byJSON(document, change []byte) (patch.Patched, error) {
	return patch.JSON(document, change, true)
}

func byMerge(document, change []byte) (patch.Patched, error) {
	return patch.Merge(document, change, true)
}

func strategic(document, change []byte) (patch.Patched, error) {
	return patch.Strategic(document, change, &corev1.ConfigMap{})
}

func TestPatch(t *testing.T) {
	rows := []struct {
		name   string
		apply  function
		patch  string
		want   string // a part of the result, or the message of the error
		code   int32  // zero: it works
		strict string // the complaints
	}{
		{"add", byJSON, `[{"op":"add","path":"/data/l","value":"2"}]`, `"l":"2"`, 0, ""},
		{"nothing", byJSON, `[]`, `"k":"1"`, 0, ""},
		{"null", byJSON, `null`, `"k":"1"`, 0, ""},
		{"an unknown member", byJSON, `[{"op":"add","path":"/data/l","value":"2","foo":1}]`, `"l":"2"`, 0, `json patch unknown field "[0].foo"`},
		{"an object", byJSON, `{"op":"add"}`, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp", 400, ""},
		{"no JSON", byJSON, `[nope`, "error decoding patch: invalid character 'o' in literal null (expecting 'u')", 400, ""},
		{"a test that fails", byJSON, `[{"op":"test","path":"/data/k","value":"2"}]`, "the server rejected our request due to an error in our request", 422, ""},
		{"what is not there", byJSON, `[{"op":"remove","path":"/data/x"}]`, "the server rejected our request due to an error in our request", 422, ""},
		{"what the library stumbles over", byJSON, `[{"op":"test","path":""}]`, "the server rejected our request due to an error in our request", 422, ""},
		{"an unknown operation", byJSON, `[{"op":"nope","path":"/data"}]`, "the server rejected our request due to an error in our request", 422, ""},
		{"too many", byJSON, "[" + strings.Repeat(`{"op":"test","path":"/data/k","value":"1"},`, patch.MaxOperations) + `{"op":"test","path":"/data/k","value":"1"}]`, "The allowed maximum operations in a JSON patch is 10000, got 10001", 413, ""},
		{"copies that double", byJSON, doubling(30), "Request entity too large", 413, ""},
		{"additions that add up", byJSON, additions(5), "what the patch makes is larger than 3145728 bytes", 413, ""},

		{"operations on a long array", byJSON, longArray(100, 1_200_000), "100 operations are too many for an array of 1200000 elements", 413, ""},
		{"long lists", strategic, longList(3000), "the lists of the patch and of the object are too long to be merged", 413, ""},

		{"merge", byMerge, `{"data":{"k":null,"l":"2"}}`, `"data":{"l":"2"}`, 0, ""},
		{"merge twice", byMerge, `{"data":{"l":"2","l":"3"}}`, `"l":"3"`, 0, `duplicate field "data.l"`},
		{"merge an array", byMerge, `[]`, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}", 400, ""},
		{"merge null", byMerge, ` null`, "Invalid JSON Patch", 400, ""},
		{"merge nothing", byMerge, ``, "error decoding patch: unexpected end of JSON input", 400, ""},

		{"strategic", strategic, `{"metadata":{"finalizers":["a.b/c"]}}`, `"finalizers":["a.b/c","x.y/z"]`, 0, ""},
		{"strategic kind", strategic, `{"kind":"Secret","apiVersion":"v9"}`, `"kind":"ConfigMap"`, 0, ""},
		{"strategic null", strategic, `null`, `"k":"1"`, 0, ""},
		{"strategic array", strategic, `[]`, "json: cannot unmarshal array into Go value of type map[string]interface {}", 400, ""},
		{"an unknown directive", strategic, `{"$patch":"foo"}`, "unknown patch type: foo in map", 400, ""},
		{"a bad order", strategic, `{"metadata":{"$setElementOrder/finalizers":5}}`, "expected a []interface {}, but received a int64", 400, ""},
		{"a list without its key", strategic, `{"metadata":{"ownerReferences":[{"kind":"x"}]}}`, `"ownerReferences":[{"kind":"x"}]`, 0, ""},
		{"strategic twice", strategic, `{"data":{"l":"2","l":"3"}}`, `"l":"3"`, 0, `duplicate field "data.l"`},
	}
	for _, row := range rows {
		got, err := row.apply([]byte(configMap), []byte(row.patch))
		if row.code != 0 {
			var s apierrors.APIStatus
			if !errors.As(err, &s) || s.Status().Code != row.code || !strings.Contains(s.Status().Message, row.want) {
				t.Errorf("%s: %v, want %d %q", row.name, err, row.code, row.want)
			}
			continue
		}
		if err != nil || !strings.Contains(string(got.Document), row.want) || strings.Join(got.Complaints, ", ") != row.strict {
			t.Errorf("%s: %s, %q, %v, want %s", row.name, got.Document, got.Complaints, err, row.want)
		}
	}
}

// doubling copies an array into itself.
func doubling(times int) string {
	ops := []string{`{"op":"add","path":"/data/a","value":["` + strings.Repeat("x", 1000) + `"]}`}
	for range times {
		ops = append(ops, `{"op":"copy","from":"/data/a","path":"/data/a/-"}`)
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// longArray makes an array, and inserts at its beginning.
func longArray(operations, elements int) string {
	return `[{"op":"add","path":"/x","value":[0` + strings.Repeat(",0", elements-1) + `]}` +
		strings.Repeat(`,{"op":"add","path":"/x/0","value":0}`, operations-1) + `]`
}

// longList is a list that merges.
func longList(n int) string {
	var b strings.Builder
	b.WriteString(`{"metadata":{"finalizers":["a.b/c"`)
	for i := range n {
		fmt.Fprintf(&b, `,"a.b/%d"`, i)
	}
	b.WriteString(`]}}`)
	return b.String()
}

// additions are values that together are more than an object may have.
func additions(n int) string {
	var ops []string
	for i := range n {
		ops = append(ops, fmt.Sprintf(`{"op":"add","path":"/data/%d","value":%q}`, i, strings.Repeat("x", 700<<10)))
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// FuzzPatch checks that each patch results in a document within the limit or an error that a client
// understands, and that the libraries alone have the same result.
func FuzzPatch(f *testing.F) {
	for _, s := range []string{`[{"op":"add","path":"/data/l","value":"2"}]`, `{"data":{"k":null}}`, `{"$patch":"replace"}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x.y/z"]}}`,
		`[{"op":"move","from":"/data/k","path":"/x"}]`, `{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"1"}]}}`, `[{"op":"test","path":"","value":null}]`, `{"data":{"$retainKeys":["a"]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, change []byte) {
		for name, apply := range map[string]function{"json": byJSON, "merge": byMerge, "strategic": strategic} {
			got, err := apply([]byte(configMap), change)
			if err != nil {
				var s apierrors.APIStatus
				if !errors.As(err, &s) || s.Status().Code < 400 || s.Status().Code >= 500 {
					t.Errorf("%s %q: %v", name, change, err)
				}
				continue
			}
			if len(got.Document) > patch.MaxBytes || !json.Valid(got.Document) {
				t.Errorf("%s %q made %.100q", name, change, got.Document)
			}
			if alone, ok := byLibrary(name, change); ok && !same(alone, got.Document) {
				t.Errorf("%s %q made %s, the library %s", name, change, got.Document, alone)
			}
		}
	})
}

func same(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func byLibrary(name string, change []byte) (made []byte, ok bool) {
	var out []byte
	var err error
	defer func() { ok = ok && recover() == nil }()
	switch name {
	case "json":
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(change); err == nil {
			out, err = p.Apply([]byte(configMap))
		}
	case "merge":
		out, err = jsonpatch.MergePatch([]byte(configMap), change)
	default:
		out, err = strategicpatch.StrategicMergePatch([]byte(configMap), change, &corev1.ConfigMap{})
		if strings.Contains(string(change), "kind") || strings.Contains(string(change), "apiVersion") || strings.Contains(string(change), "$patch") {
			return nil, false // the kind in the patch is ignored
		}
	}
	return out, err == nil
}
