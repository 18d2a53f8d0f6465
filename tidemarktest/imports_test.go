package tidemarktest_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports: the package depends on the standard library alone, so it fits each project, whatever
// versions of the Kubernetes libraries that has.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		host, _, _ := strings.Cut(path, "/")
		if strings.Contains(host, ".") && !strings.HasSuffix(path, "/tidemarktest") && !strings.HasPrefix(path, "vendor/") {
			t.Errorf("tidemarktest reaches %s", path)
		}
	}
}
