package builtin

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// takeMetadata moves what a client may change of the metadata.
func takeMetadata(to, from *metav1.ObjectMeta) {
	to.Labels, to.Annotations, to.Finalizers, to.OwnerReferences = from.Labels, from.Annotations, from.Finalizers, from.OwnerReferences
}
