package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// protectors are the finalizers that keep objects while they are in use, by collection. Controllers
// remove them.
var protectors = map[string]string{
	"persistentvolumeclaims":                 "kubernetes.io/pvc-protection",
	"persistentvolumes":                      "kubernetes.io/pv-protection",
	"volumeattributesclasses.storage.k8s.io": "kubernetes.io/vac-protection",
}

// protectStorage gives new claims, volumes and classes of volume attributes their finalizers.
func protectStorage(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return o == admissionv1.Create && t.Subresource == "" && protectors[t.Type.Collection] != ""
		},
		Mutate: func(_ context.Context, a *registry.Attributes) error {
			m, finalizer := a.Object.(metav1.Object), protectors[a.Type.Collection]
			if all := m.GetFinalizers(); !slices.Contains(all, finalizer) {
				m.SetFinalizers(append(all, finalizer))
			}
			return nil
		},
	}
}

// taintNodes taints new Nodes, so that no Pods are scheduled to them before they are ready.
func taintNodes(*Config) registry.Plugin {
	return creating("nodes", func(_ context.Context, a *registry.Attributes) error {
		n, taint := a.Object.(*corev1.Node), corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		if !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			n.Spec.Taints = append(n.Spec.Taints, taint)
		}
		return nil
	})
}
