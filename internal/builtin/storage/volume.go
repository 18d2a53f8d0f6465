// Package storage has the rules of volumes, claims, storage classes, CSI drivers and attachments.
package storage

import (
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
)

var reclaims = []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain}

// Annotations that fields have replaced.
const (
	classAnnotation = corev1.BetaStorageClassAnnotation
	mountAnnotation = "volume.beta.kubernetes.io/mount-options"
)

// now returns the time with the precision of metadata.
func now() *metav1.Time {
	t := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	return &t
}

// NewVolumeStatus sets the status of a new volume.
func NewVolumeStatus(v *corev1.PersistentVolume) {
	v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: now()}
}

// DefaultVolume sets the defaults of a volume.
func DefaultVolume(v *corev1.PersistentVolume) {
	spec := &v.Spec
	if v.Status.Phase == "" {
		v.Status.Phase = corev1.VolumePending
	}
	if spec.PersistentVolumeReclaimPolicy == "" {
		spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if spec.VolumeMode == nil {
		spec.VolumeMode = filesystem()
	}
	check.RoundUp(spec.Capacity)
	defaultSource(&spec.PersistentVolumeSource)
}

func filesystem() *corev1.PersistentVolumeMode {
	mode := corev1.PersistentVolumeFilesystem
	return &mode
}

// StampPhase sets the time of the phase's transition, unless the update sets it.
func StampPhase(v, old *corev1.PersistentVolume) {
	s, was := &v.Status, &old.Status
	if s.Phase != was.Phase && (s.LastPhaseTransitionTime == nil || s.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime)) {
		s.LastPhaseTransitionTime = now()
	}
	if s.Phase == was.Phase && s.LastPhaseTransitionTime == nil {
		s.LastPhaseTransitionTime = was.LastPhaseTransitionTime
	}
}

// ValidateVolume checks a volume.
func ValidateVolume(v *corev1.PersistentVolume) field.ErrorList {
	errs := validateVolumeSpec(&v.Spec, v.Name, field.NewPath("spec"))
	return append(errs, validateMountOptions(v)...)
}

// ValidateVolumeUpdate checks the new object, and that its source does not change.
func ValidateVolumeUpdate(v, old *corev1.PersistentVolume) field.ErrorList {
	errs := ValidateVolume(v)
	errs = append(errs, validateVolumeSpec(&v.Spec, v.Name, field.NewPath("spec"))...) // kube-apiserver reports them twice
	now, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if now.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil { // it can be added
		csi := *now.CSI
		csi.ControllerExpandSecretRef = nil
		now.CSI = &csi
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+diff.Diff(check.BareJSON(was), check.BareJSON(now))))
	}
	errs = append(errs, validation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if a := old.Spec.NodeAffinity; a != nil && !sameAffinity(v.Spec.NodeAffinity, a) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), check.Bare(v.Spec.NodeAffinity), validation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"), "update from non-nil value to nil is forbidden"))
	}
	return errs
}

// validateMountOptions checks that only volumes with mount options have the annotation for them.
func validateMountOptions(v *corev1.PersistentVolume) field.ErrorList {
	s := &v.Spec.PersistentVolumeSource
	heeded := s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil ||
		s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil || s.VsphereVolume != nil ||
		s.AzureDisk != nil || s.PhotonPersistentDisk != nil
	if _, ok := v.Annotations[mountAnnotation]; !ok || heeded {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations", mountAnnotation), "may not specify mount options for this volume type")}
}

// validateVolumeSpec checks the spec of a PersistentVolume.
func validateVolumeSpec(spec *corev1.PersistentVolumeSpec, name string, at *field.Path) (errs field.ErrorList) {
	if len(spec.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, claimspec.ValidateAccessModes(spec.AccessModes, at.Child("accessModes"))...)
	errs = append(errs, validateCapacity(spec.Capacity, at.Child("capacity"))...)
	if p := spec.PersistentVolumeReclaimPolicy; p != "" {
		errs = append(errs, check.OneOf(p, reclaims, at.Child("persistentVolumeReclaimPolicy"))...)
	}
	if spec.NodeAffinity != nil {
		errs = append(errs, validateVolumeAffinity(spec.NodeAffinity, at.Child("nodeAffinity"))...)
	}
	errs = append(errs, validateSource(spec, name, false, at)...)
	if spec.HostPath != nil && path.Clean(spec.HostPath.Path) == "/" && spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	if spec.StorageClassName != "" {
		errs = append(errs, check.DNSSubdomain(spec.StorageClassName, at.Child("storageClassName"))...)
	}
	if spec.VolumeMode != nil {
		errs = append(errs, check.OneOf(*spec.VolumeMode, claimspec.VolumeModes, at.Child("volumeMode"))...)
	}
	if class, at := spec.VolumeAttributesClassName, at.Child("volumeAttributesClassName"); class != nil {
		if *class == "" {
			errs = append(errs, field.Required(at, "an empty string is disallowed"))
		} else {
			errs = append(errs, check.DNSSubdomain(*class, at)...)
		}
	}
	if spec.VolumeAttributesClassName != nil && spec.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
	}
	return errs
}

// inlineSpec rejects fields that an inline volume cannot have, in the order of the other checks.
type inlineSpec struct {
	spec *corev1.PersistentVolumeSpec
	at   *field.Path
	errs field.ErrorList
}

func (s *inlineSpec) forbid(is bool, member, detail string) {
	if is {
		s.errs = append(s.errs, field.Forbidden(s.at.Child(member), detail+inlineContext))
	}
}

const inlineContext = " in the context of inline volumes"

func (s *inlineSpec) claimed() {
	s.forbid(s.spec.ClaimRef != nil, "claimRef", "may not be specified")
	s.forbid(len(s.spec.Capacity) > 0, "capacity", "may not be specified")
	if s.spec.CSI == nil {
		s.errs = append(s.errs, field.Required(s.at.Child("csi"), "has to be specified"+inlineContext))
	}
}

func (s *inlineSpec) placed() {
	policy, retain := s.spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain
	s.forbid(policy != "" && policy != retain, "persistentVolumeReclaimPolicy", "may only be "+string(retain))
	s.forbid(s.spec.NodeAffinity != nil, "nodeAffinity", "may not be specified")
}

func (s *inlineSpec) used() {
	s.forbid(s.spec.StorageClassName != "", "storageClassName", "may not be specified")
	mode := corev1.PersistentVolumeFilesystem
	s.forbid(s.spec.VolumeMode != nil && *s.spec.VolumeMode != mode, "volumeMode", "may not specify volumeMode other than "+string(mode))
}

// validateInline checks the spec of an inline volume of a VolumeAttachment.
func validateInline(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	s := inlineSpec{spec: spec, at: at}
	s.claimed()
	if len(spec.AccessModes) == 0 {
		s.errs = append(s.errs, field.Required(at.Child("accessModes"), ""))
	}
	s.errs = append(s.errs, claimspec.ValidateAccessModes(spec.AccessModes, at.Child("accessModes"))...)
	s.placed()
	s.errs = append(s.errs, validateSource(spec, "", true, at)...)
	s.used()
	return s.errs
}

func validateCapacity(c corev1.ResourceList, at *field.Path) (errs field.ErrorList) {
	if len(c) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if _, ok := c[corev1.ResourceStorage]; !ok || len(c) > 1 {
		errs = append(errs, field.NotSupported(at, c, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range check.Sorted(c) {
		errs = append(errs, notNegative(q, at.Key(string(name)))...)
		errs = append(errs, check.Positive(q, at.Key(string(name)))...)
	}
	return errs
}

func notNegative(q resource.Quantity, at *field.Path) field.ErrorList {
	if n := q.Value(); n < 0 {
		return field.ErrorList{field.Invalid(at, n, "must be a valid resource quantity")}
	}
	return nil
}

// VolumeWarnings warns about annotations, policies and plugins that are deprecated or
// removed.
func VolumeWarnings(v, _ *corev1.PersistentVolume) (all []string) {
	for _, a := range []struct{ key, text string }{
		{classAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{mountAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := v.Annotations[a.key]; ok {
			all = append(all, "metadata.annotations["+a.key+"]: "+a.text)
		}
	}
	spec := &v.Spec
	if spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		all = append(all, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	all = append(all, affinityWarnings(spec.NodeAffinity)...)
	for _, p := range []struct {
		is   bool
		text string
	}{
		{spec.CephFS != nil, "cephfs: deprecated in v1.28, non-functional in v1.31+"},
		{spec.PhotonPersistentDisk != nil, "photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+"},
		{spec.ScaleIO != nil, "scaleIO: deprecated in v1.16, non-functional in v1.22+"},
		{spec.StorageOS != nil, "storageOS: deprecated in v1.22, non-functional in v1.25+"},
		{spec.Glusterfs != nil, "glusterfs: deprecated in v1.25, non-functional in v1.26+"},
		{spec.RBD != nil, "rbd: deprecated in v1.28, non-functional in v1.31+"},
	} {
		if p.is {
			all = append(all, "spec."+p.text)
		}
	}
	return all
}
