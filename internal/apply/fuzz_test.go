package apply

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// everything is a schema with all that schemas have.
const everything = `types:
- name: root
  map:
    fields:
    - name: apiVersion
      type: {scalar: string}
    - name: kind
      type: {scalar: string}
    - name: metadata
      type:
        map:
          fields:
          - {name: name, type: {scalar: string}}
          - {name: uid, type: {scalar: string}}
          - {name: labels, type: {map: {elementType: {scalar: string}}}}
          - {name: managedFields, type: {namedType: __untyped_atomic_}}
    - name: spec
      type: {namedType: spec}
    - name: status
      type: {namedType: spec}
- name: spec
  map:
    fields:
    - {name: num, type: {scalar: numeric}}
    - {name: str, type: {scalar: string}}
    - {name: bool, type: {scalar: boolean}}
    - {name: u, type: {scalar: untyped}}
    - {name: any, type: {namedType: __untyped_deduced_}}
    - {name: one, type: {namedType: __untyped_atomic_}}
    - {name: more, type: {namedType: spec}}
    - {name: whole, type: {namedType: spec, elementRelationship: atomic}}
    - name: map
      type: {map: {elementType: {namedType: spec}}}
    - name: set
      type: {list: {elementType: {scalar: untyped}, elementRelationship: associative}}
    - name: atoms
      type: {list: {elementType: {namedType: spec}, elementRelationship: atomic}}
    - name: list
      type: {list: {elementType: {namedType: item}, elementRelationship: associative, keys: [port, proto]}}
- name: item
  map:
    fields:
    - {name: port, type: {scalar: numeric}}
    - {name: proto, type: {scalar: string}, default: TCP}
    - {name: v, type: {scalar: string}}
    - {name: more, type: {namedType: spec}}
- name: __untyped_atomic_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
- name: __untyped_deduced_
  scalar: untyped
  list: {elementType: {namedType: __untyped_atomic_}, elementRelationship: atomic}
  map: {elementType: {namedType: __untyped_deduced_}, elementRelationship: separable}
`

func everythingSchema(t testing.TB) *Schema {
	p, err := typed.NewParser(everything)
	if err != nil {
		t.Fatal(err)
	}
	return Custom(schema.GroupVersionKind{Version: "v1", Kind: "Thing"}, p.Type("root"), true)
}

func wrapped(spec string) []byte {
	return []byte(`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"x","uid":"u"},"spec":` + spec + `}`)
}

// twice reports whether an object has a member twice: encoders never write that.
func twice(t *testing.T, data []byte) bool {
	var tp tape
	if tp.read(data) != nil {
		t.Fatalf("no JSON: %s", data)
	}
	c := comparison{right: &tp}
	for i := range tp.values {
		if tp.values[i].kind == '{' {
			c.unique(int32(i))
		}
	}
	return c.odd
}

// FuzzStraight compares the fast path with the library for any two objects and any configuration.
func FuzzStraight(f *testing.F) {
	for _, s := range []string{
		`{"num":1,"str":"a","bool":true,"u":"x"}`, `{"num":1.5,"u":2,"any":{"a":[1,{"b":null}],"c":{}}}`, `{"any":[1],"one":{"a":1}}`, `{"any":"a"}`,
		`{"set":["a","b",1,true]}`, `{"set":["b","a"]}`, `{"list":[{"port":80},{"port":80,"proto":"UDP","v":"x"}]}`, `{"list":[{"port":443,"proto":"TCP","more":{"set":["é"]}},{"port":80}]}`,
		`{"more":{"more":{"map":{"a":{"num":1},"b":null,"<":{}}}}}`, `{"whole":{"num":1,"set":["x"]},"atoms":[{"num":1}]}`, `{"list":null,"set":[],"map":{},"more":null}`, `{}`, `null`,
		`{"list":[{"port":80},{"port":81},{"port":82}]}`, `{"list":[{"port":82},{"port":83},{"port":80}]}`, `{"set":["a","a"]}`, `{"x":1}`, `{"str":1}`,
	} {
		for _, other := range []string{`{"num":2,"set":["c","a"],"list":[{"port":80,"v":"y"}]}`, `{"map":{"a":{"num":2}}}`, s} {
			f.Add(s, other, `{"num":3,"set":["a"],"list":[{"port":81,"v":"z"},{"port":80}]}`, true)
			f.Add(other, s, s, false)
		}
	}
	f.Add(`{"list":[]}`, `{"list":[]}`, `{"one":[],"list":[]}`, true) // the second apply removes the only value beside an empty list
	f.Fuzz(func(t *testing.T, a, b, p string, force bool) {
		for _, x := range []string{a, b, p} {
			if !json.Valid([]byte(x)) || strings.Contains(x, "managedFields") || twice(t, wrapped(x)) {
				return
			}
		}
		bothWays(t, everythingSchema(t), a, b, p, force)
	})
}

// bothWays creates a, updates it to b, and applies p twice, with both implementations. It
// returns how many applies took the fast path.
func bothWays(t *testing.T, s *Schema, a, b, p string, force bool) (straight int) {
	old, next, patch := wrapped(a), wrapped(b), bytes.Replace(wrapped(p), []byte(`,"uid":"u"`), nil, 1)
	now := Write{Manager: "one", Time: time.Unix(1e9, 0)}
	first := straightAgainstLibrary(t, s, nil, nil, old, now)
	now.Time = now.Time.Add(time.Minute)
	straightAgainstLibrary(t, s, first, old, next, now)
	now.Manager = "two"
	second := straightAgainstLibrary(t, s, first, old, next, now)
	now.Time = now.Time.Add(time.Minute)
	third, merged, ok := applyAgainstLibrary(t, s, second, next, patch, now, force)
	if ok {
		straight++
		now.Time = now.Time.Add(time.Minute) // and now less, or something else
		less := bytes.Replace(wrapped(a), []byte(`,"uid":"u"`), nil, 1)
		if _, _, ok := applyAgainstLibrary(t, s, third, merged, less, now, force); ok {
			straight++
		}
	}
	now.Subresource = "status"
	applyAgainstLibrary(t, s, first, old, patch, now, force)
	return straight
}

// TestStraightAtRandom is FuzzStraight with objects that mostly fit the schema.
func TestStraightAtRandom(t *testing.T) {
	r := testrand.New(t)
	s := everythingSchema(t)
	n := 500
	if tier.IsFull(t) {
		n = 20_000
	}
	straight := 0
	for range n {
		a := randomSpec(r, 3)
		b, p := a, a
		if r.IntN(4) > 0 {
			b = randomSpec(r, 3)
		}
		switch r.IntN(4) {
		case 0:
			p = b
		case 1, 2:
			p = randomSpec(r, 3)
		}
		straight += bothWays(t, s, a, b, p, r.IntN(2) == 0)
	}
	if straight < n/8 {
		t.Errorf("only %d of %d applies went straight", straight, 2*n)
	}
}

// randomSpec writes a spec of the schema with everything, with few mistakes.
func randomSpec(r *rand.Rand, depth int) string {
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	var members []string
	add := func(chance float64, name string, value func() string) {
		if r.Float64() < chance {
			v := "null"
			if r.IntN(25) > 0 {
				v = value()
			}
			members = append(members, fmt.Sprintf("%q:%s", name, v))
		}
	}
	list := func(f func() string) func() string {
		return func() string {
			var items []string
			for range r.IntN(5) {
				if item := f(); !slices.Contains(items, item) || r.IntN(20) == 0 {
					items = append(items, item)
				}
			}
			return "[" + strings.Join(items, ",") + "]"
		}
	}
	scalar := func() string {
		return one("1", "2", `"a"`, `"b c"`, `"<"`, "true", "false", `"é"`, "1.5", "10", `"a!"`)
	}
	spec := func() string {
		if depth == 0 {
			return "{}"
		}
		return randomSpec(r, depth-1)
	}
	add(0.3, "num", func() string { return one("1", "2", "1.0", "2.50", "-3", `"x"`) })
	add(0.3, "str", func() string { return one(`"a"`, `"\u0061"`, `"b"`, `""`, `"a"`, `"b"`, "1") })
	add(0.2, "bool", func() string { return one("true", "false") })
	add(0.2, "u", scalar)
	add(0.2, "any", func() string {
		return one("1", "[1]", `["a",{"b":1}]`, `{"a":1}`, `{"a":{"b":[1]},"c":null}`, "{}", "[]")
	})
	add(0.2, "one", func() string { return one("1", "[1]", `{"a":1,"b":2}`, `{"b":2,"a":1}`, "{}", "[]") })
	add(0.3, "more", spec)
	add(0.2, "whole", spec)
	add(0.2, "atoms", list(spec))
	add(0.4, "set", list(scalar))
	add(0.3, "map", func() string {
		var all []string
		for _, k := range []string{"a", "b", "c<", "d"} {
			if r.IntN(3) == 0 {
				all = append(all, fmt.Sprintf("%q:%s", k, spec()))
			}
		}
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return "{" + strings.Join(all, ",") + "}"
	})
	add(0.5, "list", list(func() string {
		item := `{"port":` + one("80", "81", "443", "8080")
		item += one("", "", `,"proto":"TCP"`, `,"proto":"UDP"`)
		item += one("", `,"v":"x"`, `,"v":"y"`)
		if r.IntN(4) == 0 {
			item += `,"more":` + spec()
		}
		return item + "}"
	}))
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	if r.IntN(100) == 0 {
		members = append(members, `"bogus":1`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

func straightAgainstLibrary(t *testing.T, s *Schema, before, old, next []byte, w Write) []byte {
	t.Helper()
	entries, err := parseManaged(before)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 && old != nil {
		return nil
	}
	live, err := s.liveTree(old)
	if err != nil {
		t.Fatal(err)
	}
	is, err := tree(next)
	if err != nil {
		t.Fatal(err)
	}
	want, wantErr := s.updateByLibrary(entries, live, is, w)
	if straight, ok := s.updateFast(entries, old, next, w); ok { // which holds less against the schema
		if got := encodeManaged(straight); wantErr == nil && !bytes.Equal(got, encodeManaged(want)) {
			t.Fatalf("old %s\nnext %s\nbefore %s\ngot  %s\nwant %s %v", old, next, before, got, encodeManaged(want), wantErr)
		}
		return encodeManaged(straight)
	}
	if wantErr != nil {
		return nil
	}
	return encodeManaged(want)
}

func applyAgainstLibrary(t *testing.T, s *Schema, before, live, patch []byte, w Write, force bool) (managed, next []byte, ok bool) {
	t.Helper()
	entries, err := parseManaged(before)
	if err != nil {
		t.Fatal(err)
	}
	next, straight, ok := s.applyFast(entries, live, patch, applying{w, force})
	if !ok {
		return nil, nil, false
	}
	was, err := s.liveTree(live)
	if err != nil {
		t.Fatal(err)
	}
	config, err := tree(patch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.typed(was, typed.AllowDuplicates); err != nil {
		return nil, nil, false // the stored object does not fit the schema
	}
	merged, want, err := s.applyByLibrary(entries, was, config, applying{w, force})
	if err != nil {
		t.Fatalf("live %s\npatch %s\nlibrary: %v (conflicts: %t)", live, patch, err, errors.As(err, new(merge.Conflicts)))
	}
	if got, want := encodeManaged(straight), encodeManaged(want); !bytes.Equal(got, want) {
		t.Fatalf("live %s\npatch %s\ngot  %s\nwant %s", live, patch, got, want)
	}
	if (merged == nil) != (next == nil) {
		t.Fatalf("live %s\npatch %s\ngot  %s\nwant %v", live, patch, next, merged)
	}
	if merged == nil {
		return encodeManaged(straight), live, true
	}
	var got map[string]any
	if err := utiljson.Unmarshal(next, &got); err != nil {
		t.Fatalf("%v: %s", err, next)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(merged)
	if !bytes.Equal(a, b) {
		t.Fatalf("live %s\npatch %s\ngot  %s\nwant %s", live, patch, a, b)
	}
	return encodeManaged(straight), next, true
}

// FuzzTape checks that indexed text is JSON, and that the index matches it.
func FuzzTape(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,-2.5e+3,"x\n\u00e9",true,false,null],"b":{"c":{}}}`, ` { "a" : 01 } `, `{"a":1`, `{"":[]}`, `{"a":"` + "\xff" + `"}`, `[1]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var tp tape
		err := tp.read(data)
		if (err == nil) && !json.Valid(data) && !strings.Contains(string(data), `\`) {
			t.Fatalf("indexed %q", data)
		}
		if !json.Valid(data) || bytes.TrimSpace(data)[0] != '{' {
			return
		}
		if err != nil {
			if !bytes.Contains(data, []byte("[[[[[[[[[[")) && len(data) < maxTapeDepth {
				t.Fatalf("not indexed: %q", data)
			}
			return
		}
		if got := bytes.TrimSpace(data); !bytes.Equal(tp.raw(0), got) {
			t.Fatalf("got %s", tp.raw(0))
		}
		for i := range tp.values {
			if !json.Valid(tp.raw(int32(i))) {
				t.Fatalf("value %d is %s", i, tp.raw(int32(i)))
			}
		}
	})
}

// FuzzFields checks that sets are read and written as the library does, in its order.
func FuzzFields(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"f:a":{}}`, `{"f:b":{".":{},"f:c":{}},"f:a":{}}`, `{"f:l":{"k:{\"a\":1,\"b\":\"x\"}":{".":{},"f:a":{}},"v:1":{},"v:\"a\"":{},"v:true":{}}}`,
		`{"f:s":{"v:\"a b\"":{},"v:\"a\"":{},"v:\"<\"":{},"v:\"\\u003c\"":{}}}`, `{"f:<":{},"f:\u003c":{}}`, `{"i:1":{},"x:":{}}`, `{"f:a":{"f:b":{}},"f:a":{}}`, `{"k:{\"a\":1.0}":{},"k:{\"a\":1}":{}}`, `{ "f:a" : { } }`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return // the library's reader takes some of it, and it never gets there
		}
		set := &fieldpath.Set{}
		libraryErr := set.FromJSON(bytes.NewReader(data))
		got, err := newFields(data)
		if libraryErr != nil {
			if err == nil && !got.odd {
				t.Fatalf("read %s: %s; library: %v", data, got.json, libraryErr)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		want, err := set.ToJSON()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.json, escaped(want)) {
			t.Fatalf("read %s\ngot  %s\nwant %s", data, got.json, want)
		}
		if got.odd {
			return
		}
		siblings := got.trie.below(&got.trie.nodes[0])
		if !slices.IsSortedFunc(siblings, func(a, b node) int { return a.order(&b) }) {
			t.Fatalf("not in order: %s", got.json)
		}
	})
}
