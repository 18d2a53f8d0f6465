package testprogram_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
)

// TestPath: the program runs, and a second call returns the same one.
func TestPath(t *testing.T) {
	path := testprogram.Path(t)
	out, err := exec.Command(path, "version").Output()
	if err != nil || !strings.Contains(string(out), "Tidemark") && !strings.Contains(string(out), "tidemark") {
		t.Errorf("%s version: %s, %v", path, out, err)
	}
	if again := testprogram.Path(t); again != path {
		t.Errorf("two calls return %s and %s", path, again)
	}
}
