package core

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// eachContainer yields the containers of a Pod with their paths: init containers,
// containers, ephemeral ones. The paths are below that of the spec; nil: they are
// nil.
func eachContainer(spec *corev1.PodSpec, path *field.Path) iter.Seq2[*corev1.Container, *field.Path] {
	at := func(name string, i int) *field.Path {
		if path == nil {
			return nil
		}
		return path.Child(name).Index(i)
	}
	return func(yield func(*corev1.Container, *field.Path) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i], at("initContainers", i)) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], at("containers", i)) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(c, at("ephemeralContainers", i)) {
				return
			}
		}
	}
}
