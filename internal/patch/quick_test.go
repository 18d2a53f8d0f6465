package patch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

var (
	quickNames = []string{"a", "b", "c/d", "e~f", "", "<g>", "h\u2028", "é", "0", "~1", `"`}
	quickTexts = []string{"", "x", "<&>", "é\u2029", `\"`, "\x7f", "a b"}
)

// randomValue returns a value of JSON.
func randomValue(r *rand.Rand, depth int) any {
	switch n := r.IntN(10); {
	case depth > 0 && n < 5:
		object := map[string]any{}
		for range r.IntN(5) {
			object[quickNames[r.IntN(len(quickNames))]] = randomValue(r, depth-1)
		}
		return object
	case depth > 0 && n == 5:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	case n == 6:
		return nil
	case n == 7:
		return r.IntN(100)
	}
	return quickTexts[r.IntN(len(quickTexts))]
}

// randomPath returns a path, mostly one of the value.
func randomPath(r *rand.Rand, v any) string {
	path := ""
	for range 1 + r.IntN(2) {
		name := quickNames[r.IntN(len(quickNames))]
		object, _ := v.(map[string]any)
		if len(object) > 0 && r.IntN(6) > 0 {
			at := r.IntN(len(object))
			for _, one := range quickNames { // in the same order for a seed
				if _, ok := object[one]; ok {
					if name = one; at == 0 {
						break
					}
					at--
				}
			}
		}
		v = object[name]
		path += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
	}
	return path
}

// TestOperationsLikeLibrary: operations on members of objects, which are applied without a look at the other members, make
// the bytes that the library makes, and fail when it does.
func TestOperationsLikeLibrary(t *testing.T) {
	r := testrand.New(t)
	worked, kinds := 0, []string{"add", "add", "add", "replace", "replace", "remove", "test", "move", "copy"}
	for range 4000 {
		tree := map[string]any{}
		for _, name := range quickNames[:6] {
			tree[name] = randomValue(r, 3)
		}
		document, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		var operations []map[string]any
		for range 1 + r.IntN(3) {
			o := map[string]any{"op": kinds[r.IntN(len(kinds))], "path": randomPath(r, tree)}
			if r.IntN(20) > 0 {
				o["value"] = randomValue(r, 2)
			}
			if r.IntN(3) == 0 {
				o["from"] = randomPath(r, tree)
			}
			operations = append(operations, o)
		}
		change, err := json.MarshalIndent(operations, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		got, gotErr := patch.JSON(document, change, false)
		want, wantErr := operationsByLibrary(document, change)
		if (gotErr == nil) != (wantErr == nil) || !bytes.Equal(got.Document, want) {
			t.Fatalf("%s of %s makes\n%s, %v\nthe library makes\n%s, %v", change, document, got.Document, gotErr, want, wantErr)
		}
		if gotErr == nil {
			worked++
		}
	}
	if worked < 500 {
		t.Errorf("only %d patches could be applied", worked)
	}
}

func operationsByLibrary(document, change []byte) (out []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, errors.New("it panicked")
		}
	}()
	all, err := jsonpatch.DecodePatch(change)
	if err != nil {
		return nil, err
	}
	return all.Apply(document)
}

// BenchmarkLargeOperation adds a member to a document of 2 MB, as policies do.
func BenchmarkLargeOperation(b *testing.B) {
	data := map[string]string{}
	for i := range 40 {
		data[fmt.Sprint("k", i)] = strings.Repeat("x", 50_000)
	}
	document, err := json.Marshal(map[string]any{"data": data, "metadata": map[string]any{"name": "a"}})
	if err != nil {
		b.Fatal(err)
	}
	for name, apply := range map[string]func([]byte, []byte) ([]byte, error){
		"ours": func(document, change []byte) ([]byte, error) {
			p, err := byJSON(document, change)
			return p.Document, err
		},
		"library": operationsByLibrary,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(document)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := apply(document, []byte(`[{"op":"add","path":"/data/new","value":"x"}]`)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
