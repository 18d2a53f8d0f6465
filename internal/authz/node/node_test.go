package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// everything names an object by each field of a Pod that can: secrets s0, s1, ..., config maps
// c0, ..., claims p0, ... and so on.
func everything() *corev1.Pod {
	n := map[string]int{}
	next := func(kind string) string {
		n[kind]++
		return fmt.Sprint(kind, n[kind]-1)
	}
	ref := func(kind string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: next(kind)} }
	secret := func() *corev1.LocalObjectReference { r := ref("s"); return &r }
	env := func() ([]corev1.EnvVar, []corev1.EnvFromSource) {
		return []corev1.EnvVar{
				{Name: "a", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref("s"), Key: "k"}}},
				{Name: "b", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: ref("c"), Key: "k"}}},
				{Name: "c", Value: "v"},
			}, []corev1.EnvFromSource{
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s")}},
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("c")}},
			}
	}
	p := &corev1.Pod{ObjectMeta: meta("ns", "p")}
	s := &p.Spec
	s.NodeName, s.ServiceAccountName = "n1", "a0"
	s.ImagePullSecrets = []corev1.LocalObjectReference{ref("s")}
	s.InitContainers, s.Containers, s.EphemeralContainers = make([]corev1.Container, 1), make([]corev1.Container, 1), make([]corev1.EphemeralContainer, 1)
	s.InitContainers[0].Env, s.InitContainers[0].EnvFrom = env()
	s.Containers[0].Env, s.Containers[0].EnvFrom = env()
	s.EphemeralContainers[0].Env, s.EphemeralContainers[0].EnvFrom = env()
	for i, source := range []corev1.VolumeSource{
		{AzureFile: &corev1.AzureFileVolumeSource{SecretName: next("s")}},
		{CephFS: &corev1.CephFSVolumeSource{SecretRef: secret()}},
		{Cinder: &corev1.CinderVolumeSource{SecretRef: secret()}},
		{FlexVolume: &corev1.FlexVolumeSource{SecretRef: secret()}},
		{RBD: &corev1.RBDVolumeSource{SecretRef: secret()}},
		{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: secret()}},
		{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: secret()}},
		{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: secret()}},
		{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: secret()}},
		{Secret: &corev1.SecretVolumeSource{SecretName: next("s")}},
		{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("c")}},
		{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{Secret: &corev1.SecretProjection{LocalObjectReference: ref("s")}},
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("c")}},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}},
		}}},
		{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: next("p")}},
		{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}},
		{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}},
	} {
		s.Volumes = append(s.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: source})
	}
	s.ResourceClaims = []corev1.PodResourceClaim{
		{Name: "direct", ResourceClaimName: ptr.To(next("r"))},
		{Name: "made", ResourceClaimTemplateName: ptr.To("t")},
		{Name: "unneeded", ResourceClaimTemplateName: ptr.To("t")},
		{Name: "later", ResourceClaimTemplateName: ptr.To("t")},
	}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{
		{Name: "made", ResourceClaimName: ptr.To(next("r"))}, {Name: "unneeded"}, {Name: "other", ResourceClaimName: ptr.To("unrelated")},
	}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: next("r")}
	return p
}

// TestNamed: a node may read each object that a Pod of it names, while the Pod exists.
func TestNamed(t *testing.T) {
	w := newWorld(t)
	p := everything()
	named := map[string][]string{
		"secrets": {"s", "18"}, "configmaps": {"c", "8"}, "persistentvolumeclaims": {"p", "1"}, "serviceaccounts": {"a", "1"},
	}
	check := func(there bool) {
		t.Helper()
		for resource, of := range named {
			var n int
			fmt.Sscan(of[1], &n)
			for i := range n {
				w.want(there, "n1", "get", resource, "ns", fmt.Sprint(of[0], i))
				w.want(false, "n2", "get", resource, "ns", fmt.Sprint(of[0], i))
				w.want(false, "n1", "get", resource, "other", fmt.Sprint(of[0], i))
			}
			w.want(false, "n1", "get", resource, "ns", fmt.Sprint(of[0], n))
		}
		w.want(there, "n1", "get", "persistentvolumeclaims", "ns", "p-v13")
		w.want(there, "n1", "get", "pods", "ns", "p")
		w.want(false, "n2", "get", "pods", "ns", "p")
		for i := range 4 {
			d, _, _ := w.node.Authorize(t.Context(), &authz.Attributes{User: user("n1"), IsResource: true, Verb: "get", Group: "resource.k8s.io", Resource: "resourceclaims", Namespace: "ns", Name: fmt.Sprint("r", i)})
			if (d == authz.Allow) != (there && i < 3) {
				t.Errorf("resource claim %d: %v", i, d)
			}
		}
	}
	check(false)
	w.pod(p)
	check(true)
	p.Status.Phase = corev1.PodSucceeded
	w.pod(p)
	check(true)
	w.put("pods", "ns/p", nil)
	check(false)

	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	w.pod(p)
	w.want(true, "n1", "get", "pods", "ns", "p")
	w.want(false, "n1", "get", "secrets", "ns", "s0")
	w.want(false, "n1", "get", "serviceaccounts", "ns", "a0")
}

// TestVolumes: a node may read a volume, and the Secrets that the volume names, if a Pod of it
// uses the claim of the volume.
func TestVolumes(t *testing.T) {
	w := newWorld(t)
	full := func(namespace, name string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: name}
	}
	for _, row := range []struct {
		source corev1.PersistentVolumeSource
		want   string // namespaces and names
	}{
		{corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "x"}}, "ns/x"},
		{corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "x", SecretNamespace: ptr.To("o")}}, "o/x"},
		{corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: full("o", "x")}}, "o/x"},
		{corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: full("", "x")}}, "ns/x"},
		{corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: full("o", "x")}}, "o/x"},
		{corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: full("", "x")}}, "ns/x"},
		{corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: full("", "x")}}, "ns/x"},
		{corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: full("", "x")}}, "ns/x"},
		{corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: full("", "x")}}, "ns/x"},
		{corev1.PersistentVolumeSource{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: "o", Name: "x"}}}, "o/x"},
		{corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			NodePublishSecretRef: full("o", "x"), NodeStageSecretRef: full("o", "y"), NodeExpandSecretRef: full("ns", "z"),
			ControllerExpandSecretRef: full("o", "no"), ControllerPublishSecretRef: full("o", "no"),
		}}, "o/x o/y ns/z"},
		{corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}, ""},
	} {
		check := func(there bool) {
			t.Helper()
			w.want(there, "n1", "get", "persistentvolumes", "", "v")
			w.want(false, "n2", "get", "persistentvolumes", "", "v")
			for _, secret := range strings.Fields(row.want) {
				namespace, name, _ := strings.Cut(secret, "/")
				w.want(there, "n1", "get", "secrets", namespace, name)
				w.want(false, "n2", "get", "secrets", namespace, name)
			}
			w.want(false, "n1", "get", "secrets", "o", "no")
		}
		v := &corev1.PersistentVolume{ObjectMeta: meta("", "v"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: row.source}}
		p := &corev1.Pod{ObjectMeta: meta("ns", "p"), Spec: corev1.PodSpec{NodeName: "n1", Volumes: []corev1.Volume{
			{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		}}}
		check(false)
		w.pod(p)
		w.put("persistentvolumes", "v", v)
		check(false)
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"}
		w.put("persistentvolumes", "v", v)
		check(true)
		w.put("pods", "ns/p", nil)
		check(false)
		w.pod(p)
		check(true)
		w.put("persistentvolumes", "v", nil)
		check(false)
		w.put("pods", "ns/p", nil)
	}
}

// TestOtherUsers: users that are not nodes are left to other authorizers.
func TestOtherUsers(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		user   *authn.User
		reason string
		node   bool
	}{
		{nil, "", false},
		{&authn.User{Name: "system:node:n1"}, "", false},
		{&authn.User{Name: "n1", Groups: []string{"system:nodes"}}, "", false},
		{&authn.User{Name: "system:node:", Groups: []string{"system:nodes"}}, `unknown node for user "system:node:"`, true},
	} {
		for _, a := range []authz.Attributes{
			{IsResource: true, Verb: "get", Resource: "nodes", Name: "n1"}, {Verb: "get", Path: "/metrics"},
		} {
			a.User = row.user
			if d, reason, err := w.node.Authorize(t.Context(), &a); d != authz.NoOpinion || reason != row.reason || err != nil {
				t.Errorf("%+v: %v %q %v", row.user, d, reason, err)
			}
		}
		if r := w.node.Rules(t.Context(), row.user, "ns"); r.Incomplete != row.node || (r.Err != nil) != row.node {
			t.Errorf("%+v: %+v", row.user, r)
		}
	}
	if d, reason, _ := w.node.Authorize(t.Context(), &authz.Attributes{User: user("n1"), Verb: "get", Path: "/api"}); d != authz.NoOpinion || reason != "" {
		t.Errorf("a path: %v %q", d, reason)
	}
}

// TestSelects: a field selector gives access only if it requires the name of the node.
func TestSelects(t *testing.T) {
	w := newWorld(t)
	for _, row := range []struct {
		node, selector string
		want           bool
	}{
		{"n1", "spec.nodeName=n1", true},
		{"n1", "spec.nodeName==n1", true},
		{"n1", "metadata.namespace=a,spec.nodeName=n1", true},
		{"n1", "spec.nodeName=n1,metadata.namespace=a", true},
		{"n1", "spec.nodeName=n1,spec.nodeName=n2", true}, // it selects nothing
		{"n1", "", false},
		{"n1", "spec.nodeName!=n1", false},
		{"n1", "spec.nodeName=n11", false},
		{"n1", "spec.nodeName=", false},
		{"n1", "xspec.nodeName=n1", false},
		{"n1", "metadata.name=spec.nodeName=n1", false},
		{"n1", "spec.nodeName=n1,bad", false},
		{"a,b", "spec.nodeName=a,b", false},
		{`a\`, `spec.nodeName=a\`, false},
		{"a,b", `spec.nodeName=a\,b`, true},
	} {
		for _, verb := range []string{"list", "watch"} {
			a := &authz.Attributes{User: user(row.node), IsResource: true, Verb: verb, Resource: "pods", FieldSelector: row.selector}
			d, reason, _ := w.node.Authorize(t.Context(), a)
			if (d == authz.Allow) != row.want || !row.want && reason != "can only list/watch pods with spec.nodeName field selector" {
				t.Errorf("node %s, %s with %q: %v %q, want %v", row.node, verb, row.selector, d, reason, row.want)
			}
		}
	}
}

// crowd stores n Pods, spread over the nodes.
func crowd(w *world, n int, nodes ...string) {
	for i := range n {
		p := everything()
		p.Spec.NodeName = nodes[i%len(nodes)]
		p.Name = fmt.Sprintf("p%d", i)
		p.Spec.ImagePullSecrets[0].Name = fmt.Sprint("own-", i)
		w.pod(p)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	w := newWorld(b)
	crowd(w, 10000, "n1")
	secret := authz.Attributes{User: user("n1"), IsResource: true, Verb: "get", Resource: "secrets", Namespace: "ns", Name: "own-77"}
	w.node.Authorize(context.Background(), &secret)
	person := secret
	person.User = &authn.User{Name: "mary", Groups: []string{"a", "b", "system:authenticated"}}
	denied := secret
	denied.Name = "none"
	list := authz.Attributes{User: user("n1"), IsResource: true, Verb: "watch", Resource: "pods", FieldSelector: "spec.nodeName=n1"}
	for _, row := range []struct {
		name string
		a    authz.Attributes
	}{{"secret", secret}, {"denied", denied}, {"watch", list}, {"person", person}} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.node.Authorize(context.Background(), &row.a)
			}
		})
	}
	b.Run("after-status-change", func(b *testing.B) {
		p := everything()
		p.Name = "p5"
		p.Spec.ImagePullSecrets[0].Name = "own-5"
		b.ReportAllocs()
		for b.Loop() {
			p.Generation++
			w.pod(p)
			w.node.Authorize(context.Background(), &secret)
		}
	})
	b.Run("after-other-change", func(b *testing.B) {
		p := everything()
		b.ReportAllocs()
		for b.Loop() {
			p.Generation++
			w.put("things", "x", p)
			w.node.Authorize(context.Background(), &secret)
		}
	})
}
