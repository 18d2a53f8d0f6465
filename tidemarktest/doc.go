// Package tidemarktest gives each test a Kubernetes API server of its own, prepared in advance.
//
//	var world = tidemarktest.World{
//		CRDDirectoryPaths: []string{"config/crd"},
//		Fixtures:          os.DirFS("testdata/fixtures"),
//	}
//
//	func TestScale(t *testing.T) {
//		t.Parallel()
//		env := world.Fork(t)
//		run(t, kube.Config(env)) // package tidemarktest/kube: a rest.Config
//	}
//
// A [World] is prepared once: its definitions are established and its fixtures are created. Each
// [World.Fork] is a copy of it, with an API, users and revisions of its own. It is deleted when the
// test ends. If the test has failed, its last changes are logged, and with TIDEMARK_DUMP=DIR its whole
// state and history are written to a directory.
//
// # The server
//
// The package depends on the standard library alone, so it works with any versions of the Kubernetes
// libraries. The server is a process. The first test that needs it starts it, and all packages of
// `go test ./...` share it; it ends seconds after the last of them, also if that is killed. Its program
// is, in this order:
//
//   - the file that TIDEMARK_BINARY names,
//   - the program of a source tree, if this module is replaced by the one of a clone,
//   - the tool `tidemark`, if the module of the test has a tool directive for it,
//   - the program of this package's version, which `go install` builds once into the user's cache.
//
// A World with a Host uses that instead. Server.Host of package tidemark is one: a server in the process
// of the test, which also works in a bubble of testing/synctest.
//
// docs/tidemarktest.md in the repository has more.
package tidemarktest
