package tidemark_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// inMemory is a program with a server in memory and nothing else.
const inMemory = `package main

import (
	"context"

	"github.com/tidemark-dev/tidemark"
)

func main() {
	var s tidemark.Server
	if err := s.Start(context.Background()); err != nil {
		panic(err)
	}
	defer s.Close()
}
`

// TestSize builds the programs whose sizes docs/decisions/0013-binary-size.md has, without the workspace, and with the tags
// and the linker's flags of releases. A program that exceeds its limit links something new: the document says how to find
// it.
func TestSize(t *testing.T) {
	tier.Full(t) // it links two programs
	dir := t.TempDir()
	library := filepath.Join(dir, "inmemory.go")
	if err := os.WriteFile(library, []byte(inMemory), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, program := range []struct {
		source string
		limit  int64 // bytes
	}{
		{"./cmd/tidemark", 67_500_000},
		{library, 55_000_000},
	} {
		path := filepath.Join(dir, "program")
		build := exec.CommandContext(t.Context(), "go", "build", "-tags=grpcnotrace", "-ldflags=-s -w", "-o", path, program.source)
		build.Env = append(os.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", program.source, err, out)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", program.source, info.Size())
		if info.Size() > program.limit {
			t.Errorf("%s has %d bytes, want at most %d", program.source, info.Size(), program.limit)
		}
	}
}
