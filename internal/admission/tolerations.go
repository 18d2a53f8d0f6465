package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// maxMerged is how many tolerations are compared with each other. Longer lists are kept as they
// are: redundant tolerations do no harm.
const maxMerged = 500

// mergeTolerations concatenates two lists without tolerations that another one covers. The
// first of equal tolerations stays.
func mergeTolerations(a, b []corev1.Toleration) []corev1.Toleration {
	all := slices.Concat(a, b)
	if len(all) > maxMerged {
		return all
	}
	var merged []corev1.Toleration
	for i := range all {
		t := &all[i]
		byKept := slices.ContainsFunc(merged, func(other corev1.Toleration) bool { return covers(&other, t) })
		byLater := slices.ContainsFunc(all[i+1:], func(other corev1.Toleration) bool {
			return covers(&other, t) && !equality.Semantic.DeepEqual(&other, t)
		})
		if !byKept && !byLater {
			merged = append(merged, *t)
		}
	}
	return merged
}

// covers reports whether a tolerates everything that t tolerates.
func covers(a, t *corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(a, t) {
		return true
	}
	anyKey := a.Key == "" && a.Operator == corev1.TolerationOpExists
	if t.Key != a.Key && !anyKey || t.Effect != a.Effect && a.Effect != "" {
		return false
	}
	if limit := a.TolerationSeconds; limit != nil && a.Effect == corev1.TaintEffectNoExecute {
		if t.TolerationSeconds == nil || *t.TolerationSeconds > *limit {
			return false
		}
	}
	switch a.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == a.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}
