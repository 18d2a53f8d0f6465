// Package defaultclass gives new claims and Ingresses that name no class the one that
// is marked as the default: as kube-apiserver's admission does, the newest one where
// several are.
package defaultclass

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

const (
	claims         = "persistentvolumeclaims"
	storageClasses = "storageclasses.storage.k8s.io"
)

// StorageClass gives new claims that name no class the default one.
func StorageClass() registry.Plugin {
	byDefault := newDefault(storageClasses, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
	return registry.Plugin{Handles: registry.Objects(claims, admissionv1.Create), Mutate: func(_ context.Context, a *registry.Attributes) error {
		c := a.Object.(*corev1.PersistentVolumeClaim)
		if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; c.Spec.StorageClassName != nil || named {
			return nil
		}
		class := byDefault.At(a.State)
		if class.name != "" {
			c.Spec.StorageClassName = &class.name
		}
		return class.err
	}}
}

// IngressClass gives new Ingresses that name no class the default one.
func IngressClass() registry.Plugin {
	byDefault := newDefault("ingressclasses.networking.k8s.io", networkingv1.AnnotationIsDefaultIngressClass)
	return registry.Plugin{Handles: registry.Objects("ingresses.networking.k8s.io", admissionv1.Create), Mutate: func(_ context.Context, a *registry.Attributes) error {
		i := a.Object.(*networkingv1.Ingress)
		if _, named := i.Annotations["kubernetes.io/ingress.class"]; i.Spec.IngressClassName != nil || named {
			return nil
		}
		class := byDefault.At(a.State)
		if class.name != "" {
			i.Spec.IngressClassName = &class.name
		}
		return class.err
	}}
}

// Resize rejects the growth of a claim whose class does not allow expansion.
func Resize() registry.Plugin {
	return registry.Plugin{Handles: registry.Objects(claims, admissionv1.Update), Validate: func(_ context.Context, a *registry.Attributes) error {
		return mayGrow(a.State, a.Object.(*corev1.PersistentVolumeClaim), a.Old.(*corev1.PersistentVolumeClaim))
	}}
}

// mayGrow rejects a larger request of a bound claim whose class does not allow expansion.
func mayGrow(s *store.State, c, old *corev1.PersistentVolumeClaim) error {
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(before) <= 0 || old.Status.Phase != corev1.ClaimBound { // validation rejects the growth of other claims
		return nil
	}
	refuse := func(why string) error {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), c.Name, errors.New(why))
	}
	const unable = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	name := classOf(c)
	o := s.Get(storageClasses, name)
	if name == "" || name != classOf(old) || o == nil {
		return refuse(unable)
	}
	read, err := wire.Unmarshal(o.Bytes(), func() runtime.Object { return new(storagev1.StorageClass) })
	if err != nil {
		return fmt.Errorf("reading the StorageClass %s: %w", o.Key, err)
	}
	if allows := read.(*storagev1.StorageClass).AllowVolumeExpansion; allows == nil || !*allows {
		return refuse(unable)
	}
	return nil
}

// classOf is the class that a claim names, in either way.
func classOf(c *corev1.PersistentVolumeClaim) string {
	if name, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}
