package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// selectorsOf returns the scope selectors of a quota. All of them must match.
func selectorsOf(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, scope := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: scope, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

func (k *kind) selected(by []corev1.ScopedResourceSelectorRequirement, o runtime.Object) bool {
	for i := range by {
		if k.inScope == nil || !k.inScope(&by[i], o) {
			return false
		}
	}
	return true
}

func podInScope(s *corev1.ScopedResourceSelectorRequirement, o runtime.Object) bool {
	p := o.(*corev1.Pod)
	switch s.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return isTerminating(p)
	case corev1.ResourceQuotaScopeNotTerminating:
		return !isTerminating(p)
	case corev1.ResourceQuotaScopeBestEffort:
		return isBestEffort(p)
	case corev1.ResourceQuotaScopeNotBestEffort:
		return !isBestEffort(p)
	case corev1.ResourceQuotaScopePriorityClass:
		var class []string
		if p.Spec.PriorityClassName != "" {
			class = []string{p.Spec.PriorityClassName}
		}
		return picks(s, class)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return reachesOut(p.Spec.Affinity)
	}
	return false
}

// isTerminating reports whether a Pod has a deadline.
func isTerminating(p *corev1.Pod) bool { return ptr.Deref(p.Spec.ActiveDeadlineSeconds, -1) >= 0 }

func isBestEffort(p *corev1.Pod) bool {
	class := p.Status.QOSClass
	if class == "" {
		class = podspec.QOSClass(&p.Spec)
	}
	return class == corev1.PodQOSBestEffort
}

// picks reports whether a selector matches an object with one of the values, or without a
// value.
func picks(s *corev1.ScopedResourceSelectorRequirement, values []string) bool {
	in := func(v string) bool { return slices.Contains(s.Values, v) }
	switch s.Operator {
	case corev1.ScopeSelectorOpExists:
		return len(values) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(values) == 0
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(values, in)
	case corev1.ScopeSelectorOpNotIn:
		return len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return !in(v) })
	}
	return false
}

// reachesOut reports whether an affinity refers to Pods of other namespaces.
func reachesOut(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	var terms []corev1.PodAffinityTerm
	weighted := func(all []corev1.WeightedPodAffinityTerm) {
		for _, t := range all {
			terms = append(terms, t.PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		terms = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		terms = append(terms, p.RequiredDuringSchedulingIgnoredDuringExecution...)
		weighted(p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return slices.ContainsFunc(terms, func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) != 0 || t.NamespaceSelector != nil })
}

func claimInScope(s *corev1.ScopedResourceSelectorRequirement, o runtime.Object) bool {
	if s.ScopeName != corev1.ResourceQuotaScopeVolumeAttributesClass {
		return false
	}
	c := o.(*corev1.PersistentVolumeClaim)
	var classes []string
	add := func(name string) {
		if name != "" {
			classes = append(classes, name)
		}
	}
	add(ptr.Deref(c.Spec.VolumeAttributesClassName, ""))
	add(ptr.Deref(c.Status.CurrentVolumeAttributesClassName, ""))
	if m := c.Status.ModifyVolumeStatus; m != nil {
		add(m.TargetVolumeAttributesClassName)
	}
	return picks(s, classes)
}

// required are the resources that each container must request or limit if a quota limits
// them.
var required = oneOf(corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory,
	corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory)

// podLacks describes which containers lack requests or limits that a quota requires; empty: none.
// Resources at the level of the Pod count for its containers.
func podLacks(names []corev1.ResourceName, o runtime.Object) string {
	p := o.(*corev1.Pod)
	if podresources.IsPodLevelResourcesSet(p) {
		return ""
	}
	missing := map[string][]string{}
	for _, all := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range all {
			said := compute(all[i].Resources.Requests, all[i].Resources.Limits)
			for _, name := range names {
				if _, ok := said[name]; !ok && required(name) {
					missing[string(name)] = append(missing[string(name)], all[i].Name)
				}
			}
		}
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		slices.Sort(missing[name])
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(missing[name]), ",")))
	}
	if len(parts) == 0 {
		return ""
	}
	return "must specify " + strings.Join(parts, "; ")
}
