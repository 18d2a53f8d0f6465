package integration_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestNodes: what nodes may read and write, with the admission plugin NodeRestriction.
func TestNodes(t *testing.T) {
	scenario(t, "nodes.txt", &tidemark.Server{EnableAdmissionPlugins: []string{"NodeRestriction"}})
}

// TestOwners: changes of owner references require rights.
func TestOwners(t *testing.T) {
	scenario(t, "owners.txt", &tidemark.Server{
		EnableAdmissionPlugins: []string{"OwnerReferencesPermissionEnforcement"},
		Controllers:            []string{"-*"}, // the owners do not exist
	})
}

// TestSigners: approving and signing requests for certificates requires rights on the signer.
func TestSigners(t *testing.T) {
	scenario(t, "signers.txt", &tidemark.Server{})
}
