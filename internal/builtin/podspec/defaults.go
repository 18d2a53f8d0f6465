package podspec

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultPod sets the defaults of a Pod's spec, without those of DefaultResources, and removes annotations that kubelets no
// longer read.
func DefaultPod(p *corev1.Pod) {
	spec := &p.Spec
	requestLimits(spec.Containers)
	requestLimits(spec.InitContainers)
	check.SetIfNil(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if spec.HostNetwork {
		defaultHostPorts(spec.Containers)
		defaultHostPorts(spec.InitContainers)
	}
	defaultSpec(spec)
	p.Annotations = dropInitAnnotations(p.Annotations)
	if t := spec.TerminationGracePeriodSeconds; *t < 0 {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
}

// DefaultTemplate sets the defaults of a workload's template.
func DefaultTemplate(t *corev1.PodTemplateSpec) {
	defaultSpec(&t.Spec)
	t.Annotations = dropInitAnnotations(t.Annotations)
}

// defaultSpec sets the defaults that Pods and templates share.
func defaultSpec(spec *corev1.PodSpec) {
	check.SetIfZero(&spec.DNSPolicy, corev1.DNSClusterFirst)
	check.SetIfZero(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	check.SetIfZero(&spec.SchedulerName, corev1.DefaultSchedulerName)
	check.SetIfNil(&spec.SecurityContext, corev1.PodSecurityContext{})
	check.SetIfNil(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	// The field serviceAccount is deprecated; serviceAccountName wins.
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		defaultEphemeral(&spec.EphemeralContainers[i])
	}
	check.RoundUp(spec.Overhead)
	if spec.Resources != nil {
		check.RoundUp(spec.Resources.Limits)
		check.RoundUp(spec.Resources.Requests)
	}
}

// initAnnotations are annotations for init containers that the field has replaced.
var initAnnotations = [...]string{
	"pod.beta.kubernetes.io/init-containers",
	"pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses",
	"pod.alpha.kubernetes.io/init-container-statuses",
}

// dropInitAnnotations removes them, so that no old kubelet uses them.
func dropInitAnnotations(all map[string]string) map[string]string {
	for _, name := range initAnnotations {
		if _, ok := all[name]; ok {
			all = maps.Clone(all)
			for _, name := range initAnnotations {
				delete(all, name)
			}
			return all
		}
	}
	return all
}

// requestLimits sets a missing request to the limit.
func requestLimits(all []corev1.Container) {
	for i := range all {
		r := &all[i].Resources
		if r.Limits == nil {
			continue
		}
		if r.Requests == nil {
			r.Requests = make(corev1.ResourceList, len(r.Limits))
		}
		for name, q := range r.Limits {
			if _, ok := r.Requests[name]; !ok {
				r.Requests[name] = q.DeepCopy()
			}
		}
	}
}

// defaultHostPorts sets the default host ports of containers in the host network.
func defaultHostPorts(all []corev1.Container) {
	for i := range all {
		for j := range all[i].Ports {
			check.SetIfZero(&all[i].Ports[j].HostPort, all[i].Ports[j].ContainerPort)
		}
	}
}
