package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

var (
	mountPropagations  = []corev1.MountPropagationMode{corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone}
	recursiveReadOnlys = []corev1.RecursiveReadOnlyMode{corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible}
)

func (r *rules) mounts(c *corev1.Container, at *field.Path) {
	if len(c.VolumeMounts) == 0 {
		return
	}
	at = at.Child("volumeMounts")
	var paths, devices, devicePaths check.Seen[string]
	for i := range c.VolumeDevices {
		devices.Again(c.VolumeDevices[i].Name)
		devicePaths.Again(c.VolumeDevices[i].DevicePath)
	}
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if m.Name == "" {
			r.Required(at.Index(i), "name", "")
		}
		if r.volumes[m.Name] == nil {
			r.NotFound(at.Index(i), "name", m.Name)
		}
		if m.MountPath == "" {
			r.Required(at.Index(i), "mountPath", "")
		}
		if paths.Again(m.MountPath) {
			r.Invalid(at.Index(i), "mountPath", m.MountPath, "must be unique")
		}
		if devices.Has(m.Name) {
			r.Invalid(at.Index(i), "name", m.Name, "must not already exist in volumeDevices")
		}
		if devicePaths.Has(m.MountPath) {
			r.Invalid(at.Index(i), "mountPath", m.MountPath, "must not already exist as a path in volumeDevices")
		}
		r.mountOptions(c, i, at)
	}
}

// mountOptions checks the options of a mount. As in kube-apiserver, most of its errors have the
// path of the list, without the index.
func (r *rules) mountOptions(c *corev1.Container, i int, at *field.Path) {
	m := &c.VolumeMounts[i]
	if m.SubPath != "" {
		r.relative(at, "subPath", m.SubPath)
	}
	if m.SubPathExpr != "" {
		if m.SubPath != "" {
			r.Invalid(at.Index(i), "subPathExpr", m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		r.relative(at, "subPathExpr", m.SubPathExpr)
	}
	if m.MountPropagation != nil {
		check.Enum(r.Errors, at, "mountPropagation", *m.MountPropagation, mountPropagations)
		if *m.MountPropagation == corev1.MountPropagationBidirectional && !isPrivileged(c) {
			r.Forbidden(at, "mountPropagation", "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	r.recursiveReadOnly(m, at)
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

func (r *rules) recursiveReadOnly(m *corev1.VolumeMount, at *field.Path) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return
	}
	switch *m.RecursiveReadOnly {
	case corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible:
		if !m.ReadOnly {
			r.Forbidden(at, "recursiveReadOnly", "may only be specified when readOnly is true")
		}
		if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
			r.Forbidden(at, "recursiveReadOnly", "may only be specified when mountPropagation is None or not specified")
		}
	default:
		check.Enum(r.Errors, at, "recursiveReadOnly", *m.RecursiveReadOnly, recursiveReadOnlys)
	}
}

func (r *rules) devices(c *corev1.Container, at *field.Path) {
	if len(c.VolumeDevices) == 0 {
		return
	}
	var mounts, mountPaths check.Seen[string]
	for i := range c.VolumeMounts {
		mounts.Again(c.VolumeMounts[i].Name)
		mountPaths.Again(c.VolumeMounts[i].MountPath)
	}
	var names, paths check.Seen[string]
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], at.Child("volumeDevices").Index(i)
		v := r.volumes[d.Name]
		if d.Name == "" {
			r.Required(at, "name", "")
		}
		if names.Has(d.Name) {
			r.Invalid(at, "name", d.Name, "must be unique")
		}
		switch {
		case v == nil:
			r.NotFound(at, "name", d.Name)
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			r.Invalid(at, "name", d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if d.DevicePath == "" {
			r.Required(at, "devicePath", "")
		}
		if paths.Has(d.DevicePath) {
			r.Invalid(at, "devicePath", d.DevicePath, "must be unique")
		}
		if hasBackstep(d.DevicePath) {
			r.Invalid(at, "devicePath", d.DevicePath, "can not contain backsteps ('..')")
		} else {
			paths.Again(d.DevicePath)
		}
		if mounts.Has(d.Name) {
			r.Invalid(at, "name", d.Name, "must not already exist in volumeMounts")
		}
		if mountPaths.Has(d.DevicePath) {
			r.Invalid(at, "devicePath", d.DevicePath, "must not already exist as a path in volumeMounts")
		}
		if d.Name != "" {
			names.Again(d.Name)
		}
	}
}
