package check

import (
	"slices"
	"testing"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestNames compares the fast checks with those of the library.
func TestNames(t *testing.T) {
	r, n := testrand.New(t), 20_000
	if tier.IsFull(t) {
		n = 200_000
	}
	const letters = "ab09-.-._/AZ\x00é"
	for range n {
		name := make([]byte, r.IntN(9))
		for i := range name {
			name[i] = letters[r.IntN(len(letters))]
		}
		if r.IntN(100) == 0 {
			name = slices.Repeat(name, 40)
		}
		for _, same := range []struct {
			what     string
			own, lib func(string) []string
		}{
			{"label", LabelFaults, utilvalidation.IsDNS1123Label},
			{"subdomain", SubdomainFaults, utilvalidation.IsDNS1123Subdomain},
			{"qualified name", QualifiedNameFaults, utilvalidation.IsQualifiedName},
			{"value", func(s string) []string {
				if s == "" || isWord(s) {
					return nil
				}
				return utilvalidation.IsValidLabelValue(s)
			}, utilvalidation.IsValidLabelValue},
		} {
			if got, want := same.own(string(name)), same.lib(string(name)); !slices.Equal(got, want) {
				t.Fatalf("%s %q: %q, want %q", same.what, name, got, want)
			}
		}
	}
}
