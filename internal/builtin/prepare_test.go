package builtin_test

import (
	"reflect"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestPrepareUpdate checks that PrepareUpdate does not modify the sent object, from which the
// managed fields are computed.
func TestPrepareUpdate(t *testing.T) {
	fill := filler(testrand.New(t))
	kinds := 0
	for typ := range builtin.Catalog().Types() {
		if typ.Strategy.PrepareUpdate == nil {
			continue
		}
		kinds++
		for range 5 {
			sent, current := typ.New(), typ.New()
			fill.Fill(sent)
			fill.Fill(current)
			before := sent.DeepCopyObject()
			typ.Strategy.PrepareUpdate(sent, current)
			if !reflect.DeepEqual(sent, before) {
				t.Fatalf("%s: PrepareUpdate modifies what the client sent", typ.Kind)
			}
		}
	}
	if kinds == 0 {
		t.Error("no kind has PrepareUpdate")
	}
}
