// Package defaultclass gives new claims and Ingresses that name no class the one that
// is marked as the default: as kube-apiserver's admission does, the newest one where
// several are.
package defaultclass

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// marker is the end of the annotations that mark a class, before the quote that ends
// them.
var marker = []byte(`is-default-class"`)

const claims = "persistentvolumeclaims"

// StorageClass gives new claims that name no class the default one.
func StorageClass() registry.Plugin {
	return registry.Plugin{Handles: to(claims, admissionv1.Create), Mutate: func(_ context.Context, a *registry.Attributes) error {
		c := a.Object.(*corev1.PersistentVolumeClaim)
		if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; c.Spec.StorageClassName != nil || named {
			return nil
		}
		name, err := find(a.State, "storageclasses.storage.k8s.io", "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
		if name != "" {
			c.Spec.StorageClassName = &name
		}
		return err
	}}
}

// IngressClass gives new Ingresses that name no class the default one.
func IngressClass() registry.Plugin {
	return registry.Plugin{Handles: to("ingresses.networking.k8s.io", admissionv1.Create), Mutate: func(_ context.Context, a *registry.Attributes) error {
		i := a.Object.(*networkingv1.Ingress)
		if _, named := i.Annotations["kubernetes.io/ingress.class"]; i.Spec.IngressClassName != nil || named {
			return nil
		}
		name, err := find(a.State, "ingressclasses.networking.k8s.io", networkingv1.AnnotationIsDefaultIngressClass)
		if name != "" {
			i.Spec.IngressClassName = &name
		}
		return err
	}}
}

// Resize refuses that claims grow whose class does not allow it.
func Resize() registry.Plugin {
	return registry.Plugin{Handles: to(claims, admissionv1.Update), Validate: func(_ context.Context, a *registry.Attributes) error {
		return mayGrow(a.State, a.Object.(*corev1.PersistentVolumeClaim), a.Old.(*corev1.PersistentVolumeClaim))
	}}
}

func to(collection string, operation admissionv1.Operation) func(*store.State, registry.Target, admissionv1.Operation) bool {
	return func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
		return t.Type.Collection == collection && t.Subresource == "" && o == operation
	}
}

// mayGrow refuses a bound claim that wants more than before, unless its class can give
// it.
func mayGrow(s *store.State, c, old *corev1.PersistentVolumeClaim) error {
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(before) <= 0 || old.Status.Phase != corev1.ClaimBound { // validation refuses what is not bound
		return nil
	}
	refuse := func(why string) error {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), c.Name, errors.New(why))
	}
	const unable = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	name := classOf(c)
	o := s.Get("storageclasses.storage.k8s.io", name)
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

// find returns the newest class that one of the annotations marks, the first by name
// of several that are as new; empty: there is none.
func find(s *store.State, collection string, annotations ...string) (string, error) {
	var found *metav1.PartialObjectMetadata
	for o := range s.Snapshot(collection).Scan("", "") { // sorted by name
		if !bytes.Contains(o.Bytes(), marker) {
			continue
		}
		read, err := wire.Unmarshal(o.Bytes(), func() runtime.Object { return new(metav1.PartialObjectMetadata) })
		if err != nil {
			return "", fmt.Errorf("reading %s %s: %w", collection, o.Key, err)
		}
		class := read.(*metav1.PartialObjectMetadata)
		if isMarked(class, annotations) && (found == nil || found.CreationTimestamp.Before(&class.CreationTimestamp)) {
			found = class
		}
	}
	if found == nil {
		return "", nil
	}
	return found.Name, nil
}

func isMarked(class *metav1.PartialObjectMetadata, annotations []string) bool {
	for _, a := range annotations {
		if class.Annotations[a] == "true" {
			return true
		}
	}
	return false
}
