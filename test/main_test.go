package test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const (
	// asKubectl makes this test binary run the real kubectl, in a separate process.
	asKubectl = "TIDEMARK_TEST_AS_KUBECTL"
	// otherKubectl is the path of another kubectl, of another version, that the tests run instead.
	otherKubectl = "TIDEMARK_TEST_KUBECTL"
)

var seed = flag.Uint64("seed", 0, "seed of the randomized tests; 0 picks one")

func TestMain(m *testing.M) {
	if os.Getenv(asKubectl) != "" {
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	}
	os.Exit(m.Run())
}

// random returns a source whose seed the test prints.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	n := *seed
	if n == 0 {
		n = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d (repeat with -seed %d)", n, n)
	return rand.New(rand.NewPCG(n, 0))
}

// kubectlIn runs kubectl commands against a server.
type kubectlIn struct {
	t          *testing.T
	kubeconfig string
	home       string
	editor     string   // the program that kubectl edit runs; empty: none
	env        []string // more of its environment
}

// kubectlProgram returns the path of kubectl.
func kubectlProgram(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(otherKubectl); path != "" {
		return path
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return self
}

func newKubectl(t *testing.T, s *tidemark.Server) *kubectlIn {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(path, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &kubectlIn{t: t, kubeconfig: path, home: dir}
}

// onKubectl runs a test by kubectl against each server.
func onKubectl(t *testing.T, test func(t *testing.T, k *kubectlIn)) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, s servers.Server) {
		k := &kubectlIn{t: t, home: t.TempDir()}
		k.kubeconfig = filepath.Join(k.home, "kubeconfig")
		if err := clientcmd.WriteToFile(*s.Kubeconfig, k.kubeconfig); err != nil {
			t.Fatal(err)
		}
		test(t, k)
	})
}

// command returns a kubectl command. Empty input means no input. By default kubectl waits half a minute for the first
// OpenAPI document, which a busy machine can exceed.
func (k *kubectlIn) command(ctx context.Context, input string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, kubectlProgram(k.t), append([]string{"--request-timeout=5m"}, args...)...)
	cmd.Env = append(os.Environ(), asKubectl+"=1", "KUBECONFIG="+k.kubeconfig, "HOME="+k.home, "KUBE_EDITOR="+k.editor)
	cmd.Env = append(cmd.Env, k.env...)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	return cmd
}

// run runs kubectl, and returns its combined output.
func (k *kubectlIn) run(input string, args ...string) (string, error) {
	out, err := k.command(k.t.Context(), input, args...).CombinedOutput()
	return string(out), err
}

// want runs kubectl and requires that it succeeds and prints the texts.
func (k *kubectlIn) want(input string, args []string, texts ...string) string {
	k.t.Helper()
	out, err := k.run(input, args...)
	if err != nil {
		k.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			k.t.Fatalf("kubectl %s printed\n%s\nwhich lacks %q", strings.Join(args, " "), out, text)
		}
	}
	return out
}

// wantError runs kubectl and requires that it fails and prints the texts.
func (k *kubectlIn) wantError(input string, args []string, texts ...string) string {
	k.t.Helper()
	out, err := k.run(input, args...)
	if err == nil {
		k.t.Fatalf("kubectl %s worked:\n%s", strings.Join(args, " "), out)
	}
	for _, text := range texts {
		if !strings.Contains(out, text) {
			k.t.Fatalf("kubectl %s failed with\n%s\nwhich lacks %q", strings.Join(args, " "), out, text)
		}
	}
	return out
}

// exit runs kubectl, and returns its output and its exit status.
func (k *kubectlIn) exit(input string, args ...string) (string, int) {
	k.t.Helper()
	out, err := k.run(input, args...)
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		k.t.Fatal(err)
	}
	if err == nil {
		return out, 0
	}
	return out, status.ExitCode()
}

// value returns the value at a JSONPath of an object.
func (k *kubectlIn) value(object, path string) string {
	k.t.Helper()
	return k.want("", []string{"get", object, "--show-managed-fields", "-o", "jsonpath=" + path})
}

// background runs kubectl in the background. The returned function waits until it exits, and
// requires that it succeeded and printed the text.
func (k *kubectlIn) background(args ...string) func(text string) {
	k.t.Helper()
	done := make(chan struct{})
	var out string
	var err error
	go func() {
		defer close(done)
		out, err = k.run("", args...)
	}()
	return func(text string) {
		k.t.Helper()
		<-done
		if err != nil || !strings.Contains(out, text) {
			k.t.Fatalf("kubectl %s: %v\n%s\nwant %q", strings.Join(args, " "), err, out, text)
		}
	}
}
