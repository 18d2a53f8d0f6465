package resource_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// TestInvalid: up to a thousand errors a response is kube-apiserver's; of more, and of
// large ones, it says how many it left out.
func TestInvalid(t *testing.T) {
	kind := schema.GroupKind{Group: "g", Kind: "K"}
	wrong := func(n, size int) (errs field.ErrorList) {
		for i := range n {
			errs = append(errs, field.Invalid(field.NewPath("spec").Index(i), i, strings.Repeat("x", size)))
		}
		return errs
	}
	for _, row := range []struct{ errors, size, said int }{
		{0, 0, 0}, {1, 10, 1}, {1, 4 << 20, 1}, {1000, 10, 1000}, {1001, 10, 1000}, {250_000, 10, 1000}, {100, 100 << 10, 2}, {100, 1 << 20, 1},
	} {
		errs := wrong(row.errors, row.size)
		got := resource.Invalid(kind, "a", errs).ErrStatus
		want := apierrors.NewInvalid(kind, "a", errs[:row.said]).ErrStatus
		if left := row.errors - row.said; left > 0 {
			more := fmt.Sprintf("and %d more errors", left)
			last := got.Details.Causes[len(got.Details.Causes)-1]
			if last.Message != more || !strings.HasSuffix(got.Message, ", "+more) {
				t.Errorf("%d errors of %d bytes: the last cause is %q", row.errors, row.size, last.Message)
			}
			got.Details.Causes = got.Details.Causes[:len(got.Details.Causes)-1]
			got.Message = strings.TrimSuffix(got.Message, ", "+more)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d errors of %d bytes: %d causes, want %d", row.errors, row.size, len(got.Details.Causes), row.said)
		}
	}
}

// TestInvalidCost: the memory for a response with a thousand errors is in proportion to its text.
func TestInvalidCost(t *testing.T) {
	var errs field.ErrorList
	for i := range resource.MaxErrors {
		errs = append(errs, field.Invalid(field.NewPath("spec", "list").Index(i), "", strings.Repeat("x", 100)))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	response := resource.Invalid(schema.GroupKind{Kind: "K"}, "a", errs)
	runtime.ReadMemStats(&after)
	if made, most := after.TotalAlloc-before.TotalAlloc, uint64(30*len(response.ErrStatus.Message)); made > most {
		t.Errorf("a message of %d bytes took %d, want at most %d", len(response.ErrStatus.Message), made, most)
	}
}
