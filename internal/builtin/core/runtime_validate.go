package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateOverhead checks what a runtime takes for itself, which is as what a
// container is limited to.
func ValidateOverhead(list corev1.ResourceList, at *field.Path) field.ErrorList {
	r := podRules{spec: &corev1.PodSpec{}}
	r.resources(&corev1.ResourceRequirements{Limits: list}, at, (*Faults).containerResource)
	return r.List()
}

// ValidateTolerations checks which taints of nodes are not minded.
func ValidateTolerations(all []corev1.Toleration, at *field.Path) field.ErrorList {
	var f Faults
	f.tolerations(all, at)
	return f.List()
}
