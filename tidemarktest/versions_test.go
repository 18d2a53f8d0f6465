package tidemarktest_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/tidemarktest"
)

// TestKubernetesVersion: worlds of several versions of Kubernetes share one server, and their Envs have their version.
func TestKubernetesVersion(t *testing.T) {
	for version, bundles := range map[string]int{"": 200, "1.37": 200, "1.36": 404, "1.34": 404} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := &tidemarktest.World{KubernetesVersion: version, CRDDirectoryPaths: []string{"testdata/crd"}}
			env := w.Fork(t)
			if code, text := request(t, env, "GET", "/apis/certificates.k8s.io/v1/clustertrustbundles", ""); code != bundles {
				t.Errorf("%d %.200s", code, text)
			}
			want := `"emulationMinor": "` + strings.TrimPrefix(cmp.Or(version, "1.37"), "1.") + `"`
			if _, text := request(t, env, "GET", "/version", ""); !strings.Contains(text, want) {
				t.Errorf("want %s in %s", want, text)
			}
		})
	}
	w := &tidemarktest.World{KubernetesVersion: "1.12"}
	if _, err := w.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "1.12 is not between") {
		t.Errorf("an unknown version: %v", err)
	}
}
