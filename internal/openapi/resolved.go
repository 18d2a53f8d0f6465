package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Resolved returns the schemas of types, with the schemas that they refer to in place of the
// references. A schema that refers to itself has an object without fields there. The schema of a type
// without a model is nil.
func Resolved(types []*resource.Type) ([]*spec.Schema, error) {
	all, err := schemas()
	if err != nil {
		return nil, err
	}
	if err := addCustom(all, types, 3); err != nil {
		return nil, err
	}
	out := make([]*spec.Schema, len(types))
	for i, t := range types {
		model := all[modelOf(t)]
		if model == nil {
			continue
		}
		text, err := json.Marshal(inlined(model, all, map[string]bool{modelOf(t): true}))
		if err != nil {
			return nil, err
		}
		out[i] = &spec.Schema{}
		if err := json.Unmarshal(text, out[i]); err != nil {
			return nil, fmt.Errorf("the schema of %s: %w", t.GroupVersionKind(), err)
		}
	}
	return out, nil
}

// inlined returns a schema with the models that it refers to. within are the models around it.
func inlined(schema tree, all map[string]tree, within map[string]bool) tree {
	if name, ok := reference(schema); ok {
		model := all[name]
		if model == nil || within[name] {
			return tree{"type": "object"}
		}
		within[name] = true
		defer delete(within, name)
		return inlined(model, all, within)
	}
	if one, ok := schema[alternative].(tree); ok { // of one type, where version 3 has several
		return maps.Clone(one)
	}
	out := maps.Clone(schema)
	if properties, ok := schema["properties"].(tree); ok {
		replaced := make(tree, len(properties))
		for name, p := range properties {
			replaced[name] = inlined(p.(tree), all, within)
		}
		out["properties"] = replaced
	}
	for _, member := range []string{"items", "additionalProperties"} {
		if of, ok := schema[member].(tree); ok {
			out[member] = inlined(of, all, within)
		}
	}
	return out
}

// reference returns the model that a schema refers to. The reference may be the only one of allOf.
func reference(schema tree) (string, bool) {
	if ref, ok := schema["$ref"].(string); ok {
		return strings.TrimPrefix(ref, refV3), true
	}
	of, _ := schema["allOf"].([]any)
	for _, one := range of {
		if one, ok := one.(tree); ok {
			if name, ok := reference(one); ok {
				return name, true
			}
		}
	}
	return "", false
}
