package node

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

var peer = flag.String("peer", "", "kubeconfig of a kube-apiserver whose node authorizer TestPeer compares with this one, and whose decisions it records")

const recorded = "testdata/decisions.txt"

// cluster are the objects that the decisions of TestRecorded depend on.
type cluster struct {
	pods        []*corev1.Pod
	volumes     []*corev1.PersistentVolume
	attachments []*storagev1.VolumeAttachment
	slices      []*resourcev1.ResourceSlice
}

func sample() *cluster {
	runs := func(name, node string, volumes ...corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta("node-a", name), Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "account-" + name, Containers: []corev1.Container{{Name: "c", Image: "i"}},
		}}
		for i, v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v})
		}
		return p
	}
	one := runs("one", "n1",
		corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s1"}},
		corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c1"}}},
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim1"}})
	one.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "made", ResourceClaimTemplateName: ptr.To("t")}, {Name: "own", ResourceClaimName: ptr.To("rc1")}}
	one.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: ptr.To("rc2")}}
	two := runs("two", "n2", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s2"}})
	nowhere := runs("nowhere", "", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s3"}})
	volume := func(name, claim string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: meta("", name), Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef: &corev1.ObjectReference{Namespace: "node-a", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: "d.example.com", VolumeHandle: name, NodeStageSecretRef: &corev1.SecretReference{Namespace: "node-b", Name: "of-" + name},
			}},
		}}
	}
	attached := func(name, node string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: meta("", name), Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "d.example.com", NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("node-pv1")},
		}}
	}
	slice := func(name string, node *string) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{ObjectMeta: meta("", name), Spec: resourcev1.ResourceSliceSpec{
			Driver: "d.example.com", NodeName: node, Pool: resourcev1.ResourcePool{Name: "p" + name, ResourceSliceCount: 1},
		}}
		if node == nil {
			s.Spec.AllNodes = ptr.To(true)
		}
		return s
	}
	return &cluster{
		[]*corev1.Pod{one, two, nowhere},
		[]*corev1.PersistentVolume{volume("node-pv1", "claim1"), volume("node-pv2", "claim2")},
		[]*storagev1.VolumeAttachment{attached("node-va1", "n1"), attached("node-va2", "n2")},
		[]*resourcev1.ResourceSlice{slice("node-rs1", ptr.To("n1")), slice("node-rs2", ptr.To("n2")), slice("node-rs3", nil)},
	}
}

func (c *cluster) store(w *world) {
	for _, p := range c.pods {
		w.pod(p)
	}
	for _, v := range c.volumes {
		w.put("persistentvolumes", v.Name, v)
	}
	for _, a := range c.attachments {
		w.put("volumeattachments.storage.k8s.io", a.Name, a)
	}
	for _, s := range c.slices {
		w.put("resourceslices.resource.k8s.io", s.Name, s)
	}
}

// create creates the objects on a server; it returns a function that removes them.
func (c *cluster) create(t *testing.T, k *kubernetes.Clientset) (remove func()) {
	ctx := t.Context()
	for _, name := range []string{"node-a", "node-b"} {
		if _, err := k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta("", name)}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range c.pods {
		made, err := k.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		made.Status.ResourceClaimStatuses = p.Status.ResourceClaimStatuses
		if _, err := k.CoreV1().Pods(p.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range c.volumes {
		if _, err := k.CoreV1().PersistentVolumes().Create(ctx, v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range c.attachments {
		if _, err := k.StorageV1().VolumeAttachments().Create(ctx, a, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range c.slices {
		if _, err := k.ResourceV1().ResourceSlices().Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		for _, p := range c.pods {
			k.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
		}
		for _, v := range c.volumes {
			k.CoreV1().PersistentVolumes().Delete(ctx, v.Name, metav1.DeleteOptions{})
			k.CoreV1().PersistentVolumes().Patch(ctx, v.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
		for _, a := range c.attachments {
			k.StorageV1().VolumeAttachments().Delete(ctx, a.Name, metav1.DeleteOptions{})
		}
		for _, s := range c.slices {
			k.ResourceV1().ResourceSlices().Delete(ctx, s.Name, metav1.DeleteOptions{})
		}
		for _, name := range []string{"node-a", "node-b"} {
			k.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
			if n, err := k.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); err == nil { // no controller does it
				n.Spec.Finalizers = nil
				k.CoreV1().Namespaces().Finalize(ctx, n, metav1.UpdateOptions{})
			}
		}
	}
}

// requests are requests of nodes for every resource that they may know, and others.
func requests() (all []authz.Attributes) {
	resources := []string{
		"secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes", "serviceaccounts", "nodes", "pods", "services", "endpoints",
		"events", "namespaces", "replicationcontrollers", "resource.k8s.io resourceclaims", "resource.k8s.io resourceslices", "storage.k8s.io volumeattachments",
		"storage.k8s.io csinodes", "storage.k8s.io csidrivers", "storage.k8s.io storageclasses", "coordination.k8s.io leases", "events.k8s.io events",
		"certificates.k8s.io certificatesigningrequests", "certificates.k8s.io podcertificaterequests", "certificates.k8s.io clustertrustbundles",
		"node.k8s.io runtimeclasses", "authentication.k8s.io tokenreviews", "authorization.k8s.io subjectaccessreviews",
		"authorization.k8s.io localsubjectaccessreviews", "authorization.k8s.io selfsubjectaccessreviews", "apps secrets", "apps deployments",
	}
	names := []string{
		"", "s1", "s2", "s3", "c1", "claim1", "claim2", "rc1", "rc2", "one", "two", "nowhere", "account-one", "account-two",
		"node-pv1", "node-pv2", "of-node-pv1", "of-node-pv2", "node-va1", "node-va2", "node-rs1", "node-rs2", "node-rs3", "n1", "n2",
	}
	for _, full := range resources {
		group, name, ok := strings.Cut(full, " ")
		if !ok {
			group, name = "", full
		}
		for _, sub := range []string{"", "status", "token", "eviction"} {
			for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy"} {
				for _, namespace := range []string{"", "node-a", "node-b", "kube-node-lease"} {
					for _, object := range names {
						for _, node := range []string{"n1", "n2"} {
							a := authz.Attributes{User: user(node), IsResource: true, Verb: verb, Group: group, Version: "v1", Resource: name, Subresource: sub, Namespace: namespace, Name: object}
							all = append(all, a)
							if object == "" && (verb == "list" || verb == "watch" || verb == "deletecollection") {
								for _, selector := range []string{"spec.nodeName=n1", "spec.nodeName!=n1", "metadata.name=x,spec.nodeName==n1", "nodeName=n1"} {
									a.FieldSelector = selector
									all = append(all, a)
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// line is a request as the recorded file has it.
func line(a *authz.Attributes) string {
	quoted := func(s string) string { return cmp.Or(s, "-") }
	return fmt.Sprintf("%s %s %s %s %s %s %s %s", strings.TrimPrefix(a.User.Name, "system:node:"), a.Verb, quoted(a.Group), a.Resource,
		quoted(a.Subresource), quoted(a.Namespace), quoted(a.Name), quoted(a.FieldSelector))
}

// shown is a decision as the recorded file has it.
func shown(allowed bool, reason string) string {
	if allowed {
		return "allow"
	}
	return strings.TrimSpace("no opinion " + reason)
}

// TestRecorded compares decisions with those of kube-apiserver v1.37.2, recorded by TestPeer.
func TestRecorded(t *testing.T) {
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for l := range strings.Lines(string(text)) {
		request, decision, _ := strings.Cut(strings.TrimSpace(l), ": ")
		want[request] = decision
	}
	w := newWorld(t)
	sample().store(w)
	for _, a := range requests() {
		l := line(&a)
		if _, ok := want[l]; !ok {
			continue
		}
		d, reason, _ := w.node.Authorize(t.Context(), &a)
		if got := shown(d == authz.Allow, reason); got != want[l] {
			t.Errorf("%s: %s, want %s", l, got, want[l])
		}
		delete(want, l)
	}
	if len(want) > 0 {
		t.Errorf("%d recorded requests are not asked", len(want))
	}
}

// TestPeer compares all decisions with those of a kube-apiserver with --authorization-mode=Node,RBAC,
// and records a part of them.
func TestPeer(t *testing.T) {
	if *peer == "" {
		t.Skip("needs -peer")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *peer)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, c := newWorld(t), sample()
	c.store(w)
	defer c.create(t, k)()
	var lines []string
	var mu sync.Mutex // guards lines
	var workers sync.WaitGroup
	all := make(chan authz.Attributes)
	for range 8 {
		workers.Go(func() {
			for a := range all {
				got := review(t, k, &a)
				d, reason, _ := w.node.Authorize(t.Context(), &a)
				if own := shown(d == authz.Allow, reason); own != got {
					t.Errorf("%s: %s, the peer's is %s", line(&a), own, got)
				}
				sum := fnv.New32()
				sum.Write([]byte(line(&a)))
				if n := sum.Sum32(); n%2000 == 0 || got != "no opinion" && n%200 == 0 || got == "allow" && n%10 == 0 {
					mu.Lock()
					lines = append(lines, line(&a)+": "+got+"\n")
					mu.Unlock()
				}
			}
		})
	}
	for _, a := range requests() {
		all <- a
	}
	close(all)
	workers.Wait()
	slices.Sort(lines)
	if err := os.WriteFile(recorded, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests compared, %d recorded", len(requests()), len(lines))
}

// review returns the decision of the peer.
func review(t *testing.T, k *kubernetes.Clientset, a *authz.Attributes) string {
	r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: a.User.Name, Groups: []string{"system:nodes"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
		},
	}}
	if a.FieldSelector != "" {
		r.Spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: a.FieldSelector}
	}
	made, err := k.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), r, metav1.CreateOptions{})
	if err != nil {
		t.Error(err)
		return ""
	}
	return shown(made.Status.Allowed, strings.TrimPrefix(made.Status.Reason, "node: "))
}
