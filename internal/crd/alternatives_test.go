package crd_test

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestCausesOfAlternatives checks the causes of an object that does not fit the alternatives of its schema. The schema
// has no rule, or has one in allOf alone: then no cause says that rules were not checked.
func TestCausesOfAlternatives(t *testing.T) {
	const unchecked = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
	texts := func(kind string, parts ...any) tree {
		return tree{"type": "object", "properties": tree{"t": tree{"type": "string", kind: parts}}}
	}
	long, wide := tree{"minLength": 5}, tree{"pattern": "^w"}
	for name, c := range map[string]struct {
		schema tree
		spec   any
		want   []string
	}{
		"none of allOf": {texts("allOf", long, wide), tree{"t": "x"}, []string{
			`spec.v.t: Invalid value: "x": spec.v.t in body should be at least 5 chars long`,
			`spec.v.t: Invalid value: "x": spec.v.t in body should match '^w'`,
			`<nil>: Invalid value: "": "spec.v.t" must validate all the schemas (allOf). None validated`,
		}},
		"one of allOf": {texts("allOf", long, wide), tree{"t": "w"}, []string{
			`spec.v.t: Invalid value: "w": spec.v.t in body should be at least 5 chars long`,
			`<nil>: Invalid value: "": "spec.v.t" must validate all the schemas (allOf)`,
		}},
		"none of anyOf": {texts("anyOf", long, wide), tree{"t": "x"}, []string{
			`<nil>: Invalid value: "": "spec.v.t" must validate at least one schema (anyOf)`,
			`spec.v.t: Invalid value: "x": spec.v.t in body should be at least 5 chars long`,
		}},
		"a type, with allOf": {texts("allOf", long), []any{}, []string{
			`spec.v: Invalid value: "array": spec.v in body must be of type object: "array"`,
		}},
		"a type, with a rule in allOf": {texts("allOf", tree{"x-kubernetes-validations": []any{tree{"rule": "self == 'a'"}}}), []any{}, []string{
			`spec.v: Invalid value: "array": spec.v in body must be of type object: "array"`,
		}},
		"a type, with a rule": {tree{"type": "object", "x-kubernetes-validations": []any{tree{"rule": "true"}}}, []any{}, []string{
			`spec.v: Invalid value: "array": spec.v in body must be of type object: "array"`, "<nil>: " + unchecked,
		}},
	} {
		s := newCustoms(t, c.schema)
		_, err := s.Create(t.Context(), registry.Target{Type: s.typ, Namespace: "default"}, registry.Body{Media: wire.JSON, Bytes: custom(t, c.spec)}, registry.WriteOptions{})
		var got []string
		if status := (apierrors.APIStatus)(nil); errors.As(err, &status) && status.Status().Details != nil {
			for _, cause := range status.Status().Details.Causes {
				got = append(got, cause.Field+": "+cause.Message)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v: %q, want %q", name, err, got, c.want)
		}
	}
}
