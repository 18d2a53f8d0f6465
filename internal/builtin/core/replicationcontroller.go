package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// DefaultReplicationController fills in what a client leaves out: the template's
// labels are what it selects, and what labels it.
func DefaultReplicationController(r *corev1.ReplicationController) {
	if r.Spec.Replicas == nil {
		r.Spec.Replicas = ptr.To[int32](1)
	}
	t := r.Spec.Template
	if t == nil {
		return
	}
	if t.Labels != nil {
		if len(r.Spec.Selector) == 0 {
			r.Spec.Selector = t.Labels
		}
		if len(r.Labels) == 0 {
			r.Labels = t.Labels
		}
	}
	DefaultTemplate(t)
}
