package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// eachContainer iterates over the containers of a Pod with their paths: init containers,
// containers, ephemeral containers. At is the path of the spec.
func eachContainer(spec *corev1.PodSpec, at lazyPath) iter.Seq2[*corev1.Container, lazyPath] {
	return func(yield func(*corev1.Container, lazyPath) bool) {
		for i := range spec.InitContainers {
			if !yield(&spec.InitContainers[i], at.Child("initContainers").Index(i)) {
				return
			}
		}
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], at.Child("containers").Index(i)) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			c := (*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
			if !yield(c, at.Child("ephemeralContainers").Index(i)) {
				return
			}
		}
	}
}
