package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// defaultPodResources sets the defaults of Pod-level resources if there are any: limits of huge
// pages are the sums of the containers; requests are the sums of the containers, or else the
// limits.
func defaultPodResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	limits, requests := r.Limits, r.Requests
	for name, q := range sumOfContainers(spec, limitsOf) {
		_, requested := requests[name]
		if check.IsHugePages(name) && !requested {
			setMissing(&limits, name, q)
		}
	}
	if len(limits) > 0 {
		r.Limits = limits
	} else {
		return
	}
	for name, q := range sumOfContainers(spec, requestsOf) {
		if ofPods(name) && mayOvercommit(name) {
			setMissing(&requests, name, q)
		}
	}
	for name, q := range limits {
		if ofPods(name) {
			setMissing(&requests, name, q)
		}
	}
	if len(requests) > 0 {
		r.Requests = requests
	}
}

func limitsOf(c *corev1.Container) corev1.ResourceList   { return c.Resources.Limits }
func requestsOf(c *corev1.Container) corev1.ResourceList { return c.Resources.Requests }

// sumOfContainers returns the resources that a Pod needs at once: the sum of those that run
// together, or the maximum of an init container if that is larger.
func sumOfContainers(spec *corev1.PodSpec, of func(*corev1.Container) corev1.ResourceList) corev1.ResourceList {
	sum, sidecars, first := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		addResources(sum, of(&spec.Containers[i]))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if IsSidecar(c) {
			addResources(sum, of(c))
			addResources(sidecars, of(c))
			maxResources(first, sidecars)
			continue
		}
		now := sidecars.DeepCopy()
		addResources(now, of(c))
		maxResources(first, now)
	}
	maxResources(sum, first)
	return sum
}

// IsSidecar reports whether an init container is a sidecar, which keeps running.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func addResources(to, more corev1.ResourceList) {
	for name, q := range more {
		sum, ok := to[name]
		if !ok {
			to[name] = q.DeepCopy()
			continue
		}
		sum.Add(q)
		to[name] = sum
	}
}

func maxResources(to, other corev1.ResourceList) {
	for name, q := range other {
		if have, ok := to[name]; !ok || q.Cmp(have) > 0 {
			to[name] = q.DeepCopy()
		}
	}
}

// ofPods reports whether a resource can be requested at Pod level.
func ofPods(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || check.IsHugePages(name)
}

// mayOvercommit reports whether the limit of a resource can exceed its request.
func mayOvercommit(name corev1.ResourceName) bool {
	return check.OfKubernetes(name) && !check.IsHugePages(name)
}

func setMissing(to *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if *to == nil {
		*to = corev1.ResourceList{}
	}
	if _, ok := (*to)[name]; !ok {
		(*to)[name] = q.DeepCopy()
	}
}
