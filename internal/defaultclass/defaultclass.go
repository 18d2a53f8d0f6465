// Package defaultclass gives new claims and Ingresses that name no class the one that
// is marked as the default: as kube-apiserver's admission does, the newest one where
// several are.
package defaultclass

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

const storageClasses = "storageclasses.storage.k8s.io"

// Claims says what is done for PersistentVolumeClaims.
type Claims struct {
	Store *store.Store
	// NoDefault: new ones are not completed. AnyGrows: those may grow whose class does not
	// allow it.
	NoDefault, AnyGrows bool
}

// OfClaims completes new PersistentVolumeClaims with a StorageClass, and lets those grow
// whose class allows it. It is a registry.Reserve.
func OfClaims(r Claims) func(next, old runtime.Object, dryRun bool) (func(), error) {
	byDefault := newDefault(storageClasses, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
	return func(next, old runtime.Object, _ bool) (func(), error) {
		c := next.(*corev1.PersistentVolumeClaim)
		if before, ok := old.(*corev1.PersistentVolumeClaim); ok {
			if r.AnyGrows {
				return nil, nil
			}
			return nil, mayGrow(r.Store, c, before)
		}
		if r.NoDefault {
			return nil, nil
		}
		if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; old != nil || c.Spec.StorageClassName != nil || named {
			return nil, nil
		}
		class := byDefault.At(r.Store.Any())
		if class.name != "" {
			c.Spec.StorageClassName = &class.name
		}
		return nil, class.err
	}
}

// OfIngresses completes Ingresses with an IngressClass. It is a registry.Reserve.
func OfIngresses(s *store.Store) func(next, old runtime.Object, dryRun bool) (func(), error) {
	byDefault := newDefault("ingressclasses.networking.k8s.io", networkingv1.AnnotationIsDefaultIngressClass)
	return func(next, old runtime.Object, _ bool) (func(), error) {
		i := next.(*networkingv1.Ingress)
		if _, named := i.Annotations["kubernetes.io/ingress.class"]; old != nil || i.Spec.IngressClassName != nil || named {
			return nil, nil
		}
		class := byDefault.At(s.Any())
		if class.name != "" {
			i.Spec.IngressClassName = &class.name
		}
		return nil, class.err
	}
}

// mayGrow refuses a bound claim that wants more than before, unless its class can give
// it.
func mayGrow(s *store.Store, c, old *corev1.PersistentVolumeClaim) error {
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if size.Cmp(before) <= 0 || old.Status.Phase != corev1.ClaimBound { // validation refuses what is not bound
		return nil
	}
	refuse := func(why string) error {
		return apierrors.NewForbidden(corev1.Resource("persistentvolumeclaims"), c.Name, errors.New(why))
	}
	const unable = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	name := classOf(c)
	o := s.Any().Get(storageClasses, name)
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
