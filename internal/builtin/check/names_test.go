package check

import (
	"slices"
	"testing"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestNames: what is seen without the library is what the library says.
func TestNames(t *testing.T) {
	r := testrand.New(t)
	const letters = "ab09-.-._/AZ\x00é"
	for range 200_000 {
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
