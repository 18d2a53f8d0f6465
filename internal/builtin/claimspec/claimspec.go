// Package claimspec has the rules of the spec of a PersistentVolumeClaim, which is in a claim, in
// an ephemeral volume of a Pod, and in a StatefulSet.
package claimspec

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var accessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}

// VolumeModes are the allowed volume modes.
var VolumeModes = []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}

// ValidateTemplate checks the claim template of an ephemeral volume.
func ValidateTemplate(errs *check.Errors, t *corev1.PersistentVolumeClaimTemplate, at *field.Path) {
	errs.Add(ValidateTemplateMeta(&t.ObjectMeta, at.Child("metadata"))...)
	errs.Add(Validate(&t.Spec, nil, at.Child("spec"))...)
}

// ValidateTemplateMeta checks the metadata of a claim template: only labels and annotations are
// allowed.
func ValidateTemplateMeta(m *metav1.ObjectMeta, meta *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(m.Annotations, meta.Child("annotations"))
	errs = append(errs, check.Labels(m.Labels, meta.Child("labels"))...)
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "Annotations" && name != "Labels" && !v.Field(i).IsZero() {
			errs = append(errs, field.Forbidden(meta.Child(lowerFirst(name)), "cannot be set"))
		}
	}
	return errs
}

func lowerFirst(name string) string { return string(name[0]|0x20) + name[1:] }

// Validate checks the spec of a claim. Old is the spec before an update, nil for a new
// claim.
func Validate(spec, old *corev1.PersistentVolumeClaimSpec, path *field.Path) (errs field.ErrorList) {
	if old == nil {
		old = &corev1.PersistentVolumeClaimSpec{}
	}
	modes := path.Child("accessModes")
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(modes, "at least 1 access mode is required"))
	}
	errs = append(errs, check.Selector(spec.Selector, old.Selector, path.Child("selector"))...)
	errs = append(errs, ValidateAccessModes(spec.AccessModes, modes)...)
	size, at := spec.Resources.Requests, path.Child("resources").Key(string(corev1.ResourceStorage))
	if q, ok := size[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(at, ""))
	} else {
		errs = append(errs, check.Positive(q, at)...)
	}
	if n := spec.StorageClassName; n != nil && *n != "" {
		errs = append(errs, check.DNSSubdomain(*n, path.Child("storageClassName"))...)
	}
	if spec.VolumeMode != nil {
		errs = append(errs, check.OneOf(*spec.VolumeMode, VolumeModes, path.Child("volumeMode"))...)
	}
	errs = append(errs, dataSources(spec, old, path)...)
	if n := spec.VolumeAttributesClassName; n != nil && *n != "" {
		errs = append(errs, check.DNSSubdomain(*n, path.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// dataSources checks the data sources of a claim.
func dataSources(spec, old *corev1.PersistentVolumeClaimSpec, path *field.Path) (errs field.ErrorList) {
	anyGroup := old.DataSource != nil && old.DataSource.APIGroup != nil || old.DataSourceRef != nil && old.DataSourceRef.APIGroup != nil
	validate := func(group *string, kind, name string, at *field.Path) {
		if name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		if kind == "" {
			errs = append(errs, field.Required(at.Child("kind"), ""))
		}
		if (group == nil || *group == "") && kind != "PersistentVolumeClaim" {
			errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
		}
		if group != nil && *group != "" && !anyGroup {
			errs = append(errs, check.DNSSubdomain(*group, at.Child("apiGroup"))...)
		}
	}
	s, r := spec.DataSource, spec.DataSourceRef
	if s != nil {
		validate(s.APIGroup, s.Kind, s.Name, path.Child("dataSource"))
	}
	if r == nil {
		return errs
	}
	validate(r.APIGroup, r.Kind, r.Name, path.Child("dataSourceRef"))
	elsewhere := r.Namespace != nil && *r.Namespace != ""
	if elsewhere {
		for _, fault := range apivalidation.ValidateNamespaceName(*r.Namespace, false) {
			errs = append(errs, field.Invalid(path.Child("dataSourceRef", "namespace"), *r.Namespace, fault))
		}
	}
	switch {
	case s == nil:
	case elsewhere:
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
	case !check.Equal(s.APIGroup, r.APIGroup) || s.Kind != r.Kind || s.Name != r.Name:
		errs = append(errs, field.Invalid(path, path.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

// ValidateAccessModes checks the access modes of a claim or a volume.
func ValidateAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) (errs field.ErrorList) {
	var pod, other bool
	for _, m := range modes {
		known := check.OneOf(m, accessModes, at)
		errs = append(errs, known...)
		pod = pod || m == corev1.ReadWriteOncePod
		other = other || m != corev1.ReadWriteOncePod && len(known) == 0
	}
	if pod && other {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// Default sets the defaults of the spec of a claim.
func Default(c *corev1.PersistentVolumeClaimSpec) {
	check.SetIfNil(&c.VolumeMode, corev1.PersistentVolumeFilesystem)
	check.RoundUp(c.Resources.Limits)
	check.RoundUp(c.Resources.Requests)
}

// DefaultClaim sets the defaults of a claim: in its spec, and its phase.
func DefaultClaim(c *corev1.PersistentVolumeClaim) {
	check.SetIfZero(&c.Status.Phase, corev1.ClaimPending)
	Default(&c.Spec)
	check.RoundUp(c.Status.Capacity)
	check.RoundUp(c.Status.AllocatedResources)
}

// Warnings warns of sizes with a fraction of a byte.
func Warnings(c *corev1.PersistentVolumeClaimSpec, at *field.Path) (all []string) {
	for _, list := range [...]struct {
		name      string
		resources corev1.ResourceList
	}{{"requests", c.Resources.Requests}, {"limits", c.Resources.Limits}} {
		if q, ok := list.resources[corev1.ResourceStorage]; ok && q.MilliValue()%1000 != 0 {
			path := at.Child("resources", list.name).Key(string(corev1.ResourceStorage))
			all = append(all, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer", path, q.String()))
		}
	}
	return all
}
