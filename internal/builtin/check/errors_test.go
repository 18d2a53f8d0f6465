package check_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// TestErrors checks that all errors are counted, and that an error that no response contains takes
// the memory of a pointer.
func TestErrors(t *testing.T) {
	const made, many = 1000, 100_000
	var e check.Errors
	at := field.NewPath("spec", "list")
	add := func(n int) {
		for range n / 5 {
			e.Invalid(at, "a", "", "wrong")
			e.Required(at, "b", "")
			e.Forbidden(at, "c", "")
			e.Duplicate(at, "d", "")
			e.NotFound(at, "e", "")
		}
	}
	add(made)
	if n := testing.AllocsPerRun(1, func() { add(many) }); n > many/100 {
		t.Errorf("%d errors took %.0f allocations", many, n)
	}
	if want := made + 2*many; e.Len() != want { // AllocsPerRun calls it once before it measures
		t.Errorf("%d errors are counted as %d", want, e.Len())
	}
	e.SortFrom(0)
	if got := e.List()[made-1].Field; got != "spec.list.e" {
		t.Errorf("the last of the errors that a response contains is about %q", got)
	}
}
