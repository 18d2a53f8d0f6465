// Package matrix runs tests with several versions of the Kubernetes libraries: those of examples/website,
// the project of the tutorial, with the minor versions of controller-runtime from 0.22 to 0.25.
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
// Once the libraries are compiled, a row takes about 5 seconds of CPU; compiling takes about 3 minutes of CPU
// for each version of controller-runtime. The versions of 0.25 are those of the other tests of this module, which
// are compiled anyway. All rows run in the full tier.
package matrix
