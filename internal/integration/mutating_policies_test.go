package integration_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestMutatingPolicies checks the effects of mutating admission policies on requests. It runs
// without controllers, whose ConfigMaps the policies would change, too.
func TestMutatingPolicies(t *testing.T) {
	scenario(t, "mutating_policies.txt", &tidemark.Server{Controllers: []string{"-*"}})
}
