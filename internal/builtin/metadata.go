package builtin

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/apps"
	"github.com/tidemark-dev/tidemark/internal/builtin/batch"
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// takeMetadata copies the metadata that a client may change.
func takeMetadata(to, from *metav1.ObjectMeta) {
	to.Labels, to.Annotations, to.Finalizers, to.OwnerReferences = from.Labels, from.Annotations, from.Finalizers, from.OwnerReferences
}

// setJobStatus updates the subresource status of Jobs. A Job without labels gets those of its
// Pods.
func setJobStatus(o, sent runtime.Object) error {
	j, next := o.(*batchv1.Job), sent.(*batchv1.Job)
	j.Status = next.Status
	takeMetadata(&j.ObjectMeta, &next.ObjectMeta)
	batch.LabelLikePods(j)
	return nil
}

// setDaemonSetStatus keeps the annotation that counts the changes of the template.
func setDaemonSetStatus(o, sent runtime.Object) error {
	d, next := o.(*appsv1.DaemonSet), sent.(*appsv1.DaemonSet)
	d.Status = next.Status
	old := d.DeepCopy()
	takeMetadata(&d.ObjectMeta, &next.ObjectMeta)
	apps.PrepareDaemonSetUpdate(d, old)
	return nil
}

// setControllerStatus is setJobStatus for ReplicationControllers.
func setControllerStatus(o, sent runtime.Object) error {
	r, next := o.(*corev1.ReplicationController), sent.(*corev1.ReplicationController)
	r.Status = next.Status
	takeMetadata(&r.ObjectMeta, &next.ObjectMeta)
	core.LabelLikePods(r)
	return nil
}
