package builtin

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// checkedStatus is status with what checks it.
func checkedStatus(check func(o, old runtime.Object) field.ErrorList) resource.Subresource {
	s := status
	s.Validate = check
	return s
}

// takeMetadata moves what a client may change of the metadata.
func takeMetadata(to, from *metav1.ObjectMeta) {
	to.Labels, to.Annotations, to.Finalizers, to.OwnerReferences = from.Labels, from.Annotations, from.Finalizers, from.OwnerReferences
}
