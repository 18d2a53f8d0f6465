// Package matrix runs tests with several versions of the Kubernetes libraries: those of examples/website,
// the project of the tutorial, with each minor version of controller-runtime that tidemarktest supports, and
// those of test/bubble, with a server in the process, with the next minor version of the k8s.io modules.
//
// A file NAME.mod has the versions, and NAME.sum their hashes. The Go command takes them in place of the
// module's own go.mod: `go test -modfile=NAME.mod`. So the source is the same for all versions, and nothing
// is copied. To try one by hand:
//
//	cd examples/website
//	GOWORK=off go test -modfile=../../test/matrix/controller-runtime-0.25.mod ./...
//
// To add a minor version, copy a .mod file, then:
//
//	GOWORK=off go get -modfile=FILE sigs.k8s.io/controller-runtime@VERSION
//	GOWORK=off go mod tidy -modfile=FILE
//
// Without TIDEMARK_TEST_SUITES=1, only one version runs: that of the other tests of this module, whose
// libraries are compiled anyway.
package matrix
