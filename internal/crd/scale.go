package crd

import (
	"context"
	"fmt"
	"math"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// scaleOf returns the subresource "scale" of a version.
func scaleOf(v *version) resource.Subresource {
	scale := v.Subresources.Scale
	exchange := builtin.CustomScale()
	return resource.Subresource{
		Name: "scale", Kind: exchange.GroupVersionKind(), Verbs: statusVerbs, Exchange: exchange,
		Replicas: steps(scale.SpecReplicasPath),
		View: func(o runtime.Object, of resource.Purpose) (runtime.Object, error) {
			return showScale(scale, o.(*Object), of)
		},
		Set: func(o, sent runtime.Object) error { return setScale(scale, o.(*Object), sent.(*autoscalingv1.Scale)) },
		Validate: func(ctx context.Context, o, old runtime.Object) field.ErrorList {
			return v.validateUpdate(ctx, o.(*Object), old.(*Object), false)
		},
	}
}

// noReplicas stands for absent replicas in the Scale that a patch changes. kube-apiserver uses the same
// number.
const noReplicas = math.MinInt32

func showScale(scale *apiextensionsv1.CustomResourceSubresourceScale, o *Object, of resource.Purpose) (runtime.Object, error) {
	wanted, ok, err := unstructured.NestedInt64(o.Members, steps(scale.SpecReplicasPath)...)
	if err != nil {
		return nil, err
	}
	switch {
	case !ok && of == resource.ForPatch:
		wanted = noReplicas
	case !ok && of == resource.ForRead:
		return nil, apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", scale.SpecReplicasPath))
	}
	observed, _, err := unstructured.NestedInt64(o.Members, steps(scale.StatusReplicasPath)...)
	if err != nil {
		return nil, err
	}
	made := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, CreationTimestamp: o.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(wanted)},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(observed)},
	}
	if scale.LabelSelectorPath != nil {
		made.Status.Selector, _, err = unstructured.NestedString(o.Members, steps(*scale.LabelSelectorPath)...)
	}
	return made, err
}

func setScale(scale *apiextensionsv1.CustomResourceSubresourceScale, o *Object, sent *autoscalingv1.Scale) error {
	if sent.Spec.Replicas == noReplicas {
		return apierrors.NewBadRequest(fmt.Sprintf("the spec replicas field %q cannot be empty", scale.SpecReplicasPath))
	}
	if o.Members == nil {
		o.Members = map[string]any{}
	}
	return unstructured.SetNestedField(o.Members, int64(sent.Spec.Replicas), steps(scale.SpecReplicasPath)...)
}
