package builtin

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// podFields have, where a Pod lacks the field, the value that the server gives to
// Pods that say nothing.
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

// defaultNamespace labels a namespace with its name, so that selectors of
// namespaces can name one.
func defaultNamespace(o runtime.Object) {
	ns := o.(*corev1.Namespace)
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func prepareNamespace(o runtime.Object) {
	ns := o.(*corev1.Namespace)
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

// keepNamespace: the finalizers of the spec change by the subresource finalize.
func keepNamespace(next, current runtime.Object) {
	next.(*corev1.Namespace).Spec.Finalizers = slices.Clone(current.(*corev1.Namespace).Spec.Finalizers)
}

// defaultSecret merges stringData, which can be written and never read, into data.
func defaultSecret(o runtime.Object) {
	s := o.(*corev1.Secret)
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

// prepareNode keeps Pods away from a new Node until somebody says that it is ready.
func prepareNode(o runtime.Object) {
	n := o.(*corev1.Node)
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
		n.Spec.Taints = append(n.Spec.Taints, taint)
	}
}

func preparePod(o runtime.Object) {
	o.(*corev1.Pod).Status = corev1.PodStatus{Phase: corev1.PodPending}
}

func prepareClaim(o runtime.Object) {
	o.(*corev1.PersistentVolumeClaim).Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
}

func prepareVolume(o runtime.Object) {
	o.(*corev1.PersistentVolume).Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
}
