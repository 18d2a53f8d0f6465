package patch

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The libraries compare each element of a list in the patch with each one in the document,
// and move a whole array for each operation on it. The total is bounded before they begin:
// 3 MiB of lists would keep a core busy for hours.
const (
	// maxComparisons bounds comparisons of list elements, about 0.3 µs each.
	maxComparisons = 2 << 20
	// maxMoves bounds moves of array elements, about 30 ns each.
	maxMoves = 32 << 20
)

func tooMuchWork() error {
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
		"the lists of the patch and of the object are too long to be merged: the lengths multiply to more than %d", maxComparisons))
}

// boundMerge refuses a strategic merge patch whose lists are too long in combination with
// those of the document.
func boundMerge(original, change map[string]any) error {
	all, _ := listLengths(change)
	if all == 0 {
		return nil
	}
	// The library also compares a list of the patch with itself.
	_, longest := listLengths(original)
	if _, own := listLengths(change); own > longest {
		longest = own
	}
	if all > maxComparisons/max(longest, 1) {
		return tooMuchWork()
	}
	return nil
}

// listLengths returns the total length of all lists in a value, and the length of the
// longest.
func listLengths(v any) (all, longest int) {
	add := func(inner any) {
		a, l := listLengths(inner)
		all, longest = all+a, max(longest, l)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			add(inner)
		}
	case []any:
		all, longest = len(v), len(v)
		for _, inner := range v {
			add(inner)
		}
	}
	return all, longest
}

// boundMoves refuses a JSON patch with many operations on a document with long arrays.
func boundMoves(document []byte, operations jsonpatch.Patch, size int) error {
	if len(operations) <= maxMoves/max(len(document), size, 1) {
		return nil // as nearly always: no array has more elements than the text has bytes
	}
	longest := longestArray(document)
	for _, o := range operations {
		if value := o["value"]; value != nil {
			longest = max(longest, longestArray(*value))
		}
	}
	if len(operations) > maxMoves/(longest+len(operations)) {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(
			"%d operations are too many for an array of %d elements: they multiply to more than %d", len(operations), longest, maxMoves))
	}
	return nil
}

// longestArray returns the length of the longest array in a JSON text, up to the first
// syntax error.
func longestArray(text []byte) int {
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	longest := 0
	for {
		if _, err := d.ReadToken(); err != nil {
			return longest
		}
		if kind, n := d.StackIndex(d.StackDepth()); kind == jsontext.KindBeginArray {
			longest = max(longest, int(n))
		}
	}
}
