package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// TestTutorial: the Go code of the tutorial is that of the project that test/matrix tests.
func TestTutorial(t *testing.T) {
	var code strings.Builder
	err := filepath.WalkDir("../examples/website", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("tutorials/test-an-operator.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) == 0 {
		t.Error("the tutorial has no Go code")
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), block[1]) {
			t.Errorf("this is not in examples/website:\n%s", block[1])
		}
	}
}

var (
	editLine     = regexp.MustCompile(`(?m)^    go mod edit (.*)$`)
	prebuildLine = regexp.MustCompile(`(?m)^    go run (\S+/prebuild)$`)
)

// TestTutorialModule: after the edits of the tutorial, the Go command finds the package of its next command in a module that
// imports nothing of this repository yet.
func TestTutorialModule(t *testing.T) {
	text, err := os.ReadFile("tutorials/test-an-operator.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/website\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir, c.Env = dir, append(os.Environ(), "GOPROXY=off", "GOWORK=off")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	edits := editLine.FindAllStringSubmatch(string(text), -1)
	packages := prebuildLine.FindAllStringSubmatch(string(text), -1)
	if len(edits) < 3 || len(packages) != 1 {
		t.Fatalf("the tutorial has %d edits of go.mod, and %d commands for the program", len(edits), len(packages))
	}
	for _, edit := range edits {
		run("mod", "edit", strings.ReplaceAll(edit[1], "=../tidemark", "="+root))
	}
	run("list", packages[0][1])
}
