// Package testprogram builds the program tidemark for tests that run it in a process of its own.
package testprogram

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Path returns the path of the program of this tree. All test binaries share one program, which the go command keeps in its
// build cache by content, so that it is linked once for each tree. Tests must not change or remove it. TIDEMARK_BINARY names
// another program.
func Path(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("TIDEMARK_BINARY"); path != "" {
		return path
	}
	depend(t, root)
	path, err := built()
	if err != nil {
		t.Fatalf("building the program: %v", err)
	}
	return path
}

// root is the directory of the root module, relative to the directory that a test starts in. An absolute name would be part
// of a test's inputs, so that another clone could not use its kept result; runtime.Caller knows none with -trimpath.
var root = func() string {
	for dir := "."; ; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "internal", "testprogram")); err == nil || len(dir) > 100 {
			return dir
		}
	}
}()

// built builds the program once in a process.
var built = sync.OnceValues(func() (string, error) {
	c := exec.Command("go", "tool", "-n", "tidemark")
	c.Dir = root
	out, err := c.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

// depend makes go test run the test again when a Go file of the program changes: it looks at the directories that a test
// reads, but not at what the programs that it starts were made of. It looks at those of the package's own module alone, so
// for tests of other modules .ci/quick sets TIDEMARK_BINARY, whose path changes with the program.
func depend(t testing.TB, root string) {
	t.Helper()
	_, err := os.Stat(filepath.Join(root, "go.mod"))
	tops, _ := filepath.Glob(filepath.Join(root, "*.go"))
	for _, top := range tops {
		_, statErr := os.Stat(top)
		err = errors.Join(err, statErr)
	}
	for _, dir := range []string{"cmd", "internal", "datadir", "etcdstore", "follower", "resourceversion"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
	if err != nil {
		t.Fatal(err)
	}
}
