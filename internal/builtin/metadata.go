package builtin

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/batch"
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// takeMetadata moves what a client may change of the metadata.
func takeMetadata(to, from *metav1.ObjectMeta) {
	to.Labels, to.Annotations, to.Finalizers, to.OwnerReferences = from.Labels, from.Annotations, from.Finalizers, from.OwnerReferences
}

// setJobStatus is the subresource status of Jobs, which are never without labels.
func setJobStatus(o, sent runtime.Object) error {
	j, next := o.(*batchv1.Job), sent.(*batchv1.Job)
	j.Status = next.Status
	takeMetadata(&j.ObjectMeta, &next.ObjectMeta)
	batch.LabelLikePods(j)
	return nil
}

// setControllerStatus is setJobStatus of ReplicationControllers.
func setControllerStatus(o, sent runtime.Object) error {
	r, next := o.(*corev1.ReplicationController), sent.(*corev1.ReplicationController)
	r.Status = next.Status
	takeMetadata(&r.ObjectMeta, &next.ObjectMeta)
	core.LabelLikePods(r)
	return nil
}
