// Package kubeversion has the version of Kubernetes whose behaviour the server has.
package kubeversion

import "fmt"

// Version is a version of Kubernetes.
type Version struct{ Major, Minor, Patch int }

// Current is the version of this server. It can emulate older ones: package features has those.
var Current = Version{Major: 1, Minor: 37, Patch: 2}

// String returns the version as gitVersion begins with it: "v1.37.2".
func (v Version) String() string { return fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch) }
