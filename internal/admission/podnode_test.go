package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// decoded returns a stored object.
func decoded[T any](w *world, collection, key string, decode func(*store.Object) (*T, error)) *T {
	w.Helper()
	o, err := decode(w.Store.Any().Get(collection, key))
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// TestNodeTaint: a new Node has the taint not-ready once, and keeps its others.
func TestNodeTaint(t *testing.T) {
	w := newWorld(t)
	for name, taints := range map[string]string{"none": "[]", "other": `[{"key":"a","effect":"NoExecute"}]`, "same": `[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]`} {
		w.must("nodes", "", `{"metadata":{"name":"`+name+`"},"spec":{"taints":`+taints+`}}`)
		n := decoded(w, "nodes", name, registry.Decode[corev1.Node])
		last := n.Spec.Taints[len(n.Spec.Taints)-1]
		if last.Key != corev1.TaintNodeNotReady || len(n.Spec.Taints) != map[string]int{"none": 1, "other": 2, "same": 1}[name] {
			t.Errorf("%s: %v", name, n.Spec.Taints)
		}
	}
}

// TestProtection: objects that are in use are protected by a finalizer, which a client may have set.
func TestProtection(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	const spec = `"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}`
	w.must("persistentvolumeclaims", "n", `{"metadata":{"name":"c"},"spec":{`+spec+`}}`)
	w.must("persistentvolumeclaims", "n", `{"metadata":{"name":"d","finalizers":["kubernetes.io/pvc-protection"]},"spec":{`+spec+`}}`)
	w.must("volumeattributesclasses", "", `{"metadata":{"name":"v","finalizers":["a.b/c"]},"driverName":"a.b","parameters":{"a":"b"}}`)
	for at, want := range map[[2]string]string{
		{"persistentvolumeclaims", "n/c"}:               "kubernetes.io/pvc-protection",
		{"persistentvolumeclaims", "n/d"}:               "kubernetes.io/pvc-protection",
		{"volumeattributesclasses.storage.k8s.io", "v"}: "a.b/c kubernetes.io/vac-protection",
	} {
		if m := decoded(w, at[0], at[1], registry.Decode[metav1.PartialObjectMetadata]); strings.Join(m.Finalizers, " ") != want {
			t.Errorf("%s %s: %v, want %s", at[0], at[1], m.Finalizers, want)
		}
	}
}

// TestTopologyLabels: a Pod that is created on a Node gets the labels of its zone and region, in place
// of its own.
func TestTopologyLabels(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	w.must("nodes", "", `{"metadata":{"name":"a","labels":{"topology.kubernetes.io/zone":"z","topology.kubernetes.io/region":"r","x":"y"}}}`)
	w.must("nodes", "", `{"metadata":{"name":"b"}}`)
	for node, want := range map[string]string{"a": "z r", "b": "mine ", "absent": "mine "} {
		w.must("pods", "n", `{"metadata":{"name":"`+node+`","labels":{"topology.kubernetes.io/zone":"mine"}},"spec":{"nodeName":"`+node+`","containers":[{"name":"c","image":"i"}]}}`)
		l := w.pod("n/" + node).Labels
		if got := l["topology.kubernetes.io/zone"] + " " + l["topology.kubernetes.io/region"]; got != want || l["x"] != "" {
			t.Errorf("on %s: %v, want %s", node, l, want)
		}
	}
}

// TestResizeValidator compares the messages with those of kube-apiserver v1.36.3.
func TestResizeValidator(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	w.must("nodes", "", `{"metadata":{"name":"small"},"status":{"allocatable":{"cpu":"2","memory":"1Gi"}}}`)
	w.must("nodes", "", `{"metadata":{"name":"windows","labels":{"kubernetes.io/os":"windows"}},"status":{"allocatable":{"cpu":"2","memory":"1Gi"}}}`)
	for _, row := range []struct{ node, cpu, want, cause string }{
		{"small", "1500m", "", ""},
		{"small", "2500m", "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000", "NodeCapacity"},
		{"windows", "1500m", `pod resize is only supported on linux nodes, node "windows" is "windows"`, "UnsupportedPlatform"},
		{"absent", "1500m", `node "absent" not found`, ""},
		{"", "9", "", ""},
	} {
		w.must("pods", "n", pod("p", `{"nodeName":"`+row.node+`","containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}`))
		at := w.target("pods", "n", "p")
		at.Subresource = "resize"
		o, err := w.Patch(t.Context(), at, mergePatch(`{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"`+row.cpu+`"}}}]}}`), registry.WriteOptions{})
		want := ""
		if row.want != "" {
			want = `pods "p" is forbidden: ` + row.want
		}
		if text(err) != want {
			t.Errorf("%s on %q: %v, want %q (%v)", row.cpu, row.node, err, want, o.Warnings)
		}
		var cause string
		if s, ok := err.(*apierrors.StatusError); ok && len(s.ErrStatus.Details.Causes) > 0 {
			cause = string(s.ErrStatus.Details.Causes[0].Type)
		}
		if cause != row.cause {
			t.Errorf("%s on %q: cause %q, want %q", row.cpu, row.node, cause, row.cause)
		}
		zero := int64(0)
		if _, err := w.Delete(t.Context(), w.target("pods", "n", "p"), &metav1.DeleteOptions{GracePeriodSeconds: &zero}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDeclaredFeatures: an update that needs a feature is refused on a Node that does not declare it.
func TestDeclaredFeatures(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	const feature = "InPlacePodLevelResourcesVerticalScaling"
	w.must("nodes", "", `{"metadata":{"name":"old"},"status":{"allocatable":{"cpu":"9","memory":"9Gi"}}}`)
	w.must("nodes", "", `{"metadata":{"name":"new"},"status":{"allocatable":{"cpu":"9","memory":"9Gi"},"declaredFeatures":["`+feature+`"]}}`)
	for node, want := range map[string]string{
		"old": `pods "old" is forbidden: pod update requires features ` + feature + ` which are not available on node "old"`, "new": "",
	} {
		w.must("pods", "n", pod(node, `{"nodeName":"`+node+`","resources":{"requests":{"cpu":"1"}},"containers":[{"name":"c","image":"i"}]}`))
		at := w.target("pods", "n", node)
		at.Subresource = "resize"
		_, err := w.Patch(t.Context(), at, mergePatch(`{"spec":{"resources":{"requests":{"cpu":"2"}}}}`), registry.WriteOptions{})
		if text(err) != want {
			t.Errorf("on %s: %v, want %q", node, err, want)
		}
	}
}
