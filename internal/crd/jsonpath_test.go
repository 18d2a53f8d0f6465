package crd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiextensions"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// randomTree returns a value whose maps have one member, since the library visits members in any order.
func randomTree(r *rand.Rand, depth int) any {
	switch n := r.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return int64(r.IntN(3))
	case n == 2:
		return r.Float64()
	case n == 3:
		return r.IntN(2) == 0
	case n == 4 || depth == 0:
		return []string{"", "a", "bc"}[r.IntN(3)]
	case n < 7:
		list := []any{}
		for range r.IntN(4) {
			list = append(list, randomTree(r, depth-1))
		}
		return list
	}
	return map[string]any{"ab"[r.IntN(2):][:1]: randomTree(r, depth-1)}
}

var pathParts = []string{
	".a", ".b", ".*", "[*]", "[0]", "[-1]", "[1:]", "[:2]", "[0:2]", "[::2]", "[0,1]", "['a']", "..", "..a", "..b", "..*",
	"[?(@.a)]", "[?(@.a==1)]", `[?(@.a=="a")]`, "[?(@.b>0)]", "[?(@.a!=@.b)]", "[?(@==0)]", "}{", "}{range .a}{.b}{end}{", "}{range .b[*]}{", "}x{", " ", "$", "@", "1", "true", "'t'",
}

// TestPathsLikeLibrary compares random paths on random values with client-go.
func TestPathsLikeLibrary(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	found := 0
	for range 4_000 {
		text := ""
		for range 1 + r.IntN(5) {
			text += pathParts[r.IntN(len(pathParts))]
		}
		object := map[string]any{"ab"[r.IntN(2):][:1]: randomTree(r, 4)}
		path, wrong := parsePath(text)
		library := jsonpath.New("").AllowMissingKeys(true)
		if err := library.Parse("{" + text + "}"); (err == nil) != (wrong == nil) {
			t.Fatalf("seed %d: %s: %v, the library has %v", seed, text, wrong, err)
		}
		if wrong != nil {
			continue
		}
		a := newAllowance(object, 1)
		got, err := (&evaluation{allowance: a}).find(object, path)
		if errors.Is(err, errTooMuchWork) {
			continue
		}
		results, wrong, panics := findResults(library, object)
		if panics {
			continue
		}
		if (err == nil) != (wrong == nil) {
			t.Fatalf("seed %d: %s of %v: %v, the library has %v", seed, text, object, err, wrong)
		}
		var want [][]any
		for _, part := range results {
			var values []any
			for _, v := range part {
				if !v.IsValid() {
					values = append(values, nil)
					continue
				}
				values = append(values, v.Interface())
			}
			want = append(want, values)
		}
		for i := range got {
			if len(got[i]) == 0 {
				got[i] = nil
			}
		}
		if err == nil && !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			t.Fatalf("seed %d: %s of %v: got %v, want %v", seed, text, object, got, want)
		}
		if err == nil && len(got) > 0 && len(got[0]) > 0 {
			found++
		}
	}
	if found < 200 {
		t.Errorf("only %d paths found something", found)
	}
}

// findResults calls the library, which panics for some paths.
func findResults(j *jsonpath.JSONPath, object any) (all [][]reflect.Value, wrong error, panics bool) {
	defer func() { panics = recover() != nil }()
	all, wrong = j.FindResults(object)
	return all, wrong, false
}

// TestHostilePaths shows tables with stored columns that would take forever.
func TestHostilePaths(t *testing.T) {
	deep := any("x")
	for range 200 {
		deep = map[string]any{"x": deep}
	}
	object := &Object{Members: map[string]any{
		"spec": deep, "list": []any{[]any{int64(1)}, []any{int64(1)}}, "text": strings.Repeat("x", 1<<20),
	}}
	object.Name = "a"
	object.Members["loop"] = []any{object.Members["list"], object.Members["list"]}
	table := func(paths ...string) (*allowance, string) {
		var columns []apiextensionsv1.CustomResourceColumnDefinition
		for i, p := range paths {
			columns = append(columns, apiextensionsv1.CustomResourceColumnDefinition{Name: fmt.Sprint(i), Type: "string", JSONPath: p})
		}
		parsed := parseColumns(columns)
		a := newAllowance(object.whole(), len(parsed))
		row := new(resource.Row)
		for _, c := range parsed {
			c.cell(a, row)
		}
		return a, string(row.Append(nil, object.CreationTimestamp.Time))
	}
	for _, path := range []string{
		".spec..x..x..x..x", ".spec" + strings.Repeat("..x", 100), ".list" + strings.Repeat("[0,0]", 25) + ".a",
		".list" + strings.Repeat("[*,*]", 40), strings.Repeat(".}{range .loop[*]}{range @..*", 12), ".spec" + strings.Repeat("[?(@..x..x..x)]", 20),
	} {
		if len(path) > apiextensions.MaxPathBytes {
			t.Fatalf("%s is too long", path)
		}
		a, cells := table(path, ".metadata.name")
		values, _ := size(a.object)
		if most := 2 * (minSteps + 2*stepsPerColumn + stepsPerValue*values); a.steps < -most && a.steps > -1<<30 || len(cells) > 4<<20 {
			t.Errorf("%.80s: %d steps, %d bytes", path, a.steps, len(cells))
		}
	}
	// Many columns that print a megabyte.
	many := make([]string, 250)
	for i := range many {
		many[i] = ".text"
	}
	if a, cells := table(many...); len(cells) > 6<<20 || a.printed >= 0 || !strings.HasSuffix(cells, "null]") {
		t.Errorf("%d bytes", len(cells))
	}
	// Paths for which the parser recurses end the table, as every invalid path does.
	for _, path := range []string{"." + strings.Repeat("$", 1_500_000), "." + strings.Repeat(" ", 1_400_000), "." + strings.Repeat("[?(", 500_000)} {
		if _, cells := table(".metadata.name", path, ".metadata.name"); cells != `"cells":["a"]` {
			t.Errorf("%.20s: %.200s", path, cells)
		}
	}
}
