package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// QOSClass returns the quality of service class of a Pod. It is Guaranteed if each container has
// limits for cpu and memory that equal its requests. It is BestEffort if no container has requests
// or limits for them. Pod-level resources replace those of the containers.
func QOSClass(spec *corev1.PodSpec) corev1.PodQOSClass {
	q := quality{limited: true}
	if hasPodResources(spec.Resources) {
		q.limited = q.add(spec.Resources) || len(spec.Resources.Limits) == 0
	} else {
		for _, part := range [...][]corev1.Container{spec.Containers, spec.InitContainers} {
			for i := range part {
				q.limited = q.add(&part[i].Resources) && q.limited
			}
		}
	}
	return q.class()
}

// hasPodResources reports whether there are Pod-level resources of names that Pods can have.
func hasPodResources(r *corev1.ResourceRequirements) bool {
	if r == nil {
		return false
	}
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			if ofPods(name) {
				return true
			}
		}
	}
	return false
}

// quality sums up cpu and memory.
type quality struct {
	requests, limits [2]resource.Quantity
	limited          bool // each part limits both
}

// add adds requests and limits, and reports whether both resources are limited.
func (q *quality) add(r *corev1.ResourceRequirements) bool {
	limited := true
	for i, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if request := r.Requests[name]; request.Sign() > 0 {
			q.requests[i].Add(request)
		}
		if limit := r.Limits[name]; limit.Sign() > 0 {
			q.limits[i].Add(limit)
		} else {
			limited = false
		}
	}
	return limited
}

func (q *quality) class() corev1.PodQOSClass {
	said, equal := false, true
	for i := range q.requests {
		said = said || !q.requests[i].IsZero() || !q.limits[i].IsZero()
		equal = equal && q.requests[i].Cmp(q.limits[i]) == 0
	}
	switch {
	case !said:
		return corev1.PodQOSBestEffort
	case q.limited && equal:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
