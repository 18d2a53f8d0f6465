package apply

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Configure merges the apply configuration of a mutating policy into an object, and returns the new
// object. It removes nothing, and changes no managed fields. The configuration must not have values
// that are replaced as a whole (atomic lists and maps), nor fields that are not in the schema. It
// modifies neither tree; the result may share parts with both. Errors have the messages of
// kube-apiserver.
func (s *Schema) Configure(live, configuration map[string]any) (map[string]any, error) {
	change, err := s.typed(configuration)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if all := atomics(nil, change.Schema(), change.TypeRef(), change.AsValue()); len(all) > 0 {
		slices.Sort(all)
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(all, ", "))
	}
	object, err := s.typed(live, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := object.Merge(change)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	result, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, errors.New("failed to convert typed object to object: it is no JSON object")
	}
	return result, nil
}

// atomics returns the paths of the atomic lists and maps in a value that fits its schema. It does
// not look below the keys of maps.
func atomics(path fieldpath.Path, s *smd.Schema, t smd.TypeRef, v value.Value) (found []string) {
	a, ok := s.Resolve(t)
	if !ok {
		return nil
	}
	switch {
	case a.Map != nil && v.IsMap():
		if a.Map.ElementRelationship == smd.Atomic {
			found = append(found, path.String())
		}
		v.AsMap().Iterate(func(name string, member value.Value) bool {
			if f, ok := a.Map.FindField(name); ok {
				found = append(found, atomics(append(path, fieldpath.PathElement{FieldName: &name}), s, f.Type, member)...)
			}
			return true
		})
	case a.List != nil && v.IsList():
		if a.List.ElementRelationship == smd.Atomic {
			found = append(found, path.String())
		}
		items := v.AsList()
		for i := range items.Length() {
			found = append(found, atomics(append(path, fieldpath.PathElement{Index: &i}), s, a.List.ElementType, items.At(i))...)
		}
	}
	return found
}
