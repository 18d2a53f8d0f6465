package integration_test

import (
	"os"
	"path/filepath"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestNodes checks the objects that nodes may read and write, with the admission plugin
// NodeRestriction.
func TestNodes(t *testing.T) {
	scenario(t, "nodes.txt", &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"NodeRestriction"}}})
}

// TestOwners: changes of owner references require rights.
func TestOwners(t *testing.T) {
	scenario(t, "owners.txt", &tidemark.Server{
		Admission:   tidemark.Admission{Enable: []string{"OwnerReferencesPermissionEnforcement"}},
		Controllers: []string{"-*"}, // the owners do not exist
	})
}

// TestSigners: approving and signing requests for certificates requires rights on the signer.
func TestSigners(t *testing.T) {
	scenario(t, "signers.txt", &tidemark.Server{})
}

// TestOptionalPlugins: plugins that decide by the body alone, and that are off by default.
func TestOptionalPlugins(t *testing.T) {
	scenario(t, "optional_plugins.txt", &tidemark.Server{Admission: tidemark.Admission{Enable: []string{
		"DenyServiceExternalIPs", "AlwaysPullImages", "ExtendedResourceToleration", "LimitPodHardAntiAffinityTopology",
	}}})
}

// TestPodNodeSelector: Pods get the node selector of their namespace, and no other labels than it
// may name.
func TestPodNodeSelector(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodNodeSelector
  configuration:
    podNodeSelectorPluginConfig:
      clusterDefaultNodeSelector: "pool=shared"
      node-z2: "env=test,pool=b"
`), 0o600); err != nil {
		t.Fatal(err)
	}
	scenario(t, "node_selectors.txt", &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"PodNodeSelector"}, ConfigFile: file}})
}

// TestNodeNames: names that no object may have are refused to all users.
func TestNodeNames(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"NodeRestriction"}}})
	config, err := s.RESTConfigFor("system:node:n1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", "/api/v1/namespaces/default/events", `{"metadata":{"name":"a\u0000b"},"involvedObject":{"namespace":"default"}}`, 422},
		{"GET", "/api/v1/namespaces/default/secrets/a%00b", "", 403},
		{"GET", "/api/v1/nodes/%00", "", 403},
		{"POST", "/api/v1/nodes", `{"metadata":{"name":"n1\u0000"}}`, 403},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1%00", "", 403},
		{"GET", "/api/v1/nodes/n1", "", 404}, // the server lives
	} {
		if code, _, b := exchange(t, config, row.method, row.path, row.body); code != row.code {
			t.Errorf("%s %s %s: %d %s, want %d", row.method, row.path, row.body, code, b, row.code)
		}
	}
}

// TestKubelet acts like a kubelet with client-go and its client certificate: it registers its Node,
// renews its lease, watches its Pods and reads the objects that they refer to. It cannot read
// anything else.
func TestKubelet(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"NodeRestriction"}}})
	config, err := s.RESTConfigFor("system:node:n1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	kubelet, admin := clients(t, config), clients(t, s.RESTConfig())
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	node, err := kubelet.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelHostname: "n1"}}}, metav1.CreateOptions{})
	must(err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	_, err = kubelet.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	must(err)
	leases := kubelet.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("n1")}}, metav1.CreateOptions{})
	must(err)
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(40))
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	must(err)

	own, err := kubelet.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=n1"})
	must(err)
	defer own.Stop()
	for _, name := range []string{"s1", "s2"} {
		_, err := admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(err)
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p" + name}, Spec: corev1.PodSpec{
			NodeName: map[string]string{"s1": "n1", "s2": "n2"}[name], Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}},
		}}
		_, err = admin.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
		must(err)
	}
	if e := <-own.ResultChan(); e.Type != "ADDED" || e.Object.(*corev1.Pod).Name != "ps1" {
		t.Errorf("the kubelet sees %v %v", e.Type, e.Object)
	}
	secret, err := kubelet.CoreV1().Secrets("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=s1"})
	must(err)
	secret.Stop()
	_, err = kubelet.CoreV1().Secrets("default").Get(ctx, "s1", metav1.GetOptions{})
	must(err)
	_, err = kubelet.CoreV1().Pods("default").Patch(ctx, "ps1", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status")
	must(err)

	forbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want 403", what, err)
		}
	}
	_, err = kubelet.CoreV1().Secrets("default").Get(ctx, "s2", metav1.GetOptions{})
	forbidden("another secret", err)
	_, err = kubelet.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	forbidden("all secrets", err)
	_, err = kubelet.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	forbidden("all Pods", err)
	_, err = kubelet.CoreV1().Pods("default").Patch(ctx, "ps2", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	forbidden("the status of another Pod", err)
	_, err = kubelet.CoordinationV1().Leases("default").Get(ctx, "n1", metav1.GetOptions{})
	forbidden("another lease", err)
	_, err = kubelet.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	forbidden("namespaces", err)
	_, err = kubelet.CoreV1().Nodes().Patch(ctx, "n1", types.MergePatchType, []byte(`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`), metav1.PatchOptions{})
	forbidden("its taints", err)
	forbidden("the end of its Node", kubelet.CoreV1().Nodes().Delete(ctx, "n1", metav1.DeleteOptions{}))
	greedy := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err = kubelet.CoreV1().Pods("default").Create(ctx, greedy, metav1.CreateOptions{})
	forbidden("a new Pod", err)
	must(admin.CoreV1().Pods("default").Delete(ctx, "ps1", metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}))
	_, err = kubelet.CoreV1().Secrets("default").Get(ctx, "s1", metav1.GetOptions{})
	forbidden("the secret of a Pod that is gone", err)
}

func clients(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
