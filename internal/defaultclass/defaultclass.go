// Package defaultclass gives new claims and Ingresses that name no class the one that
// is marked as the default: as kube-apiserver's admission does, the newest one where
// several are.
package defaultclass

import (
	"bytes"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// marker is the end of the annotations that mark a class, before the quote that ends
// them.
var marker = []byte(`is-default-class"`)

// OfClaims completes PersistentVolumeClaims with a StorageClass. It is a
// registry.Reserve.
func OfClaims(s *store.Store) func(next, old runtime.Object, dryRun bool) (func(), error) {
	return func(next, old runtime.Object, _ bool) (func(), error) {
		c := next.(*corev1.PersistentVolumeClaim)
		if _, named := c.Annotations[corev1.BetaStorageClassAnnotation]; old != nil || c.Spec.StorageClassName != nil || named {
			return nil, nil
		}
		name, err := find(s, "storageclasses.storage.k8s.io", "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
		if name != "" {
			c.Spec.StorageClassName = &name
		}
		return nil, err
	}
}

// OfIngresses completes Ingresses with an IngressClass. It is a registry.Reserve.
func OfIngresses(s *store.Store) func(next, old runtime.Object, dryRun bool) (func(), error) {
	return func(next, old runtime.Object, _ bool) (func(), error) {
		i := next.(*networkingv1.Ingress)
		if _, named := i.Annotations["kubernetes.io/ingress.class"]; old != nil || i.Spec.IngressClassName != nil || named {
			return nil, nil
		}
		name, err := find(s, "ingressclasses.networking.k8s.io", networkingv1.AnnotationIsDefaultIngressClass)
		if name != "" {
			i.Spec.IngressClassName = &name
		}
		return nil, err
	}
}

// find returns the newest class that one of the annotations marks, the first by name
// of several that are as new; empty: there is none.
func find(s *store.Store, collection string, annotations ...string) (string, error) {
	var found *metav1.PartialObjectMetadata
	for o := range s.Any().Snapshot(collection).Scan("", "") { // sorted by name
		if !bytes.Contains(o.Value, marker) {
			continue
		}
		read, err := wire.Unmarshal(o.Value, func() runtime.Object { return new(metav1.PartialObjectMetadata) })
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
