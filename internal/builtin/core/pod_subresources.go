package core

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// SetEphemeral sets the subresource ephemeralcontainers.
func SetEphemeral(p, sent *corev1.Pod) { p.Spec.EphemeralContainers = sent.Spec.EphemeralContainers }

// ValidateEphemeral checks an update of ephemeralcontainers: they can only be added.
func ValidateEphemeral(p, old *corev1.Pod) field.ErrorList {
	if podspec.IsStatic(old.Annotations) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	r := podRules{spec: &p.Spec}
	podspec.ValidatePod(&r.Errors, p, old)
	r.annotationUpdates(p, old)
	at := field.NewPath("spec", "ephemeralContainers")
	next := make(map[string]*corev1.EphemeralContainer, len(p.Spec.EphemeralContainers))
	for i := range p.Spec.EphemeralContainers {
		next[p.Spec.EphemeralContainers[i].Name] = &p.Spec.EphemeralContainers[i]
	}
	for i := range old.Spec.EphemeralContainers {
		had := &old.Spec.EphemeralContainers[i]
		switch has := next[had.Name]; {
		case has == nil:
			r.Forbidden(at, "", fmt.Sprintf("existing ephemeral containers %q may not be removed\n", had.Name))
		case !equality.Semantic.DeepEqual(had, has):
			r.Forbidden(at, "", fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", had.Name, diff.Diff(check.Bare(had), check.Bare(has))))
		}
	}
	return r.List()
}

// ResizePod sets the subresource resize: the resources of the containers and of the Pod. If the
// containers differ, it sets the whole spec, which ValidateResize rejects.
func ResizePod(p, sent *corev1.Pod) {
	if len(p.Spec.Containers) != len(sent.Spec.Containers) || len(p.Spec.InitContainers) != len(sent.Spec.InitContainers) {
		p.Spec = sent.Spec
		return
	}
	p.Spec.Resources = sent.Spec.Resources
	p.Spec.Containers = resized(p.Spec.Containers, sent.Spec.Containers)
	p.Spec.InitContainers = resized(p.Spec.InitContainers, sent.Spec.InitContainers)
}

func resized(all, sent []corev1.Container) []corev1.Container {
	for i := range all {
		if all[i].Name != sent[i].Name {
			return sent
		}
	}
	for i := range all {
		all[i].Resources, all[i].ResizePolicy = sent[i].Resources, sent[i].ResizePolicy
	}
	return all
}

// ValidateResize checks an update of the subresource resize.
func ValidateResize(p, old *corev1.Pod) field.ErrorList {
	switch {
	case podspec.IsStatic(old.Annotations):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods cannot be resized")}
	case podspec.IsWindows(&old.Spec):
		return field.ErrorList{field.Forbidden(field.NewPath(""), "windows pods cannot be resized")}
	}
	r := podRules{spec: &p.Spec}
	podspec.ValidatePod(&r.Errors, p, old)
	at, class := field.NewPath("spec"), old.Status.QOSClass
	check.SetIfZero(&class, podspec.QOSClass(&old.Spec))
	if class != podspec.QOSClass(&p.Spec) {
		r.Invalid(at, "", p.Status.QOSClass, "Pod QOS Class may not change as a result of resizing")
	}
	if !nodeResizes(old) {
		r.Forbidden(at, "", "Pod running on node without support for resize")
	}
	next := p.Spec.DeepCopy()
	if hasAmounts(old.Spec.Resources) || hasAmounts(p.Spec.Resources) {
		r.resizeWhole(next, &old.Spec, at)
	}
	same := r.sameOrder(p.Spec.Containers, old.Spec.Containers, at, "containers")
	if !r.sameOrder(p.Spec.InitContainers, old.Spec.InitContainers, at, "initContainers") || !same {
		return r.List()
	}
	r.resizeContainers(next, old, at)
	if !equality.Semantic.DeepEqual(next.Volumes, old.Spec.Volumes) {
		r.Forbidden(at, "volumes", "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes feature gate is disabled")
	}
	if r.Len() == 0 && !equality.Semantic.DeepEqual(next, &old.Spec) {
		r.Forbidden(at, "", "only cpu and memory resources are mutable")
	}
	return r.List()
}

func hasAmounts(q *corev1.ResourceRequirements) bool {
	return q != nil && len(q.Requests)+len(q.Limits) > 0
}

// nodeResizes reports whether the node supports resizing, which the status of a running container
// shows. It is true for a Pod without one.
func nodeResizes(p *corev1.Pod) bool {
	for i := range p.Status.ContainerStatuses {
		if s := &p.Status.ContainerStatuses[i]; s.State.Running != nil {
			return s.Resources != nil
		}
	}
	return true
}

// resizeWhole checks the resources of the Pod, and restores those that a resize may change in next.
func (r *podRules) resizeWhole(next, old *corev1.PodSpec, at *field.Path) {
	if had, has := old.Resources, next.Resources; had != nil {
		if has == nil {
			r.Forbidden(at, "resources", "pod-level resources cannot be removed")
			return
		}
		if removesAny(has.Requests, had.Requests) {
			r.Forbidden(at.Child("resources"), "requests", "pod-level resource requests cannot be removed")
		}
		if removesAny(has.Limits, had.Limits) {
			r.Forbidden(at.Child("resources"), "limits", "pod-level resource limits cannot be removed")
		}
	}
	if q := next.Resources; q != nil {
		var had corev1.ResourceRequirements
		if old.Resources != nil {
			had = *old.Resources
		}
		q.Requests, q.Limits = unresized(q.Requests, had.Requests), unresized(q.Limits, had.Limits)
		if old.Resources == nil && !hasAmounts(q) && len(q.Claims) == 0 {
			next.Resources = nil
		}
	}
	if !equality.Semantic.DeepEqual(next.Resources, old.Resources) {
		r.Forbidden(at, "", "only cpu and memory resources are mutable at pod-level")
	}
}

// sameOrder checks that next has the containers of old, in their order.
func (r *podRules) sameOrder(next, old []corev1.Container, at *field.Path, name string) bool {
	start := r.Len()
	if len(next) != len(old) {
		r.Forbidden(at, name, name+" may not be added or removed on resize")
		return false
	}
	for i := range old {
		if next[i].Name != old[i].Name {
			r.Forbidden(at.Child(name).Index(i), "name", name+" may not be renamed or reordered on resize")
		}
	}
	return r.Len() == start
}

// resizeContainers checks the resources of the containers, and restores those that a resize may
// change in next.
func (r *podRules) resizeContainers(next *corev1.PodSpec, old *corev1.Pod, at *field.Path) {
	for i := range old.Spec.InitContainers {
		r.checkNoneRemoved(&next.InitContainers[i].Resources, &old.Spec.InitContainers[i].Resources, at.Child("initContainers").Index(i).Child("resources"))
	}
	for i := range old.Spec.Containers {
		r.checkNoneRemoved(&next.Containers[i].Resources, &old.Spec.Containers[i].Resources, at.Child("containers").Index(i).Child("resources"))
	}
	for i := range next.Containers {
		c, had := &next.Containers[i], &old.Spec.Containers[i]
		unresize(c, had)
		if !equality.Semantic.DeepEqual(c, had) {
			r.Forbidden(at, "", "only cpu and memory resources are mutable")
		}
	}
	for i := range next.InitContainers {
		c, had, at := &next.InitContainers[i], &old.Spec.InitContainers[i], at.Child("initContainers").Index(i)
		changed := !equality.Semantic.DeepEqual(c, had)
		unresize(c, had)
		if !equality.Semantic.DeepEqual(c, had) {
			r.Forbidden(at, "", "only cpu and memory resources for init or sidecar containers are mutable")
		}
		for _, p := range c.ResizePolicy {
			if changed && !podspec.IsSidecar(c) && p.RestartPolicy == corev1.RestartContainer {
				r.Forbidden(at, "", "non-sidecar init containers with a resize policy of RestartContainer cannot be resized")
			}
		}
	}
}

// checkNoneRemoved checks that no request or limit is removed.
func (r *podRules) checkNoneRemoved(next, old *corev1.ResourceRequirements, at *field.Path) {
	if removesAny(next.Requests, old.Requests) {
		r.Forbidden(at, "requests", "resource requests cannot be removed")
	}
	if removesAny(next.Limits, old.Limits) {
		r.Forbidden(at, "limits", "resource limits cannot be removed")
	}
}

func removesAny(next, old corev1.ResourceList) bool {
	for name := range old {
		if _, ok := next[name]; !ok {
			return true
		}
	}
	return false
}

// unresize restores the cpu and memory of a container.
func unresize(c, old *corev1.Container) {
	c.Resources = corev1.ResourceRequirements{
		Limits:   unresized(c.Resources.Limits, old.Resources.Limits),
		Requests: unresized(c.Resources.Requests, old.Resources.Requests),
		Claims:   c.Resources.Claims,
	}
}

func unresized(next, old corev1.ResourceList) corev1.ResourceList {
	if next == nil && old == nil {
		return nil
	}
	out := corev1.ResourceList{}
	maps.Copy(out, next)
	for _, name := range [...]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		delete(out, name)
		if q, ok := old[name]; ok {
			out[name] = q
		}
	}
	return out
}
