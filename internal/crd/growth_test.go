package crd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// customs is a registry of the custom resource things. The tests choose the schema of the member v
// of its spec.
type customs struct {
	*registry.Registry
	t    *testing.T
	typ  *resource.Type
	took testkinds.Steps
}

func newCustoms(t *testing.T, schema any) *customs {
	t.Helper()
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if _, err := s.Commit(t.Context(), store.Write{Collection: "namespaces", Key: "default", Value: []byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"default"}}`)}); err != nil {
		t.Fatal(err)
	}
	value, at := stored("things.example.com")
	whole := text(t, tree{"type": "object", "properties": tree{"spec": tree{"type": "object", "properties": tree{"v": schema}}}})
	before, rest, _ := strings.Cut(string(value), `"openAPIV3Schema":`)
	_, rest, _ = strings.Cut(rest, `}}]},"status"`)
	value = []byte(before + `"openAPIV3Schema":` + whole + `}}]},"status"` + rest)
	if _, err := s.Commit(t.Context(), store.Write{Collection: crd.Collection, Key: "things.example.com", Value: value, RevisionAt: at}); err != nil {
		t.Fatal(err)
	}
	set := crd.NewSet(s, builtin.Catalog(), nil)
	t.Cleanup(set.Close)
	return &customs{&registry.Registry{Store: s}, t, set.Catalog().Lookup("example.com", "v1", "things"), testkinds.Steps{}}
}

type tree = map[string]any

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func custom(t *testing.T, v any) []byte {
	t.Helper()
	return []byte(text(t, tree{"apiVersion": "example.com/v1", "kind": "K", "metadata": tree{"name": "a", "namespace": "default"}, "spec": tree{"v": v}}))
}

// customCase is a schema, and a value with n entries.
type customCase struct {
	name   string
	schema func(n int) any
	value  func(n int) any
	right  bool
}

func list(items tree, more ...string) func(int) any {
	s := tree{"type": "array", "items": items}
	if len(more) > 0 {
		s["x-kubernetes-list-type"] = more[0]
	}
	if len(more) > 1 {
		s["x-kubernetes-list-map-keys"] = more[1:]
	}
	return func(int) any { return s }
}

func each(f func(i int) any) func(n int) any {
	return func(n int) any {
		all := make([]any, n)
		for i := range all {
			all[i] = f(i)
		}
		return all
	}
}

func members(f func(i int) any) func(n int) any {
	return func(n int) any {
		all := tree{}
		for i := range n {
			all[fmt.Sprint("m", i)] = f(i)
		}
		return all
	}
}

func number(i int) any { return i }
func word(i int) any   { return fmt.Sprint("w", i) }
func same(int) any     { return "w" }
func kv(i int) any     { return tree{"k": word(i), "l": 1, "v": 1} }

// enumOf is a list whose items are one of n values.
func enumOf(kind string, f func(i int) any) func(n int) any {
	return func(n int) any {
		return tree{"type": "array", "items": tree{"type": kind, "enum": each(f)(n)}}
	}
}

var (
	aString, anInt = tree{"type": "string"}, tree{"type": "integer"}
	aKV            = tree{"type": "object", "required": []any{"k"}, "properties": tree{"k": aString, "l": anInt, "v": anInt}}
	customCases    = []customCase{
		{"set", list(aString, "set"), each(word), true},
		{"set of equal items", list(aString, "set"), each(same), false},
		{"list map", list(aKV, "map", "k"), each(kv), true},
		{"list map of two keys", list(aKV, "map", "k", "l"), each(kv), true},
		{"list map of equal items", list(aKV, "map", "l"), each(kv), false},
		{"list map of wrong items", list(aKV, "map", "k"), each(func(i int) any { return tree{"k": i, "v": "x"} }), false},
		{"wrong items", list(aString), each(number), false},
		{"missing members", list(aKV), each(func(int) any { return tree{"v": 1} }), false},
		{"wrong patterns", list(tree{"type": "string", "pattern": "^x"}), each(word), false},
		{"one of many words", enumOf("string", word), each(word), true},
		{"one of many numbers", enumOf("integer", number), each(number), true},
		{"none of many words", enumOf("string", word), each(func(i int) any { return fmt.Sprint("x", i) }), false},
		{"none of many numbers", enumOf("integer", number), each(func(i int) any { return -1 - i }), false},
		{"lists in lists", list(tree{"type": "array", "items": aString}), each(func(i int) any { return []any{i, i} }), false},
		{"a map", func(int) any { return tree{"type": "object", "additionalProperties": aString} }, members(word), true},
		{"a wrong map", func(int) any { return tree{"type": "object", "additionalProperties": aString} }, members(number), false},
		{"unknown members", func(int) any { return aKV }, func(n int) any { m := members(number)(n).(tree); m["k"] = "x"; return m }, true},
		{"unknown members of items", list(aKV), each(func(i int) any { return tree{"k": "x", "y": i} }), true},
		{"many required members", func(n int) any {
			return tree{"type": "object", "required": each(word)(n), "properties": tree{"k": aString}}
		}, func(int) any { return tree{"k": "x"} }, false},
		{"alternatives", list(tree{"type": "object", "properties": aKV["properties"], "anyOf": []any{tree{"required": []any{"k"}}, tree{"required": []any{"v"}}}}), each(kv), true},
		{"no alternative", list(tree{"type": "object", "properties": aKV["properties"], "anyOf": []any{tree{"required": []any{"k"}}, tree{"required": []any{"v"}}}}), each(func(int) any { return tree{"l": 1} }), false},
		{"alternatives of a list", func(int) any {
			s := list(aString)(0).(tree)
			return tree{"type": "array", "items": s["items"], "anyOf": []any{tree{"items": tree{"pattern": "^x"}}, tree{"items": tree{"pattern": "^y"}}}}
		}, each(word), false},
	}
)

// TestCustomGrowth sends custom resources with many entries through the verbs, of schemas
// with many entries, too: the time that a verb takes grows as the entries do.
func TestCustomGrowth(t *testing.T) {
	tier.Full(t)
	const (
		few   = 2000
		noise = 100 * time.Millisecond
	)
	for _, c := range customCases {
		t.Run(c.name, func(t *testing.T) {
			if slow := testkinds.Growth(few, noise, func(n int) testkinds.Steps { return c.run(t, n) }); slow != "" {
				t.Error(slow)
			}
		})
	}
}

// run measures each step with n entries.
func (c *customCase) run(t *testing.T, n int) testkinds.Steps {
	s := newCustoms(t, c.schema(n))
	value, ctx := c.value(n), t.Context()
	much := custom(t, value)
	in := registry.Target{Type: s.typ, Namespace: "default"}
	at := in
	at.Name = "a"
	create := func(body []byte, o registry.WriteOptions) func() error {
		return func() error {
			_, err := s.Create(ctx, in, registry.Body{Media: wire.JSON, Bytes: body}, o)
			return err
		}
	}
	s.took.Do("strict", create(much, registry.WriteOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}}))
	err := s.took.Do("create", create(much, registry.WriteOptions{FieldValidation: metav1.FieldValidationWarn}))
	if (err == nil) != c.right {
		t.Fatalf("creating %d: %.2000v", n, err)
	}
	if !c.right {
		s.store(much)
	}
	changed := []byte(strings.Replace(string(much), `"metadata":{`, `"metadata":{"labels":{"a":"b"},`, 1))
	if list, ok := value.([]any); ok {
		list[0], list[n/2] = list[n/2], list[0]
		changed = custom(t, value)
	}
	put := func(o registry.WriteOptions) func() error {
		return func() error {
			version := fmt.Sprintf(`"metadata":{"resourceVersion":"%d",`, s.Store.Any().Get("things.example.com", "default/a").Modified)
			_, err := s.Update(ctx, at, registry.Body{Media: wire.JSON, Bytes: []byte(strings.Replace(string(changed), `"metadata":{`, version, 1))}, o)
			return err
		}
	}
	s.took.Do("update", put(registry.WriteOptions{}))
	s.took.Do("merge patch", func() error {
		_, err := s.Patch(ctx, at, registry.Patch{Type: types.MergePatchType, Bytes: much}, registry.WriteOptions{})
		return err
	})
	for _, manager := range []string{"one", "two"} {
		s.took.Do("apply by "+manager, func() error {
			_, err := s.Patch(ctx, at, registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: changed}, registry.WriteOptions{FieldManager: manager, Force: new(true)})
			return err
		})
	}
	return s.took
}

// store stores an object that its definition does not accept, as if the definition had changed
// since.
func (s *customs) store(body []byte) {
	s.t.Helper()
	text := `{"kind":"K","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"default","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z","resourceVersion":"`
	_, rest, _ := strings.Cut(string(body), `"spec":`)
	if _, err := s.Store.Commit(s.t.Context(), store.Write{Collection: "things.example.com", Key: "default/a", Value: []byte(text + `"},"spec":` + rest), RevisionAt: len(text)}); err != nil {
		s.t.Fatal(err)
	}
}

// TestValidationEnds checks that validation by rules and schemas ends when the client has left.
func TestValidationEnds(t *testing.T) {
	tier.Full(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for name, schema := range map[string]tree{
		"rules":  {"type": "array", "maxItems": 400_000, "items": anInt, "x-kubernetes-validations": []any{tree{"rule": "self.exists(x, x == -1)"}}},
		"schema": {"type": "array", "items": aString},
	} {
		t.Run(name, func(t *testing.T) {
			s := newCustoms(t, schema)
			o, _, err := s.typ.Custom.Decode(custom(t, each(number)(8000)))
			if err != nil {
				t.Fatal(err)
			}
			for ctx, want := range map[context.Context]bool{gone: true, t.Context(): false} {
				for verb, errs := range map[string]error{
					"create": s.typ.Strategy.Validate(ctx, o).ToAggregate(),
					"update": s.typ.Strategy.ValidateUpdate(ctx, o, new(crd.Object)).ToAggregate(),
				} {
					text := fmt.Sprint(errs)
					// A rule that does not begin has no cost.
					if ended := strings.Contains(text, "runtime cost could not be calculated") || strings.Contains(text, "ended early"); ended != want {
						t.Errorf("%s: %.300s, and it ended early: %v", verb, text, ended)
					}
				}
			}
			in := registry.Target{Type: s.typ, Namespace: "default"}
			if _, err := s.Create(gone, in, registry.Body{Media: wire.JSON, Bytes: custom(t, each(number)(8000))}, registry.WriteOptions{}); !errors.Is(err, context.Canceled) {
				t.Errorf("%.300v, want that the context is done", err)
			}
		})
	}
}
