package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// PreparePod sets in a new Pod what only the server may set: its status, and the
// selectors that follow from its labels.
func PreparePod(p *corev1.Pod) {
	p.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: QOSClass(&p.Spec)}
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

// affinityTerms yields the terms that select other Pods: those that are preferred
// before those that are required.
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

// mergeLabelKeys adds to a selector what the Pod itself has for the keys. A selector
// that is not there selects nothing, and stays so.
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

// PreparePodUpdate puts back what admission gave a Pod, where the client left it
// out.
func PreparePodUpdate(p, old *corev1.Pod) {
	if p.Spec.Priority == nil {
		p.Spec.Priority = old.Spec.Priority
	}
	if p.Spec.PreemptionPolicy == nil {
		p.Spec.PreemptionPolicy = old.Spec.PreemptionPolicy
	}
	DefaultTolerations(p)
}

// toleratedSeconds is how long a Pod stays on a node that does not answer.
const toleratedSeconds = 300

// DefaultTolerations keeps a Pod for a while on a node that is not ready.
func DefaultTolerations(p *corev1.Pod) {
	had := p.Spec.Tolerations
	for _, key := range [...]string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(had, key) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
				TolerationSeconds: ptr.To[int64](toleratedSeconds),
			})
		}
	}
}

func tolerates(all []corev1.Toleration, key string) bool {
	return slices.ContainsFunc(all, func(t corev1.Toleration) bool {
		return (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "")
	})
}

// SetPodStatus is the subresource status: beside the status it changes metadata, but
// for the owners. What only the server sets stays where the client left it out.
func SetPodStatus(p, sent *corev1.Pod) {
	old := p.Status
	p.Status = sent.Status
	p.Labels, p.Annotations, p.Finalizers = sent.Labels, sent.Annotations, sent.Finalizers
	or(&p.Status.QOSClass, old.QOSClass)
	or(&p.Status.ObservedGeneration, old.ObservedGeneration)
	seen := map[corev1.PodConditionType]int{}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		or(&c.ObservedGeneration, nthGeneration(old.Conditions, c.Type, seen[c.Type]))
		seen[c.Type]++
	}
}

// nthGeneration is that of the nth condition of a type: a type may stand twice.
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

// SyncAppArmor moves what annotations of a new Pod say of AppArmor into the fields
// that have it now. It returns warnings.
func SyncAppArmor(p *corev1.Pod) []string {
	if len(p.Annotations) == 0 || isWindows(&p.Spec) {
		return nil
	}
	var ofPod *corev1.AppArmorProfile
	if p.Spec.SecurityContext != nil {
		ofPod = p.Spec.SecurityContext.AppArmorProfile
	}
	var warnings []string
	for c := range eachContainer(&p.Spec, place{unread: true}) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		annotation, ok := p.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			continue
		}
		profile := appArmorProfile(annotation)
		if profile != nil && equality.Semantic.DeepEqual(profile, ofPod) {
			continue
		}
		if profile != nil {
			if c.SecurityContext == nil {
				c.SecurityContext = &corev1.SecurityContext{}
			}
			c.SecurityContext.AppArmorProfile = profile
		}
		warnings = append(warnings, fmt.Sprintf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, field.NewPath("metadata", "annotations").Key(key)))
	}
	return warnings
}

// appArmorProfile is what an annotation says, nil when it makes no sense.
func appArmorProfile(annotation string) *corev1.AppArmorProfile {
	local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case isLocal && local != "" && local == strings.TrimSpace(local) && len(local) <= maxLocalProfile:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &local}
	}
	return nil
}

// maxLocalProfile is how long the name of a profile on the node may be, in bytes:
// that of a path.
const maxLocalProfile = 4095

func isWindows(spec *corev1.PodSpec) bool { return spec.OS != nil && spec.OS.Name == corev1.Windows }
