package storage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/nodeselector"
)

// validateVolumeAffinity checks the node affinity of a volume.
func validateVolumeAffinity(a *corev1.VolumeNodeAffinity, path *field.Path) field.ErrorList {
	at := path.Child("required")
	if a.Required == nil {
		return field.ErrorList{field.Required(at, "must specify required node constraints")}
	}
	var errs check.Errors
	nodeselector.Validate(&errs, a.Required, at)
	return errs.List()
}

// newLabels maps deprecated node labels to their replacements.
var newLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// sameAffinity reports whether the node affinity is unchanged. A replacement of a deprecated label
// counts as equal.
func sameAffinity(a, old *corev1.VolumeNodeAffinity) bool {
	if a == nil || a.Required == nil || old.Required == nil {
		return equality.Semantic.DeepEqual(a, old)
	}
	old = old.DeepCopy()
	for i, t := range old.Required.NodeSelectorTerms {
		if i == len(a.Required.NodeSelectorTerms) {
			break
		}
		rename(t.MatchExpressions, a.Required.NodeSelectorTerms[i].MatchExpressions)
		rename(t.MatchFields, a.Required.NodeSelectorTerms[i].MatchFields)
	}
	return equality.Semantic.DeepEqual(a, old)
}

// rename replaces deprecated keys that now has replaced, too.
func rename(old, now []corev1.NodeSelectorRequirement) {
	for i := range min(len(old), len(now)) {
		if newLabels[old[i].Key] == now[i].Key {
			old[i].Key = now[i].Key
		}
	}
}

func affinityWarnings(a *corev1.VolumeNodeAffinity) []string {
	if a == nil || a.Required == nil {
		return nil
	}
	return nodeselector.Warnings(a.Required, field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms"))
}
