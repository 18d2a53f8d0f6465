// Package kubeversion has the version of Kubernetes whose behaviour the server has.
package kubeversion

import "fmt"

// Versions are the versions that /version shows. All are of the major version Major.
type Versions struct {
	Major, Minor, Patch int
	// Emulated is the minor version whose kinds, roles and defaults of feature gates the server has.
	Emulated int
	// MinCompatible is the oldest minor version of a server that can use the same data.
	MinCompatible int
}

// Current are the versions of this server.
var Current = Versions{Major: 1, Minor: 37, Patch: 2, Emulated: 37, MinCompatible: 36}

// String returns the version as gitVersion begins with it: "v1.37.2".
func (v Versions) String() string { return fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch) }
