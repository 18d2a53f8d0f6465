package dropin

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestKwokctl: kwokctl creates a cluster whose kube-apiserver and etcd are Tidemark, with kwok's controller, which
// plays the nodes and Pods. kube-controller-manager and kube-scheduler are disabled: Tidemark's controllers create the
// ServiceAccounts that Pods need, and the Pod names its node. Snapshots go by the API; a cluster that was stopped is empty.
func TestKwokctl(t *testing.T) {
	tier.Full(t)
	assets(t)
	bin, work := t.TempDir(), t.TempDir()
	deployed, err := filepath.Abs("../../deploy/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	const module = "sigs.k8s.io/kwok/cmd/"
	outside(t, bin, []string{"GOBIN=" + bin, "GOFLAGS="}, "go", "install", module+"kwokctl@v0.8.0", module+"kwok@v0.8.0")
	kubectl := kubectlProgram(t)
	env := []string{
		"PATH=" + filepath.Dir(kubectl) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"KWOK_WORKDIR=" + work, "HOME=" + work, "KUBECONFIG=" + filepath.Join(work, "kubeconfig"),
		"TIDEMARK_CONTROLLERS=*",
	}
	kwokctl := func(args ...string) string {
		t.Helper()
		return outside(t, work, env, filepath.Join(bin, "kwokctl"), append([]string{"--name=try"}, args...)...)
	}
	defer kwokctl("delete", "cluster") // when the context of the test is still valid
	kwokctl("create", "cluster", "--runtime=binary", "--wait=2m", "--disable=kube-controller-manager,kube-scheduler",
		"--kube-apiserver-binary="+testprogram.Path(t), "--etcd-binary="+testprogram.Path(t), "--kwok-controller-binary="+filepath.Join(bin, "kwok"))
	if t.Failed() {
		t.Fatal(kwokctl("logs", "kube-apiserver"))
	}

	kwokctl("scale", "node", "fake", "--replicas=2")
	kwokctl("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "node", "--all")
	kwokctl("kubectl", "wait", "--for=create", "--timeout=2m", "serviceaccount/default")
	kwokctl("scale", "pod", "fake", "--replicas=3", `--param=.nodeName="fake-000000"`)
	kwokctl("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "pod", "--all")
	alice := filepath.Join(work, "alice")
	_, kubeconfig, _ := strings.Cut(kwokctl("get", "kubeconfig", "--user=alice", "--group=system:masters"), "apiVersion: ") // after log lines
	if err := os.WriteFile(alice, []byte("apiVersion: "+kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := outside(t, work, nil, kubectl, "--kubeconfig="+alice, "get", "pods"); strings.Count(out, "Running") != 3 {
		t.Errorf("the Pods:\n%s", out)
	}

	// The manifests of Tidemark itself: kwok plays the node that runs their Pod.
	kwokctl("kubectl", "apply", "--validate=strict", "-k", deployed)
	set := outside(t, work, nil, kubectl, "--kubeconfig="+alice, "get", "statefulset", "-n", "tidemark", "tidemark", "-o", "json")
	pod := filepath.Join(work, "pod.json")
	if err := os.WriteFile(pod, servers.FirstPod(t, []byte(set), "fake-000001"), 0o600); err != nil {
		t.Fatal(err)
	}
	kwokctl("kubectl", "create", "-f", pod)
	kwokctl("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "-n", "tidemark", "pod/tidemark-0")
	kwokctl("kubectl", "delete", "--ignore-not-found", "--wait", "--timeout=2m", "-k", deployed)

	snapshot := filepath.Join(work, "snapshot.yaml")
	kwokctl("snapshot", "save", "--format=k8s", "--path="+snapshot)
	kwokctl("stop", "cluster")
	kwokctl("start", "cluster", "--wait=2m")
	if out := kwokctl("kubectl", "get", "nodes"); strings.Contains(out, "fake") {
		t.Errorf("the nodes after a restart:\n%s", out)
	}
	kwokctl("snapshot", "restore", "--format=k8s", "--path="+snapshot)
	kwokctl("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "node", "--all")
	kwokctl("kubectl", "wait", "--for=condition=Ready", "--timeout=2m", "pod", "--all")
	if out := kwokctl("kubectl", "get", "pods"); strings.Count(out, "Running") != 3 {
		t.Errorf("the Pods of the snapshot:\n%s", out)
	}
	if out := kwokctl("logs", "kube-apiserver"); strings.Contains(out, "ERROR") {
		t.Errorf("the log of the server:\n%s", out)
	}
}
