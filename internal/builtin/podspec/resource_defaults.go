package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultResources sets the defaults of Pod-level resources if there are any: limits of huge pages are the sums of the
// containers; requests are the sums of the containers, or else the limits; a resource that each container limits is limited
// to the sum, or to the request if that is more.
func DefaultResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	defaultHugePages(spec)
	defaultRequests(spec)
	sums := sumOfContainers(spec, limitsOf)
	for name, request := range r.Requests {
		if !ofPods(name) || !limitedByAll(spec, name) {
			continue
		}
		limit := sums[name]
		if request.Cmp(limit) > 0 {
			limit = request
		}
		setMissing(&r.Limits, name, limit)
	}
}

// DefaultEarlyResources is DefaultResources as Kubernetes had it before 1.37: without limits of the resources that all
// containers limit, and without defaults for a Pod that has requests only.
func DefaultEarlyResources(spec *corev1.PodSpec) {
	r := spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	if defaultHugePages(spec); len(r.Limits) > 0 {
		defaultRequests(spec)
	}
}

// limitedByAll reports whether each container has a limit of a resource.
func limitedByAll(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	unlimited := func(c corev1.Container) bool {
		_, ok := c.Resources.Limits[name]
		return !ok
	}
	return len(spec.EphemeralContainers) == 0 && !slices.ContainsFunc(spec.Containers, unlimited) && !slices.ContainsFunc(spec.InitContainers, unlimited)
}

func defaultHugePages(spec *corev1.PodSpec) {
	r := spec.Resources
	for name, q := range sumOfContainers(spec, limitsOf) {
		_, requested := r.Requests[name]
		if check.IsHugePages(name) && !requested {
			setMissing(&r.Limits, name, q)
		}
	}
}

func defaultRequests(spec *corev1.PodSpec) {
	r := spec.Resources
	for name, q := range sumOfContainers(spec, requestsOf) {
		if ofPods(name) && mayOvercommit(name) {
			setMissing(&r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		if ofPods(name) {
			setMissing(&r.Requests, name, q)
		}
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
