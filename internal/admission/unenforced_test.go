package admission

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/builtin"
)

// TestUnenforcedKinds checks that each collection of the table exists.
func TestUnenforcedKinds(t *testing.T) {
	there := map[string]bool{}
	for _, g := range builtin.Catalog().Groups() {
		for _, v := range g.Versions {
			for _, typ := range v.Types {
				there[typ.Collection] = true
			}
		}
	}
	for collection := range unenforced {
		if !there[collection] {
			t.Errorf("there is no collection %s", collection)
		}
	}
}
