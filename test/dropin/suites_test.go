package dropin

import (
	"context"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// outside runs a command outside of this module.
func outside(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// download returns the source of a module, which cannot be written.
func download(t *testing.T, module string) fs.FS {
	t.Helper()
	var found struct{ Dir string }
	out := outside(t, t.TempDir(), nil, "go", "mod", "download", "-json", module)
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return os.DirFS(found.Dir)
}

// suite is a module with packages whose tests start envtest.
type suite struct {
	module string
	// nested are modules that the module replaces by directories of its repository. They are missing in
	// the module itself.
	nested   map[string]string
	packages []string
}

var suites = []suite{
	{
		module: "sigs.k8s.io/controller-runtime@v0.24.1",
		packages: []string{
			"pkg/builder", "pkg/cache", "pkg/client", "pkg/cluster", "pkg/controller", "pkg/controller/controllerutil", "pkg/envtest", "pkg/handler",
			"pkg/internal/controller", "pkg/internal/recorder", "pkg/manager", "pkg/manager/internal/integration", "pkg/metrics/filters", "pkg/reconcile",
			"pkg/source", "pkg/webhook",
		},
	},
	{
		module:   "github.com/kubernetes-sigs/kro@v0.9.4",
		packages: []string{"test/integration/suites/core"},
	},
	{
		module: "sigs.k8s.io/cluster-api@v1.14.2",
		nested: map[string]string{"api": "sigs.k8s.io/cluster-api/api@v1.14.2"},
		packages: []string{
			"bootstrap/kubeadm/reconcilers/kubeadmconfig", "controllers/clustercache", "controllers/crdmigrator", "controlplane/kubeadm/pkg",
			"controlplane/kubeadm/reconcilers/kubeadmcontrolplane", "core/reconcilers/cluster", "core/reconcilers/clusterclass",
			"core/reconcilers/clusterresourceset", "core/reconcilers/extensionconfig", "core/reconcilers/machine", "core/reconcilers/machinedeployment",
			"core/reconcilers/machinehealthcheck", "core/reconcilers/machinepool", "core/reconcilers/machineset", "core/reconcilers/topology/cluster",
			"core/reconcilers/topology/cluster/structuredmerge", "core/webhooks/admission/test", "internal/topology/upgrade", "internal/util/ssa/test",
			"util/controller", "util/deprecated/v1beta1/patch", "util/patch/test",
		},
	},
}

// source returns a copy of a suite's source that can be written.
func (s *suite) source(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "source")
	if err := os.CopyFS(dir, download(t, s.module)); err != nil {
		t.Fatal(err)
	}
	for at, module := range s.nested {
		if err := os.CopyFS(filepath.Join(dir, at), download(t, module)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSuites runs them, one after another.
func TestSuites(t *testing.T) {
	tier.Full(t)
	dir := assets(t)
	for _, s := range suites {
		at := s.source(t)
		for _, p := range s.packages {
			t.Run(p, func(t *testing.T) {
				out := outside(t, at, []string{"KUBEBUILDER_ASSETS=" + dir}, "go", "test", "-count=1", "-timeout=20m", "./"+p)
				t.Log(strings.TrimSpace(out))
			})
		}
	}
}

// TestSetupEnvtest: setup-envtest finds the archives of a published directory, checks their hashes and
// unpacks programs that envtest can start. envtest can download them itself, too.
func TestSetupEnvtest(t *testing.T) {
	tier.Full(t)
	assets(t)
	public := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(public)))
	defer server.Close()
	outside(t, ".", nil, testprogram.Path(t), "envtest-assets", "--archive", "--url="+server.URL, public)
	index := server.URL + "/envtest-releases.yaml"
	const tool = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"
	out := outside(t, t.TempDir(), nil, "go", "run", tool, "use", "1.37.x", "--index="+index, "--bin-dir="+t.TempDir(), "-p", "path")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	e := begin(t, lines[len(lines)-1], example)
	if err := e.Stop(); err != nil {
		t.Error(err)
	}

	t.Setenv("KUBEBUILDER_ASSETS", "")
	e = &envtest.Environment{DownloadBinaryAssets: true, DownloadBinaryAssetsIndexURL: index, BinaryAssetsDirectory: t.TempDir()}
	if _, err := e.Start(); err != nil {
		t.Fatal(err)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}
