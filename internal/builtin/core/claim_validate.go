package core

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

var (
	accessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	volumeModes = []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}
)

// claimTemplate checks a claim that a Pod makes for itself.
func (f *Faults) claimTemplate(at *field.Path, t *corev1.PersistentVolumeClaimTemplate) {
	meta := at.Child("metadata")
	f.Add(apivalidation.ValidateAnnotations(t.Annotations, meta.Child("annotations"))...)
	f.Add(metav1validation.ValidateLabels(t.Labels, meta.Child("labels"))...)
	v := reflect.ValueOf(t.ObjectMeta)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if name != "Annotations" && name != "Labels" && !v.Field(i).IsZero() {
			f.Forbidden(meta, lowerFirst(name), "cannot be set")
		}
	}
	f.ClaimSpec(&t.Spec, at.Child("spec"))
}

func lowerFirst(name string) string { return string(name[0]|0x20) + name[1:] }

// ClaimSpec checks what a claim asks for.
func (f *Faults) ClaimSpec(c *corev1.PersistentVolumeClaimSpec, at *field.Path) {
	if len(c.AccessModes) == 0 {
		f.Required(at, "accessModes", "at least 1 access mode is required")
	}
	f.LabelSelector(c.Selector, at.Child("selector"))
	alone, others := false, false
	for _, m := range c.AccessModes {
		OneOf(f, at, "accessModes", m, accessModes)
		alone = alone || m == corev1.ReadWriteOncePod
		others = others || m == corev1.ReadWriteOnce || m == corev1.ReadOnlyMany || m == corev1.ReadWriteMany
	}
	if alone && others {
		f.Forbidden(at, "accessModes", "may not use ReadWriteOncePod with other access modes")
	}
	size, ok := c.Resources.Requests[corev1.ResourceStorage]
	switch storage := at.Child("resources").Key(string(corev1.ResourceStorage)); {
	case !ok:
		f.Required(storage, "", "")
	case size.Sign() <= 0:
		f.Invalid(storage, "", size.String(), "must be greater than zero")
	}
	if n := c.StorageClassName; n != nil && *n != "" {
		f.Each(at, "storageClassName", *n, apivalidation.NameIsDNSSubdomain(*n, false))
	}
	if c.VolumeMode != nil {
		OneOf(f, at, "volumeMode", *c.VolumeMode, volumeModes)
	}
	f.dataSources(c, at)
	if n := c.VolumeAttributesClassName; n != nil && *n != "" {
		f.Each(at, "volumeAttributesClassName", *n, apivalidation.NameIsDNSSubdomain(*n, false))
	}
}

// dataSources checks what the volume is to be filled with.
func (f *Faults) dataSources(c *corev1.PersistentVolumeClaimSpec, at *field.Path) {
	s, ref := c.DataSource, c.DataSourceRef
	if s != nil {
		f.dataSource(s.APIGroup, s.Kind, s.Name, at.Child("dataSource"))
	}
	if ref == nil {
		return
	}
	f.dataSource(ref.APIGroup, ref.Kind, ref.Name, at.Child("dataSourceRef"))
	elsewhere := ref.Namespace != nil && *ref.Namespace != ""
	if elsewhere {
		f.Each(at.Child("dataSourceRef"), "namespace", *ref.Namespace, apivalidation.ValidateNamespaceName(*ref.Namespace, false))
	}
	switch {
	case s == nil:
	case elsewhere:
		f.Invalid(at, "", at.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified")
	case s.Kind != ref.Kind || s.Name != ref.Name || !reflect.DeepEqual(s.APIGroup, ref.APIGroup):
		f.Invalid(at, "", at.Child("dataSource"), "must match dataSourceRef")
	}
}

func (f *Faults) dataSource(group *string, kind, name string, at *field.Path) {
	if name == "" {
		f.Required(at, "name", "")
	}
	if kind == "" {
		f.Required(at, "kind", "")
	}
	switch {
	case group != nil && *group != "":
		f.Each(at, "apiGroup", *group, validation.IsDNS1123Subdomain(*group))
	case kind != "PersistentVolumeClaim":
		f.Invalid(at, "", kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
}
