package test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/tidemark-dev/tidemark"
)

// asKubectl makes this test binary be kubectl: the real command, in a process of
// its own.
const asKubectl = "TIDEMARK_TEST_AS_KUBECTL"

var seed = flag.Uint64("seed", 0, "seed of the randomized tests; 0 picks one")

func TestMain(m *testing.M) {
	if os.Getenv(asKubectl) != "" {
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	}
	flag.Parse()
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
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

// startServer starts a server in this process, in memory, for the length of a
// test. It makes no ConfigMaps of its own, which tests count.
func startServer(t *testing.T) *tidemark.Server {
	t.Helper()
	s := &tidemark.Server{Controllers: []string{"*", "-root-ca-certificate-publisher"}}
	if err := s.Start(context.Background()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// kubectlIn runs kubectl commands against a server.
type kubectlIn struct {
	t          *testing.T
	kubeconfig string
	home       string
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

// command is kubectl with arguments, and input where it is not empty.
func (k *kubectlIn) command(ctx context.Context, input string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asKubectl+"=1", "KUBECONFIG="+k.kubeconfig, "HOME="+k.home)
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	return cmd
}

// run runs kubectl, and returns what it prints on both outputs.
func (k *kubectlIn) run(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := k.command(ctx, input, args...).CombinedOutput()
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

// built is the command, built once for all tests that need a process.
var built struct {
	once sync.Once
	dir  string
	err  error
}

// binary returns the path of the tidemark command.
func binary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "tidemark-bin-*"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(built.dir, "tidemark"), "../cmd/tidemark")
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatalf("building the command: %v", built.err)
	}
	return filepath.Join(built.dir, "tidemark")
}
