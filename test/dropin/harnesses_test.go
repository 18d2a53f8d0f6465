package dropin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestE2EFramework: a suite of e2e-framework runs on a cluster of envtest, by its kubeconfig. It installs its definition
// itself. It is compiled with the versions of this module.
func TestE2EFramework(t *testing.T) {
	tier.Full(t)
	t.Setenv("TIDEMARK_CONTROLLERS", "*") // the suite waits for the results of controllers
	e := begin(t, assets(t))
	defer func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(kubeconfig, e.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "e2e")
	if err := os.CopyFS(at, os.DirFS("testdata/e2e")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	replace := func(module, path string) string {
		return "-replace=github.com/tidemark-dev/tidemark" + module + "=" + filepath.Join(root, path)
	}
	outside(t, at, nil, "go", "mod", "edit", "-require=sigs.k8s.io/e2e-framework@v0.7.0", replace("", "."), replace("/tidemarktest", "tidemarktest"), replace("/tidemarktest/kube", "tidemarktest/kube"))
	env := []string{"E2E_CRDS=" + filepath.Join(root, "examples/definition.yaml"), "E2E_OBJECT=" + filepath.Join(root, "examples/object.yaml")}
	out := outside(t, at, env, "go", "test", "-count=1", "-v", ".", "-args", "--kubeconfig="+kubeconfig)
	if !strings.Contains(out, "--- PASS: TestObjects/objects/a_custom_resource_is_decoded_and_created") {
		t.Errorf("the suite has not run:\n%s", out)
	}
	t.Log(strings.TrimSpace(out))
}
