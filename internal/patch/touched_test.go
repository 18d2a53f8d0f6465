package patch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestRandomPatches checks that parts that a patch does not touch are not read, and that results
// and errors are still those of the libraries.
func TestRandomPatches(t *testing.T) {
	r, document := testrand.New(t), pod(t)
	var tree map[string]any
	if err := json.Unmarshal(document, &tree); err != nil {
		t.Fatal(err)
	}
	worked := map[string]int{}
	for range 800 {
		change, err := json.Marshal(randomChange(r, tree, 4))
		if err != nil {
			t.Fatal(err)
		}
		for name, with := range map[string]struct{ ours, library func() ([]byte, error) }{
			"strategic": {
				func() ([]byte, error) { p, err := strategicPod(document, change); return p.Document, err },
				func() ([]byte, error) { return strategicOfKind(document, change) },
			},
			"merge": {
				func() ([]byte, error) { p, err := byMerge(document, change); return p.Document, err },
				func() ([]byte, error) { return jsonpatch.MergePatch(document, change) },
			},
		} {
			got, err := with.ours()
			want, wantErr := with.library()
			if (err == nil) != (wantErr == nil) || err == nil && !same(got, want) {
				t.Fatalf("%s %s makes\n%s, %v\nthe library makes\n%s, %v", name, change, got, err, want, wantErr)
			}
			if err == nil {
				worked[name]++
			}
		}
	}
	if worked["strategic"] < 100 || worked["merge"] < 700 {
		t.Errorf("so many patches could be applied: %v", worked)
	}
}

// strategicOfKind is the library's patch of a pod, which stays one whatever text the patch has as its kind.
func strategicOfKind(document, change []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil { // as it does for some patches
			err = fmt.Errorf("%v", p)
		}
	}()
	if out, err = strategicpatch.StrategicMergePatch(document, change, corev1.Pod{}); err != nil {
		return nil, err
	}
	var made map[string]any
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, err
	}
	for name, is := range map[string]string{"kind": "Pod", "apiVersion": "v1"} {
		switch made[name].(type) {
		case string, nil:
			made[name] = is
		} // others stay, so that the result is no pod
	}
	return json.Marshal(made)
}

// randomChange is a patch of an object: of some of its members, and of others.
func randomChange(r *rand.Rand, of map[string]any, depth int) map[string]any {
	change := map[string]any{}
	names := []string{"new", "a/b", "metadata"}
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names) // so that a seed does the same again
	for range 1 + r.IntN(3) {
		name := names[r.IntN(len(names))]
		list, isList := of[name].([]any)
		object, isObject := of[name].(map[string]any)
		switch k := r.IntN(12); {
		case isObject && k < 9 && depth > 0:
			change[name] = randomChange(r, object, depth-1)
		case isList && k < 4:
			change[name] = someOf(r, list)
		case isList && k < 6:
			change["$setElementOrder/"+name] = someOf(r, list)
		case isList && k < 7: // with both the library's result depends on chance
			delete(change, name)
			change["$deleteFromPrimitiveList/"+name] = someOf(r, list)
			names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		case k == 9:
			change[name] = nil
		case k == 10 && depth < 3:
			change[[]string{"$patch", "$retainKeys", "$setElementOrder/new", "$nonsense"}[r.IntN(4)]] = []any{"replace", "delete", []any{name}}[r.IntN(3)]
		default:
			change[name] = []any{"text", 7, 1.5, true, map[string]any{"x": nil, "y": "z"}, []any{"x", nil}, map[string]any{}}[r.IntN(7)]
		}
	}
	return change
}

// someOf are some elements of a list, changed a little, and one more.
func someOf(r *rand.Rand, list []any) []any {
	some := []any{}
	for _, e := range list {
		if r.IntN(2) == 0 {
			continue
		}
		if object, ok := e.(map[string]any); ok {
			part := map[string]any{}
			for name, v := range object {
				if name == "name" || name == "type" || strings.HasPrefix(name, "container") || r.IntN(3) == 0 {
					part[name] = v
				}
			}
			if r.IntN(4) == 0 {
				part["$patch"] = "delete"
			}
			e = part
		}
		some = append(some, e)
	}
	if len(list) > 0 && r.IntN(5) == 0 {
		if _, ok := list[0].(string); ok {
			some = append(some, "x.y/z")
		}
	}
	return some
}

// TestTwice checks that of a duplicate member the last one counts, in any kind of patch.
func TestTwice(t *testing.T) {
	for document, change := range map[string]string{
		`{"a":{"x":1,"x":2},"b":1,"b":2,"c":3}`: `{"c":4}`,
		`{"a":1,"a":{"x":1}}`:                   `{"a":{"y":1}}`,
		`{"a":{"x":1},"c":1}`:                   `{"c":2,"c":3}`,
		`{"a":{"x":1},"c":{"y":1}}`:             `{"c":{"y":2,"y":3}}`,
	} {
		got, err := byMerge([]byte(document), []byte(change))
		want, wantErr := jsonpatch.MergePatch([]byte(document), []byte(change))
		if err != nil || wantErr != nil || !same(got.Document, want) {
			t.Errorf("%s with %s: %s %v, want %s %v", document, change, got.Document, err, want, wantErr)
		}
	}
}
