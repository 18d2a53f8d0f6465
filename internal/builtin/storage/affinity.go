package storage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumeAffinity checks which nodes reach a volume.
func validateVolumeAffinity(a *corev1.VolumeNodeAffinity, path *field.Path) (errs field.ErrorList) {
	at := path.Child("required")
	if a.Required == nil {
		return field.ErrorList{field.Required(at, "must specify required node constraints")}
	}
	at = at.Child("nodeSelectorTerms")
	if len(a.Required.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(at, "must have at least one node selector term")}
	}
	for i, t := range a.Required.NodeSelectorTerms {
		for j := range t.MatchExpressions {
			errs = append(errs, validateExpression(&t.MatchExpressions[j], at.Index(i).Child("matchExpressions").Index(j))...)
		}
		for j := range t.MatchFields {
			errs = append(errs, validateMatchField(&t.MatchFields[j], at.Index(i).Child("matchFields").Index(j))...)
		}
	}
	return errs
}

func validateExpression(r *corev1.NodeSelectorRequirement, path *field.Path) (errs field.ErrorList) {
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	errs = append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
	for i, v := range r.Values {
		for _, fault := range utilvalidation.IsValidLabelValue(v) {
			errs = append(errs, field.Invalid(values.Index(i), v, fault))
		}
	}
	return errs
}

func validateMatchField(r *corev1.NodeSelectorRequirement, path *field.Path) (errs field.ErrorList) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != "metadata.name" {
		return append(errs, field.Invalid(path.Child("key"), r.Key, "not a valid field selector key"))
	}
	for i, v := range r.Values {
		for _, fault := range validation.NameIsDNSSubdomain(v, false) {
			errs = append(errs, field.Invalid(path.Child("values").Index(i), v, fault))
		}
	}
	return errs
}

// newLabels are labels of nodes that have another name now.
var newLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

// sameAffinity tells whether a volume is reached from the same nodes as before; the
// new name of a label may stand where its old one stood.
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

// rename gives keys their new names where those stand now.
func rename(old, now []corev1.NodeSelectorRequirement) {
	for i := range min(len(old), len(now)) {
		if newLabels[old[i].Key] == now[i].Key {
			old[i].Key = now[i].Key
		}
	}
}

// oldLabels are labels that nodes should not be chosen by any more, and why.
var oldLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

func affinityWarnings(a *corev1.VolumeNodeAffinity) (all []string) {
	if a == nil || a.Required == nil {
		return nil
	}
	path := field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms")
	for i, t := range a.Required.NodeSelectorTerms {
		for j, r := range t.MatchExpressions {
			if text, ok := oldLabels[r.Key]; ok {
				all = append(all, path.Index(i).Child("matchExpressions").Index(j).Child("key").String()+": "+r.Key+" is "+text)
			}
		}
	}
	return all
}
