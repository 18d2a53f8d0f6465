package crd

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/runtime"
)

// randomDefaults returns a schema with defaults that may have any form.
func randomDefaults(r *rand.Rand, depth int) structuralschema.Structural {
	s := structuralschema.Structural{Generic: structuralschema.Generic{Nullable: r.IntN(3) == 0}}
	if r.IntN(2) == 0 {
		s.Default.Object = randomTree(r, 2)
	}
	if depth == 0 {
		return s
	}
	if r.IntN(2) == 0 {
		s.Properties = map[string]structuralschema.Structural{}
		for _, name := range []string{"a", "b", "c"}[:1+r.IntN(3)] {
			s.Properties[name] = randomDefaults(r, depth-1)
		}
	}
	if r.IntN(2) == 0 {
		others := randomDefaults(r, depth-1)
		s.AdditionalProperties = &structuralschema.StructuralOrBool{Structural: &others}
	}
	if r.IntN(2) == 0 {
		items := randomDefaults(r, depth-1)
		s.Items = &items
	}
	return s
}

// TestDefaultsLikeLibrary compares the defaults of random schemas with those of the library.
func TestDefaultsLikeLibrary(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	grown := 0
	for range 4_000 {
		s := randomDefaults(r, 3)
		got := map[string]any{"a": randomTree(r, 3)}
		want := runtime.DeepCopyJSON(got)
		was := runtime.DeepCopyJSON(got)
		structuraldefaulting.Default(want, &s)
		if !defaultsOf(&s).fill(got) || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %v: got %v, want %v", seed, was, got, want)
		}
		if !reflect.DeepEqual(was, want) {
			grown++
		}
	}
	if grown < 200 {
		t.Errorf("only %d had defaults", grown)
	}
}

// TestDefaultsMultiply checks that defaults which are too large are not set, and that this is known
// before anything is set.
func TestDefaultsMultiply(t *testing.T) {
	big := map[string]any{}
	for _, a := range "abcdefghijklmnopqrst" {
		for _, b := range "abcdefghijklmno" {
			big[string(a)+string(b)] = ""
		}
	}
	member := structuralschema.Structural{Generic: structuralschema.Generic{Default: structuralschema.JSON{Object: big}}}
	item := structuralschema.Structural{Properties: map[string]structuralschema.Structural{"m": member}}
	list := structuralschema.Structural{Items: &item}
	items := make([]any, 90_000)
	for i := range items {
		items[i] = map[string]any{}
	}
	d := defaultsOf(&list)
	if d.fill(items) || len(items[0].(map[string]any)) != 0 {
		t.Error("the defaults were set")
	}
	left := maxDefaults
	if d.visit(items, &left, false) || left < -d.items.members["m"].bytes-1 {
		t.Errorf("%d bytes were counted too much", -left)
	}
	if !d.fill(items[:500]) || len(items[499].(map[string]any)["m"].(map[string]any)) != 300 || len(items[500].(map[string]any)) != 0 {
		t.Error("the defaults were not set")
	}
	// Defaults in defaults, each of which has ten empty items.
	s := structuralschema.Structural{Generic: structuralschema.Generic{Default: structuralschema.JSON{Object: strings.Repeat("x", 100)}}}
	for range 12 {
		inner := structuralschema.Structural{Properties: map[string]structuralschema.Structural{"m": s}}
		ten := make([]any, 10)
		for i := range ten {
			ten[i] = map[string]any{}
		}
		s = structuralschema.Structural{Items: &inner, Generic: structuralschema.Generic{Default: structuralschema.JSON{Object: ten}}}
	}
	whole := structuralschema.Structural{Properties: map[string]structuralschema.Structural{"m": s}}
	if d := defaultsOf(&whole); d.fill(map[string]any{}) {
		t.Error("defaults of 10^14 bytes were set")
	}
	if d := defaultsOf(&whole); !d.fill(map[string]any{"m": []any{}}) {
		t.Error("an object without missing members is refused")
	}
}

// TestDefaultsOfSchema: the defaults of a schema are not multiplied before an object needs them.
func TestDefaultsOfSchema(t *testing.T) {
	empty := make([]any, 1000)
	for i := range empty {
		empty[i] = map[string]any{}
	}
	text := structuralschema.Structural{Generic: structuralschema.Generic{Default: structuralschema.JSON{Object: strings.Repeat("x", 1000)}}}
	item := structuralschema.Structural{Properties: map[string]structuralschema.Structural{"m": text}}
	list := structuralschema.Structural{Items: &item, Generic: structuralschema.Generic{Default: structuralschema.JSON{Object: empty}}}
	s := structuralschema.Structural{Properties: map[string]structuralschema.Structural{}}
	for i := range 100 { // each makes a megabyte of 4 kB
		s.Properties[fmt.Sprint("p", i)] = list
	}
	var d *defaults
	if n := testing.AllocsPerRun(1, func() { d = defaultsOf(&s) }); n > 5000 {
		t.Errorf("collecting %d defaults made %v allocations", len(s.Properties), n)
	}
	if d.fill(map[string]any{}) {
		t.Error("100 MB of defaults were set")
	}
	one := &defaults{missing: d.missing[:1], members: map[string]*defaults{d.missing[0].name: d.missing[0].of}}
	object := map[string]any{}
	if !one.fill(object) || len(object) != 1 {
		t.Fatalf("%d members", len(object))
	}
	for _, v := range object {
		if all := v.([]any); len(all) != 1000 || len(all[999].(map[string]any)["m"].(string)) != 1000 || len(empty[0].(map[string]any)) != 0 {
			t.Error("the defaults in a default were not set, or in the schema")
		}
	}
}
