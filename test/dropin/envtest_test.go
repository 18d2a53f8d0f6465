package dropin

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// asKubectl is the name under which this test binary is the real kubectl.
const asKubectl = "kubectl"

// kubectlProgram returns the path of a kubectl.
func kubectlProgram(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), asKubectl)
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// built has the assets, written once for all tests.
var built struct {
	once   sync.Once
	dir    string
	assets string
	err    error
}

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == asKubectl {
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	}
	log.SetLogger(logr.Discard())
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// build writes the assets with the program.
func build(program string) (err error) {
	if built.dir, err = os.MkdirTemp("", "tidemark-assets-*"); err != nil {
		return err
	}
	built.assets = filepath.Join(built.dir, "assets")
	if out, err := exec.Command(program, "envtest-assets", built.assets).CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// assets returns a directory for KUBEBUILDER_ASSETS.
func assets(t *testing.T) string {
	t.Helper()
	program := testprogram.Path(t)
	built.once.Do(func() { built.err = build(program) })
	if built.err != nil {
		t.Fatalf("the assets: %v", built.err)
	}
	return built.assets
}

// example is a definition for tests of envtest.
const example = "../../examples/definition.yaml"

// begin starts envtest on the programs of a directory, with definitions.
func begin(t *testing.T, dir string, definitions ...string) *envtest.Environment {
	t.Helper()
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	t.Setenv("USE_EXISTING_CLUSTER", "")
	e := &envtest.Environment{CRDDirectoryPaths: definitions, ErrorIfCRDPathMissing: true}
	if _, err := e.Start(); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestEnvtest: envtest installs definitions and adds users. A deleted namespace stays, as without a
// kube-controller-manager, and a client can finalize it. Stop is quick while watches are open.
func TestEnvtest(t *testing.T) {
	tier.Full(t)
	e := begin(t, assets(t), example)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			e.Stop()
		}
	})
	user, err := e.AddUser(envtest.User{Name: "alice", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	alice := kubernetes.NewForConfigOrDie(user.Config())
	ns, err := alice.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := alice.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{ResourceVersion: ns.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	if err := alice.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if ns, err = alice.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{}); err != nil || ns.Status.Phase != corev1.NamespaceTerminating {
		t.Fatalf("%v %v", ns.Status, err)
	}
	ns.Spec.Finalizers = nil
	if _, err := alice.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	accounts, err := alice.CoreV1().ServiceAccounts("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(accounts.Items) > 0 {
		t.Errorf("ServiceAccounts: %v %v", accounts.Items, err)
	}
	stopped = true
	start := time.Now()
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 30*time.Second { // a second, and more on a busy machine
		t.Errorf("the stop took %v", took)
	}
	watch.Stop()
}

// TestParallel: several environments run at once. With TIDEMARK_CONTROLLERS, namespaces go away.
func TestParallel(t *testing.T) {
	tier.Full(t)
	t.Setenv("TIDEMARK_CONTROLLERS", "*")
	dir := assets(t)
	var all []*envtest.Environment
	t.Cleanup(func() {
		var errs []error
		for _, e := range all {
			errs = append(errs, e.Stop())
		}
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		all = append(all, begin(t, dir, example))
	}
	for _, e := range all {
		c := kubernetes.NewForConfigOrDie(e.Config).CoreV1().Namespaces()
		watch, err := c.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=gone"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		gone := false
		for event := range watch.ResultChan() {
			if gone = event.Type == "DELETED"; gone {
				break
			}
		}
		watch.Stop()
		if !gone {
			t.Error("the watch ended before the namespace was gone")
		}
	}
}
