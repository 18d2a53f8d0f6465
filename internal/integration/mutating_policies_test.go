package integration_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestMutatingPolicies checks what mutating admission policies make of requests.
func TestMutatingPolicies(t *testing.T) { scenario(t, "mutating_policies.txt", &tidemark.Server{}) }
