package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// PreparePod sets the fields of a new Pod that only the server sets: its status, and selectors from
// the label keys.
func PreparePod(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podspec.QOSClass(&p.Spec)}
	if len(p.Spec.SchedulingGates) > 0 {
		p.Status.Conditions = []corev1.PodCondition{{
			Type:               corev1.PodScheduled,
			Status:             corev1.ConditionFalse,
			Reason:             corev1.PodReasonSchedulingGated,
			Message:            "Scheduling is blocked due to non-empty scheduling gates",
			LastTransitionTime: p.CreationTimestamp,
		}}
	}
	for t := range affinityTerms(p.Spec.Affinity) {
		mergeLabelKeys(t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn, p.Labels)
		mergeLabelKeys(t.LabelSelector, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn, p.Labels)
	}
	for i := range p.Spec.TopologySpreadConstraints {
		c := &p.Spec.TopologySpreadConstraints[i]
		mergeLabelKeys(c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn, p.Labels)
	}
}

// affinityTerms iterates over the terms that select other Pods: first the preferred ones, then the
// required ones.
func affinityTerms(a *corev1.Affinity) func(yield func(*corev1.PodAffinityTerm) bool) {
	return func(yield func(*corev1.PodAffinityTerm) bool) {
		if a == nil {
			return
		}
		each := func(preferred []corev1.WeightedPodAffinityTerm, required []corev1.PodAffinityTerm) bool {
			for i := range preferred {
				if !yield(&preferred[i].PodAffinityTerm) {
					return false
				}
			}
			for i := range required {
				if !yield(&required[i]) {
					return false
				}
			}
			return true
		}
		if p := a.PodAffinity; p != nil && !each(p.PreferredDuringSchedulingIgnoredDuringExecution, p.RequiredDuringSchedulingIgnoredDuringExecution) {
			return
		}
		if p := a.PodAntiAffinity; p != nil {
			each(p.PreferredDuringSchedulingIgnoredDuringExecution, p.RequiredDuringSchedulingIgnoredDuringExecution)
		}
	}
}

// mergeLabelKeys adds the Pod's own labels with the keys to a selector. A nil selector selects
// nothing and stays nil.
func mergeLabelKeys(s *metav1.LabelSelector, keys []string, op metav1.LabelSelectorOperator, labels map[string]string) {
	if s == nil {
		return
	}
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
		}
	}
}

// PreparePodUpdate restores fields that admission set and the client left out.
func PreparePodUpdate(p, old *corev1.Pod) (changed bool) {
	if p.Spec.Priority == nil && old.Spec.Priority != nil {
		p.Spec.Priority, changed = old.Spec.Priority, true
	}
	if p.Spec.PreemptionPolicy == nil && old.Spec.PreemptionPolicy != nil {
		p.Spec.PreemptionPolicy, changed = old.Spec.PreemptionPolicy, true
	}
	return podspec.DefaultTolerations(p) || changed
}

// SetPodStatus sets the subresource "status", and metadata except for the owner references. It
// keeps fields that only the server sets if the client left them out.
func SetPodStatus(p, sent *corev1.Pod) {
	old := p.Status
	p.Status = sent.Status
	p.Labels, p.Annotations, p.Finalizers = sent.Labels, sent.Annotations, sent.Finalizers
	if !slices.ContainsFunc(volumeMountStatuses(&old), func(m *corev1.VolumeMountStatus) bool { return m.VolumeStatus != nil }) {
		for _, m := range volumeMountStatuses(&p.Status) { // an alpha field
			m.VolumeStatus = nil
		}
	}
	if len(old.NodeAllocatableResourceClaimStatuses) == 0 { // also an alpha field
		p.Status.NodeAllocatableResourceClaimStatuses = nil
	}
	if len(old.VolumeHealth) == 0 { // and this one
		p.Status.VolumeHealth = nil
	}
	keepClaims(&p.Status, &old)
	check.SetIfZero(&p.Status.QOSClass, old.QOSClass)
	check.SetIfZero(&p.Status.ObservedGeneration, old.ObservedGeneration)
	seen := map[corev1.PodConditionType]int{}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		check.SetIfZero(&c.ObservedGeneration, nthGeneration(old.Conditions, c.Type, seen[c.Type]))
		seen[c.Type]++
	}
}

// keepClaims keeps the parts of a status that are about claims if they are absent: clients that do not know the fields omit
// them. An empty list removes a list.
func keepClaims(s, old *corev1.PodStatus) {
	if s.ResourceClaimStatuses == nil {
		s.ResourceClaimStatuses = old.ResourceClaimStatuses
	}
	if s.ExtendedResourceClaimStatus == nil {
		s.ExtendedResourceClaimStatus = old.ExtendedResourceClaimStatus
	}
	if s.NodeAllocatableResourceClaimStatuses == nil {
		s.NodeAllocatableResourceClaimStatuses = old.NodeAllocatableResourceClaimStatuses
	}
}

// volumeMountStatuses returns the statuses of the mounts of all containers.
func volumeMountStatuses(s *corev1.PodStatus) (all []*corev1.VolumeMountStatus) {
	for _, containers := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range containers {
			for j := range containers[i].VolumeMounts {
				all = append(all, &containers[i].VolumeMounts[j])
			}
		}
	}
	return all
}

// nthGeneration returns the observedGeneration of the nth condition of a type. A type may occur
// several times.
func nthGeneration(all []corev1.PodCondition, t corev1.PodConditionType, n int) int64 {
	for i := range all {
		if all[i].Type != t {
			continue
		}
		if n == 0 {
			return all[i].ObservedGeneration
		}
		n--
	}
	return 0
}
