// Package core has the rules of the kinds of the core group: defaults, validation, warnings, and
// immutable fields. Package podspec has the rules that Pods share with the templates of other
// kinds.
//
// Its functions take typed objects in their stored version. Paths, reasons, messages and their
// order are those of kube-apiserver v1.37.
package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// Pods has the rules of Pods that depend on a feature gate.
type Pods struct {
	// EarlyResources sets the defaults of Pod-level resources with all others, so that the client owns them, and not after
	// admission, when all containers are known.
	EarlyResources bool
}

// Default sets the defaults of a Pod.
func (r Pods) Default(p *corev1.Pod) {
	DefaultPod(p)
	if r.EarlyResources {
		podspec.DefaultEarlyResources(&p.Spec)
	}
}

// Prepare is PreparePod. It sets the defaults of Pod-level resources.
func (r Pods) Prepare(p *corev1.Pod) {
	if !r.EarlyResources {
		podspec.DefaultResources(&p.Spec)
	}
	PreparePod(p)
}

// PrepareUpdate is PreparePodUpdate. Pod-level resources stay if the client left them out.
func (r Pods) PrepareUpdate(p, old *corev1.Pod) bool {
	changed := !r.EarlyResources && p.Spec.Resources == nil && old.Spec.Resources != nil
	if changed {
		p.Spec.Resources = old.Spec.Resources
	}
	return PreparePodUpdate(p, old) || changed
}

// Resize is ResizePod. Pod-level resources stay if the client left them out, and get the defaults of new ones.
func (r Pods) Resize(p, sent *corev1.Pod) {
	had := p.Spec.Resources
	ResizePod(p, sent)
	if r.EarlyResources {
		return
	}
	if p.Spec.Resources == nil && had != nil {
		p.Spec.Resources = had
	}
	podspec.DefaultResources(&p.Spec)
}

// DefaultPod sets the defaults of a Pod, but for those of Pod-level resources.
func DefaultPod(p *corev1.Pod) {
	podspec.DefaultPod(p)
	defaultPodIPs(&p.Status)
}

// defaultPodIPs makes podIP and podIPs agree. If they differ, podIP wins.
func defaultPodIPs(s *corev1.PodStatus) {
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

// PodWarnings warns about a new Pod. Updates of Pods have no warnings: controllers make most of
// them.
func PodWarnings(p, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	var list []string
	if faults := check.LabelFaults(p.Name); len(faults) > 0 {
		list = append(list, fmt.Sprintf("metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v", faults))
	}
	return append(list, podspec.Warnings(p)...)
}

// PodStatusWarnings warns about an update of a Pod's status.
func PodStatusWarnings(p, _ *corev1.Pod) (list []string) {
	for i := range p.Status.PodIPs {
		list = append(list, check.IPWarnings(p.Status.PodIPs[i].IP, field.NewPath("status", "podIPs").Index(i).Child("ip"))...)
	}
	for i := range p.Status.HostIPs {
		list = append(list, check.IPWarnings(p.Status.HostIPs[i].IP, field.NewPath("status", "hostIPs").Index(i).Child("ip"))...)
	}
	return list
}
