package tidemarktest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest/internal/tier"
)

// heavy are packages that are not worth their weight in each test binary. Package nethttp has them.
var heavy = []string{"net/http", "crypto/tls", "crypto/x509", "text/template", "go/build"}

// TestImports: the package depends on the standard library alone, so it fits each project, whatever
// versions of the Kubernetes libraries that has. Of the standard library, it leaves out what is heavy.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		host, _, _ := strings.Cut(path, "/")
		foreign := strings.Contains(host, ".") && !strings.HasSuffix(path, "/tidemarktest") && !strings.HasPrefix(path, "vendor/")
		if foreign || slices.Contains(heavy, path) {
			t.Errorf("tidemarktest reaches %s", path)
		}
	}
}

// maxAddedBytes is what the package may add to a test binary.
const maxAddedBytes = 2_000_000

// everything is a test that links all of the package.
const everything = `
func Test(t *testing.T) {
	env := (&World{Webhooks: Webhooks{Conversion: true}}).Fork(t)
	env.Fault(t, On("update", "pods").Conflict())
	env.Replica(t, Lag(1)).CatchUp(t)
	env.Settle(t)
	env.Changes(t).NoHotLoop()
	env.Golden(t, "golden.yaml")
	env.Webhooks().CertDir(t)
	EveryPrefix(t, env, nil)
	EveryLag(t, env, nil, NoReplacement())
	EveryFault(t, env, nil)
}
`

// TestSize: a test that uses the package is less than 2 MB larger than an empty one.
func TestSize(t *testing.T) {
	tier.Full(t)
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" || testing.CoverMode() != "" {
		t.Skip("the limit is for linux/amd64 without coverage")
	}
	dir := t.TempDir()
	source, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/tidemark-dev/tidemark/tidemarktest"
	for name, text := range map[string]string{
		"go.mod":             "module example.com/size\n\ngo 1.24.0\n\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + source + "\n",
		"empty/size_test.go": "package size\n\nimport \"testing\"\n\nfunc Test(t *testing.T) {}\n",
		"used/size_test.go":  "package size\n\nimport (\n\t\"testing\"\n\n\t. \"" + module + "\"\n)\n\n" + everything,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	size := func(name string) int64 {
		c := exec.Command("go", "test", "-c", "-o", name+".test", "./"+name)
		c.Dir, c.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info, err := os.Stat(filepath.Join(dir, name+".test"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	empty := size("empty")
	added := size("used") - empty
	t.Logf("an empty test has %d bytes, and one with tidemarktest %d more", empty, added)
	if added > maxAddedBytes {
		t.Errorf("a test with tidemarktest has %d bytes more than an empty one, want at most %d: `go tool nm -size -sort size` shows what is large", added, maxAddedBytes)
	}
}
