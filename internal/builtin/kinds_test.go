package builtin_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

func lookup(t *testing.T, group, version, name string) *resource.Type {
	t.Helper()
	x := builtin.Catalog().Lookup(group, version, name)
	if x == nil {
		t.Fatalf("%s/%s %s is not served", group, version, name)
	}
	return x
}

// TestNames checks one kind for each rule of names, and each kind with a rule of its own.
func TestNames(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, c := range []struct {
		group, version, resource string
		good, bad                []string
	}{
		{"", "v1", "configmaps", []string{"a", "a.b", "1-a", long}, []string{"A", "a_b", "a:b", "-a", "a..b", "", strings.Repeat("a", 254)}},
		{"", "v1", "namespaces", []string{"a", "1a"}, []string{"a.b", "A", long}},
		{"", "v1", "services", []string{"a", "1abc"}, []string{"a.b", "A", long}},
		{"apps", "v1", "statefulsets", []string{"a"}, []string{"a.b", long}},
		{"", "v1", "serviceaccounts", []string{"a.b"}, []string{"A"}},
		{"", "v1", "events", []string{"A:b", "a_b"}, []string{".", "..", "a/b", "a%b"}},
		{"events.k8s.io", "v1", "events", []string{"a.b"}, []string{"A", "a:b"}},
		{"rbac.authorization.k8s.io", "v1", "clusterroles", []string{"system:Node", "a b"}, []string{".", "..", "a/b", "a%b"}},
		{"rbac.authorization.k8s.io", "v1", "rolebindings", []string{"system:Node"}, []string{"a/b"}},
		{"certificates.k8s.io", "v1", "certificatesigningrequests", []string{"X:y"}, []string{"a/b"}},
		{"apiregistration.k8s.io", "v1", "apiservices", []string{"v1.apps", "v1."}, []string{"a/b"}},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions", []string{"foos.example.com"}, []string{"foos."}},
		{"networking.k8s.io", "v1", "ipaddresses", []string{"10.0.0.1", "2001:db8::1"}, []string{"a", "10.0.0.01", "2001:DB8::1", "::ffff:10.0.0.1"}},
	} {
		x := lookup(t, c.group, c.version, c.resource)
		for _, n := range c.good {
			if wrong := x.Strategy.Metadata.ValidateName(n, false); len(wrong) > 0 {
				t.Errorf("%s %q: %q, want nothing", c.resource, n, wrong)
			}
		}
		for _, n := range c.bad {
			if wrong := x.Strategy.Metadata.ValidateName(n, false); len(wrong) == 0 {
				t.Errorf("%s %q is accepted", c.resource, n)
			}
		}
	}
	if wrong := lookup(t, "", "v1", "pods").Strategy.Metadata.ValidateName("web-", true); len(wrong) > 0 {
		t.Errorf("a prefix that ends with a dash: %q", wrong)
	}
}

func TestSecretDefault(t *testing.T) {
	x := lookup(t, "", "v1", "secrets")
	for _, c := range []struct {
		name     string
		in, want corev1.Secret
	}{
		{"nothing", corev1.Secret{}, corev1.Secret{Type: corev1.SecretTypeOpaque}},
		{"a type of its own", corev1.Secret{Type: "example.com/x"}, corev1.Secret{Type: "example.com/x"}},
		{
			"strings win over data",
			corev1.Secret{Data: map[string][]byte{"a": []byte("1"), "b": []byte("2")}, StringData: map[string]string{"b": "3", "c": ""}},
			corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("1"), "b": []byte("3"), "c": {}}},
		},
		{
			"only strings",
			corev1.Secret{StringData: map[string]string{"a": "x"}},
			corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("x")}},
		},
	} {
		got := c.in.DeepCopy()
		x.Strategy.Default(got)
		if d := cmp.Diff(got, &c.want); d != "" {
			t.Errorf("%s (-got +want):\n%s", c.name, d)
		}
	}
}

func TestNamespace(t *testing.T) {
	x := lookup(t, "", "v1", "namespaces")
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b", corev1.LabelMetadataName: "other"}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/x"}},
	}
	x.Strategy.Default(ns)
	x.Strategy.Status.New(ns)
	x.Strategy.PrepareCreate(ns)
	want := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"a": "b", corev1.LabelMetadataName: "n"}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/x", corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
	}
	if d := cmp.Diff(ns, want); d != "" {
		t.Errorf("created (-got +want):\n%s", d)
	}

	again := want.DeepCopy()
	x.Strategy.PrepareCreate(again)
	if d := cmp.Diff(again, want); d != "" {
		t.Errorf("created with all of it (-got +want):\n%s", d)
	}

	next := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	x.Strategy.Default(next)
	next = x.Strategy.PrepareUpdate(next, want).(*corev1.Namespace)
	if d := cmp.Diff(next.Spec, want.Spec); d != "" {
		t.Errorf("updated (-got +want):\n%s", d)
	}
	if got := next.Labels[corev1.LabelMetadataName]; got != "n" {
		t.Errorf("updated: label is %q", got)
	}
	next.Spec.Finalizers[0] = "changed"
	if want.Spec.Finalizers[0] == "changed" {
		t.Error("an update shares memory with the current object")
	}
}

// TestPhases checks that a new object has the first phase of its kind, whatever the client sent.
func TestPhases(t *testing.T) {
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}}
	lookup(t, "", "v1", "pods").Strategy.PrepareCreate(pod)
	if d := cmp.Diff(pod.Status, corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBestEffort}); d != "" {
		t.Errorf("pod (-got +want):\n%s", d)
	}
	claim := &corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	lookup(t, "", "v1", "persistentvolumeclaims").Strategy.Status.New(claim)
	if claim.Status.Phase != corev1.ClaimPending {
		t.Errorf("claim: %s", claim.Status.Phase)
	}
	volume := &corev1.PersistentVolume{Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
	lookup(t, "", "v1", "persistentvolumes").Strategy.Status.New(volume)
	if volume.Status.Phase != corev1.VolumePending {
		t.Errorf("volume: %s", volume.Status.Phase)
	}
}

// TestSelectableDefaults checks that an object that lacks a field is selected by the default of the
// field.
func TestSelectableDefaults(t *testing.T) {
	want := map[string]string{
		"pods spec.restartPolicy":                "Always",
		"pods spec.schedulerName":                "default-scheduler",
		"pods spec.hostNetwork":                  "false",
		"services spec.type":                     "ClusterIP",
		"nodes spec.unschedulable":               "false",
		"jobs status.successful":                 "0",
		"replicationcontrollers status.replicas": "0",
	}
	for x := range builtin.Catalog().Types() {
		for _, f := range x.Display.Fields {
			if k := x.Resource + " " + f.Name; f.Default != want[k] {
				t.Errorf("%s: %q, want %q", k, f.Default, want[k])
			}
		}
	}
}
