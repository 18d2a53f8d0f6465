package tidemark_test

import (
	"os"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
)

// TestRelease: a tag is all that a release needs, because everything that names the version names the one of version.go.
func TestRelease(t *testing.T) {
	_, version, _ := strings.Cut(tidemark.Version(), "+tidemark.")
	for path, text := range map[string]string{
		"CHANGELOG.md":                         "\n## [" + version + "]",
		"deploy/helm/tidemark/Chart.yaml":      "\nversion: " + version + "\nappVersion: " + version + "\n",
		"deploy/kubernetes/kustomization.yaml": "\n    newTag: " + version + "\n",
		"docs/tutorials/serve-and-kubectl.md":  "\nTidemark " + version + " serves",
		"tidemarktest/kube/go.mod":             "tidemark/tidemarktest v" + version + "\n",
		"deploy/github-action/action.yaml":     "such as " + version + "\n",
		".github/workflows/release.yaml":       "for module in tidemarktest tidemarktest/kube; do",
	} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), text) {
			t.Errorf("%s lacks %q", path, text)
		}
	}
}
