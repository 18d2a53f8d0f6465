// Package javascript_test runs the operations of @kubernetes/client-node against Tidemark. The
// client's results with kube-apiserver v1.37.2 are in testdata.
package javascript_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var record = flag.Bool("record", false, "write what the client returned of kube-apiserver to testdata")

const recorded = "testdata/kube-apiserver.txt"

// TestClientNodeLikePeer runs operations.mjs. Each line of its output must be the recorded one.
func TestClientNodeLikePeer(t *testing.T) {
	tier.Full(t)
	dir := install(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		ns, err := kubernetes.NewForConfigOrDie(s.Config).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "javascript-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := operations(t, dir, s, ns.Name)
		if s.Peer && *record {
			if err := os.WriteFile(recorded, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		compare(t, got)
	})
}

// install installs the client in a cache of the user. It returns the directory.
func install(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the test needs Node 20: %v", err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "tidemark", "client-node")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"package.json", "operations.mjs"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--prefer-offline")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	return dir
}

// operations runs the script against a server.
func operations(t *testing.T, dir string, s servers.Server, namespace string) []byte {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*s.Kubeconfig, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "operations.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "NAMESPACE="+namespace)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v after\n%s\n%s", err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}

// compare compares the output of a run with the recorded one, line by line.
func compare(t *testing.T, output []byte) {
	t.Helper()
	content, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(string(output), "\n"), strings.Split(string(content), "\n")
	for i := range max(len(got), len(want)) {
		var g, w string
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, g, w)
		}
	}
	t.Logf("%d lines", len(got))
}
