// Package core is what the kinds of the core group default, validate and warn
// about, and what the kinds of other groups share with them: pod templates,
// containers, volumes, label selectors, quantities, ports, names of resources.
//
// Its functions are of typed objects in their stored version. Paths, reasons,
// words and their order are those of kube-apiserver v1.36: rows X8, X9, X11.
package core

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// DefaultPod fills in what a client leaves out of a Pod.
func DefaultPod(p *corev1.Pod) {
	spec := &p.Spec
	requestLimits(spec.Containers)
	requestLimits(spec.InitContainers)
	defaultPodResources(spec)
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = ptr.To(corev1.DefaultEnableServiceLinks)
	}
	if spec.HostNetwork {
		portsOfHost(spec.Containers)
		portsOfHost(spec.InitContainers)
	}
	DefaultPodSpec(spec)
	p.Annotations = dropInitAnnotations(p.Annotations)
	if t := spec.TerminationGracePeriodSeconds; *t < 0 {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
	defaultPodIPs(&p.Status)
}

// DefaultPodTemplate fills in what a client leaves out of a PodTemplate.
func DefaultPodTemplate(t *corev1.PodTemplate) { DefaultTemplate(&t.Template) }

// DefaultTemplate fills in what a client leaves out of the template of a workload.
func DefaultTemplate(t *corev1.PodTemplateSpec) {
	DefaultPodSpec(&t.Spec)
	t.Annotations = dropInitAnnotations(t.Annotations)
}

// DefaultPodSpec fills in what a client leaves out, as far as Pods and templates
// have it in common.
func DefaultPodSpec(spec *corev1.PodSpec) {
	or(&spec.DNSPolicy, corev1.DNSClusterFirst)
	or(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	or(&spec.SchedulerName, corev1.DefaultSchedulerName)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds)
	}
	// Two names of one field: the newer one counts.
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
		DefaultEphemeral(&spec.EphemeralContainers[i])
	}
	spec.SchedulingGroup = nil // alpha
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
}

// or sets what is empty.
func or[T comparable](to *T, value T) {
	var empty T
	if *to == empty {
		*to = value
	}
}

// initAnnotations once held what are init containers now.
var initAnnotations = [...]string{
	"pod.beta.kubernetes.io/init-containers",
	"pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses",
	"pod.alpha.kubernetes.io/init-container-statuses",
}

// dropInitAnnotations takes them off, so that no old kubelet follows them.
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

// requestLimits: what is limited and not requested is requested in full.
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

// portsOfHost: a container in the host's network has its ports there.
func portsOfHost(all []corev1.Container) {
	for i := range all {
		for j := range all[i].Ports {
			or(&all[i].Ports[j].HostPort, all[i].Ports[j].ContainerPort)
		}
	}
}

// defaultPodIPs: podIP is the first of podIPs, and says more than they do.
func defaultPodIPs(s *corev1.PodStatus) {
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

// roundUp rounds amounts to thousandths.
func roundUp(all corev1.ResourceList) {
	for name, q := range all {
		q.RoundUp(resource.Milli)
		all[name] = q
	}
}
