package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/storage"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// The types of the bodies of subresources of Pods.
var (
	bindingType = resource.Type{
		Names: resource.Names{Version: "v1", Kind: "Binding"},
		New:   object[corev1.Binding],
	}
	evictionType = resource.Type{
		Names: resource.Names{Group: "policy", Version: "v1", Kind: "Eviction"},
		New:   object[policyv1.Eviction],
	}
)

// podFields are the selectable fields of Pods. A Pod that lacks one is selected by its default.
var podFields = []resource.Field{
	{Name: "spec.host", Paths: [][]string{{"spec", "nodeName"}}},
	{Name: "spec.hostNetwork", Default: "false"},
	{Name: "spec.nodeName"},
	{Name: "spec.restartPolicy", Default: string(corev1.RestartPolicyAlways)},
	{Name: "spec.schedulerName", Default: corev1.DefaultSchedulerName},
	{Name: "spec.serviceAccountName", Paths: [][]string{{"spec", "serviceAccountName"}, {"spec", "serviceAccount"}}},
	{Name: "status.nominatedNodeName"},
	{Name: "status.phase"},
	{Name: "status.podIP"},
	{Name: "status.podIPs", Paths: [][]string{}},
}

var serviceFields = []resource.Field{
	{Name: "spec.clusterIP"},
	{Name: "spec.type", Default: string(corev1.ServiceTypeClusterIP)},
}

// defaultNamespace sets the phase to Active, and labels the namespace with its name so that
// selectors of namespaces can select it.
func defaultNamespace(o runtime.Object) {
	ns := o.(*corev1.Namespace)
	if ns.Status.Phase == "" {
		ns.Status.Phase = corev1.NamespaceActive
	}
	if ns.Name != "" {
		labelNamespace(ns)
	}
}

func labelNamespace(ns *corev1.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func newNamespace(o runtime.Object) {
	o.(*corev1.Namespace).Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
}

func prepareNamespace(o runtime.Object) {
	ns := o.(*corev1.Namespace)
	labelNamespace(ns) // its name may be generated
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// keepNamespace restores the finalizers of the spec: only the subresource finalize changes them.
func keepNamespace(next, current *corev1.Namespace) bool {
	if slices.Equal(next.Spec.Finalizers, current.Spec.Finalizers) {
		return false
	}
	next.Spec.Finalizers = slices.Clone(current.Spec.Finalizers)
	return true
}

// setNodeStatus sets the subresource "status" of Nodes.
func setNodeStatus(o, sent runtime.Object) error {
	n, next := o.(*corev1.Node), sent.(*corev1.Node)
	had := n.Status.Config != nil
	n.Status = next.Status
	if !had {
		n.Status.Config = nil // the field is no longer supported
	}
	takeMetadata(&n.ObjectMeta, &next.ObjectMeta)
	return nil
}

// setVolumeStatus sets the subresource "status" of PersistentVolumes.
func setVolumeStatus(o, sent runtime.Object) error {
	v, next := o.(*corev1.PersistentVolume), sent.(*corev1.PersistentVolume)
	old := &corev1.PersistentVolume{Status: v.Status}
	v.Status = next.Status
	storage.StampPhase(v, old)
	takeMetadata(&v.ObjectMeta, &next.ObjectMeta)
	return nil
}

// holdsContent reports whether the spec of a namespace has finalizers. One of them is
// for its content, and keeps the namespace until that is deleted.
func holdsContent(o runtime.Object) bool { return len(o.(*corev1.Namespace).Spec.Finalizers) > 0 }

func terminate(o runtime.Object) { o.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating }

// namespacePolicy returns the options that a deletion of a namespace uses, as kube-apiserver does:
// the first request deletes dependents in the foreground if it does not orphan them; later ones
// change nothing until the content is gone.
func namespacePolicy(o runtime.Object, options *metav1.DeleteOptions) *metav1.DeleteOptions {
	//lint:ignore SA1019 old clients send it
	orphan := options.OrphanDependents
	switch first := o.(*corev1.Namespace).DeletionTimestamp == nil; {
	case first && orphan != nil && !*orphan:
		return &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}
	case !first && holdsContent(o):
		return nil
	}
	return options
}

// finalizeNamespace sets the subresource "finalize", which changes the finalizers of the spec
// alone.
func finalizeNamespace(o, sent runtime.Object) error {
	o.(*corev1.Namespace).Spec.Finalizers = sent.(*corev1.Namespace).Spec.Finalizers
	return nil
}

// podGracePeriod returns the grace period of a deletion in seconds. It is 0 for a Pod that has no
// node or has ended.
func podGracePeriod(o runtime.Object, asked *int64) int64 {
	p := o.(*corev1.Pod)
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return 0
	}
	switch {
	case asked != nil:
		return *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		seconds := *p.Spec.TerminationGracePeriodSeconds
		if seconds < 0 {
			return 1
		}
		return seconds
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}
