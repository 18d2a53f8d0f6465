package storage

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/core"
)

// How large parameters may be.
const (
	maxParameterBytes = 256 << 10
	maxParameters     = 512
)

// DefaultClass completes a StorageClass.
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

// ValidateClassUpdate checks the new object, and that nothing changed but whether
// volumes grow, how they are mounted, and where they may be.
func ValidateClassUpdate(c, old *storagev1.StorageClass) field.ErrorList {
	errs := ValidateClass(c)
	errs = append(errs, validation.ValidateImmutableField(c.Parameters, old.Parameters, field.NewPath("parameters"))...)
	errs = append(errs, validation.ValidateImmutableField(c.Provisioner, old.Provisioner, field.NewPath("provisioner"))...)
	errs = append(errs, validation.ValidateImmutableField(c.ReclaimPolicy, old.ReclaimPolicy, field.NewPath("reclaimPolicy"))...)
	return append(errs, validation.ValidateImmutableField(c.VolumeBindingMode, old.VolumeBindingMode, field.NewPath("volumeBindingMode"))...)
}

// WarnOfClass tells of labels of nodes that are on their way out.
func WarnOfClass(c, _ *storagev1.StorageClass) (all []string) {
	for i, t := range c.AllowedTopologies {
		for j, e := range t.MatchLabelExpressions {
			if text, ok := core.OldNodeLabels[e.Key]; ok {
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

// ValidateAttributesUpdate lets nothing of a VolumeAttributesClass change.
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
	for i, t := range all {
		at := path.Index(i).Child("matchLabelExpressions")
		for j, e := range t.MatchLabelExpressions {
			errs = append(errs, topologyValues(e, at.Index(j))...)
			for _, earlier := range t.MatchLabelExpressions[:j] {
				if earlier.Key == e.Key {
					errs = append(errs, field.Duplicate(at.Index(j).Child("key"), e.Key))
					break
				}
			}
		}
		same := 0
		for _, earlier := range all[:i] {
			if equality.Semantic.DeepEqual(valueSets(earlier), valueSets(t)) {
				same++
			}
		}
		if len(t.MatchLabelExpressions) == 0 {
			same += len(all) // on the wire it is like those that are still to come, too
		}
		for range same {
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
	for i, v := range e.Values {
		for _, earlier := range e.Values[:i] {
			if earlier == v {
				errs = append(errs, field.Duplicate(at.Index(i), v))
				break
			}
		}
	}
	return append(errs, metav1validation.ValidateLabelName(e.Key, path.Child("key"))...)
}

func valueSets(t corev1.TopologySelectorTerm) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, e := range t.MatchLabelExpressions {
		all[e.Key] = map[string]bool{}
		for _, v := range e.Values {
			all[e.Key][v] = true
		}
	}
	return all
}
