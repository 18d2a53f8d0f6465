package builtin

import (
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/columns"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// scaleType is the type of the subresource "scale" of built-in kinds. All servers of a process
// share it, as they share the catalog. That is safe because it holds no state of a server, and
// nothing modifies it after relate, which runs once for the catalog.
var scaleType = sync.OnceValue(newScale)

// CustomScale returns the type of the subresource "scale" of custom kinds. It is shared as
// scaleType is, and differs from it only in the error for objects of other kinds.
var CustomScale = sync.OnceValue(func() *resource.Type {
	t := newScale()
	t.Strategy.Relation = func(schema.GroupVersionKind) resource.Relation { return resource.NotConverted }
	return t
})

func newScale() *resource.Type {
	return &resource.Type{
		Names:   resource.Names{Group: "autoscaling", Version: "v1", Kind: "Scale"},
		New:     object[autoscalingv1.Scale],
		Display: resource.Display{Columns: columns.Of(&autoscalingv1.Scale{})},
	}
}

// scaled is the part of an object that a Scale shows.
type scaled struct {
	meta     *metav1.ObjectMeta
	replicas **int32 // *replicas == nil: one, the kinds' default
	observed int32
	selector string
}

// scaleOf returns the subresource "scale" of a kind. Parts returns an object's part in it.
func scaleOf(parts func(runtime.Object) scaled) resource.Subresource {
	return resource.Subresource{
		Name: "scale", Verbs: getPatchUpdate, Exchange: scaleType(), Replicas: []string{"spec", "replicas"},
		View: func(o runtime.Object, _ resource.Purpose) (runtime.Object, error) { return parts(o).show(), nil },
		Set:  func(o, sent runtime.Object) error { return parts(o).set(sent.(*autoscalingv1.Scale)) },
	}
}

func (s scaled) show() *autoscalingv1.Scale {
	wanted := int32(1)
	if *s.replicas != nil {
		wanted = **s.replicas
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: s.meta.Name, Namespace: s.meta.Namespace, UID: s.meta.UID,
			ResourceVersion: s.meta.ResourceVersion, CreationTimestamp: s.meta.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: wanted},
		Status: autoscalingv1.ScaleStatus{Replicas: s.observed, Selector: s.selector},
	}
}

func (s scaled) set(sent *autoscalingv1.Scale) error {
	if n := sent.Spec.Replicas; n < 0 {
		return apierrors.NewInvalid(scaleType().GroupVersionKind().GroupKind(), sent.Name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), n, "must be greater than or equal to 0"),
		})
	}
	*s.replicas = &sent.Spec.Replicas
	return nil
}

// selectorText formats a selector as in a list's labelSelector parameter. It is empty if the
// selector is invalid.
func selectorText(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}

func deploymentScale(o runtime.Object) scaled {
	d := o.(*appsv1.Deployment)
	return scaled{&d.ObjectMeta, &d.Spec.Replicas, d.Status.Replicas, selectorText(d.Spec.Selector)}
}

func replicaSetScale(o runtime.Object) scaled {
	r := o.(*appsv1.ReplicaSet)
	return scaled{&r.ObjectMeta, &r.Spec.Replicas, r.Status.Replicas, selectorText(r.Spec.Selector)}
}

func statefulSetScale(o runtime.Object) scaled {
	s := o.(*appsv1.StatefulSet)
	return scaled{&s.ObjectMeta, &s.Spec.Replicas, s.Status.Replicas, selectorText(s.Spec.Selector)}
}

func replicationControllerScale(o runtime.Object) scaled {
	r := o.(*corev1.ReplicationController)
	return scaled{&r.ObjectMeta, &r.Spec.Replicas, r.Status.Replicas, labels.SelectorFromSet(r.Spec.Selector).String()}
}
