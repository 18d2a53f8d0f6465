package storage

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/nodeselector"
)

// The limits of parameters.
const (
	maxParameterBytes = 256 << 10
	maxParameters     = 512
)

// DefaultClass sets the defaults of a StorageClass.
func DefaultClass(c *storagev1.StorageClass) {
	if c.ReclaimPolicy == nil {
		c.ReclaimPolicy = ptr(corev1.PersistentVolumeReclaimDelete)
	}
	if c.VolumeBindingMode == nil {
		c.VolumeBindingMode = ptr(storagev1.VolumeBindingImmediate)
	}
}

// ValidateClass checks a StorageClass.
func ValidateClass(c *storagev1.StorageClass) field.ErrorList {
	errs := provisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, parameters(c.Parameters, true, field.NewPath("parameters"))...)
	if p := c.ReclaimPolicy; p != nil && *p != "" {
		errs = append(errs, check.OneOf(*p, []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain}, field.NewPath("reclaimPolicy"))...)
	}
	if m, at := c.VolumeBindingMode, field.NewPath("volumeBindingMode"); m == nil {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, check.OneOf(*m, []storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer}, at)...)
	}
	return append(errs, topologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
}

// ValidateClassUpdate checks the new object, and validates immutable fields. Mutable are
// allowVolumeExpansion, mountOptions and allowedTopologies.
func ValidateClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := ValidateClass(c)
	errs = append(errs, validation.ValidateImmutableField(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, validation.ValidateImmutableField(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, validation.ValidateImmutableField(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, validation.ValidateImmutableField(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

// ClassWarnings warns about deprecated node labels.
func ClassWarnings(c, _ *storagev1.StorageClass) (all []string) {
	for i, t := range c.AllowedTopologies {
		for j, e := range t.MatchLabelExpressions {
			if text, ok := nodeselector.DeprecatedLabels[e.Key]; ok {
				path := field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key")
				all = append(all, path.String()+": "+text)
			}
		}
	}
	return all
}

// ValidateAttributes checks a VolumeAttributesClass.
func ValidateAttributes(c *storagev1.VolumeAttributesClass) field.ErrorList {
	return append(provisioner(c.DriverName, field.NewPath("driverName")), parameters(c.Parameters, false, field.NewPath("parameters"))...)
}

// ValidateAttributesUpdate rejects any change of a VolumeAttributesClass.
func ValidateAttributesUpdate(c, old *storagev1.VolumeAttributesClass) (errs field.ErrorList) {
	if c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if !maps.Equal(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	return append(errs, ValidateAttributes(c)...)
}

func provisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return check.QualifiedName(strings.ToLower(name), path)
}

func parameters(all map[string]string, none bool, path *field.Path) (errs field.ErrorList) {
	if len(all) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	size := 0
	for k, v := range all {
		if k == "" {
			errs = append(errs, field.Invalid(path, k, "field can not be empty."))
		}
		size += len(k) + len(v)
	}
	if size > maxParameterBytes {
		errs = append(errs, field.TooLong(path, "", maxParameterBytes))
	}
	if !none && len(all) == 0 {
		errs = append(errs, field.Required(path, "must contain at least one key/value pair"))
	}
	return errs
}

func topologies(all []corev1.TopologySelectorTerm, path *field.Path) (errs field.ErrorList) {
	terms := map[string]int{} // how often each set of terms occurred
	for i, t := range all {
		at := path.Index(i).Child("matchLabelExpressions")
		var keys check.Seen[string]
		for j, e := range t.MatchLabelExpressions {
			errs = append(errs, topologyValues(e, at.Index(j))...)
			if keys.Again(e.Key) {
				errs = append(errs, field.Duplicate(at.Index(j).Child("key"), e.Key))
			}
		}
		sets := valueSets(t)
		same := terms[sets]
		terms[sets]++
		if len(t.MatchLabelExpressions) == 0 {
			same += len(all) // kube-apiserver also reports the ones that follow
		}
		// One error for each equal term, but at most maxSame: otherwise the errors would grow with
		// the square of the terms.
		for range min(same, maxSame) {
			errs = append(errs, field.Duplicate(at, ""))
		}
	}
	return errs
}

func topologyValues(e corev1.TopologySelectorLabelRequirement, path *field.Path) (errs field.ErrorList) {
	at := path.Child("values")
	if len(e.Values) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	var seen check.Seen[string]
	for i, v := range e.Values {
		if seen.Again(v) {
			errs = append(errs, field.Duplicate(at.Index(i), v))
		}
	}
	return append(errs, metav1validation.ValidateLabelName(e.Key, path.Child("key"))...)
}

// maxSame is the maximum number of errors of a term for terms that equal it.
const maxSame = 16

// valueSets returns the sorted keys and values of a term, without duplicates, as a unique text.
func valueSets(t corev1.TopologySelectorTerm) string {
	all := map[string][]string{} // the last expression of a key wins
	for _, e := range t.MatchLabelExpressions {
		values := append([]string{}, e.Values...)
		slices.Sort(values)
		all[e.Key] = slices.Compact(values)
	}
	text, err := json.Marshal(all)
	if err != nil { // strings can always be encoded
		panic(err)
	}
	return string(text)
}
