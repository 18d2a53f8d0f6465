package core

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// inOrder sorts by their paths errors that were found in the members of a map, so
// that one object always gets one answer.
func inOrder(errs field.ErrorList) {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Field, b.Field) })
}

// sorted yields the members of a small map in the order of their keys.
func sorted[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if len(m) == 1 {
			for k, v := range m {
				yield(k, v)
			}
			return
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(k, m[k]) {
				return
			}
		}
	}
}
