package integration_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestMutatingPolicies checks what mutating admission policies make of requests. Without controllers,
// whose ConfigMaps the policies would change, too.
func TestMutatingPolicies(t *testing.T) {
	scenario(t, "mutating_policies.txt", &tidemark.Server{Controllers: []string{"-*"}})
}
