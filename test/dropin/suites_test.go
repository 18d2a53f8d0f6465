package dropin

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// nightly skips a test unless the long suites are requested.
func nightly(t *testing.T) {
	t.Helper()
	if os.Getenv("TIDEMARK_TEST_SUITES") == "" {
		t.Skip("TIDEMARK_TEST_SUITES is not set: the suites download modules and take long")
	}
}

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

// source returns a copy of a module's source that can be written.
func source(t *testing.T, module string) string {
	t.Helper()
	var found struct{ Dir string }
	out := outside(t, t.TempDir(), nil, "go", "mod", "download", "-json", module)
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := filepath.Join(t.TempDir(), "source")
	if err := os.CopyFS(dir, os.DirFS(found.Dir)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if e.IsDir() {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// suites are packages with tests that start envtest.
var suites = map[string][]string{
	"sigs.k8s.io/controller-runtime@v0.24.1": {
		"pkg/builder", "pkg/cache", "pkg/client", "pkg/cluster", "pkg/controller", "pkg/controller/controllerutil", "pkg/envtest", "pkg/handler",
		"pkg/internal/controller", "pkg/internal/recorder", "pkg/manager", "pkg/manager/internal/integration", "pkg/metrics/filters", "pkg/reconcile",
		"pkg/source", "pkg/webhook",
	},
}

// TestSuites runs them, one after another.
func TestSuites(t *testing.T) {
	nightly(t)
	dir := assets(t)
	for module, packages := range suites {
		at := source(t, module)
		for _, p := range packages {
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
	nightly(t)
	assets(t)
	public := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(public)))
	defer server.Close()
	outside(t, ".", nil, built.binary, "envtest-assets", "--archive", "--url="+server.URL, public)
	index := server.URL + "/envtest-releases.yaml"
	const tool = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"
	out := outside(t, t.TempDir(), nil, "go", "run", tool, "use", "1.36.x", "--index="+index, "--bin-dir="+t.TempDir(), "-p", "path")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	e := begin(t, lines[len(lines)-1])
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
