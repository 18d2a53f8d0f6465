package storage

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Limits of token lifetimes and of other values.
const (
	minTokenSeconds    = 600
	maxTokenSeconds    = 1 << 32
	minAllocatable     = 10 // seconds
	maxNodeID          = 256
	maxAttachmentBytes = 256 << 10
	maxErrorMessage    = 1024
)

// DefaultDriverWithoutLimits sets the defaults of versions without preventPodSchedulingIfMissing.
func DefaultDriverWithoutLimits(d *storagev1.CSIDriver) {
	sent := d.Spec.PreventPodSchedulingIfMissing
	DefaultDriver(d)
	d.Spec.PreventPodSchedulingIfMissing = sent
}

// DefaultDriver sets the defaults of a CSIDriver.
func DefaultDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	for _, b := range []struct {
		of    **bool
		value bool
	}{{&s.AttachRequired, true}, {&s.PodInfoOnMount, false}, {&s.StorageCapacity, false}, {&s.RequiresRepublish, false}, {&s.SELinuxMount, false},
		{&s.PreventPodSchedulingIfMissing, false}} {
		if *b.of == nil {
			*b.of = ptr(b.value)
		}
	}
	if s.FSGroupPolicy == nil {
		s.FSGroupPolicy = ptr(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// DriverWarnings warns about tokens that are passed to the driver in volume attributes.
func DriverWarnings(d, old *storagev1.CSIDriver) []string {
	s := &d.Spec
	if len(s.TokenRequests) == 0 || s.ServiceAccountTokenInSecrets != nil || old != nil && equality.Semantic.DeepEqual(old.Spec.TokenRequests, s.TokenRequests) {
		return nil
	}
	return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
}

// ValidateDriver checks a CSIDriver.
func ValidateDriver(d *storagev1.CSIDriver) (errs field.ErrorList) {
	s, path := &d.Spec, field.NewPath("spec")
	for _, b := range []struct {
		name string
		is   *bool
	}{{"attachedRequired", s.AttachRequired}, {"podInfoOnMount", s.PodInfoOnMount}, {"storageCapacity", s.StorageCapacity}} {
		if b.is == nil {
			errs = append(errs, field.Required(path.Child(b.name), ""))
		}
	}
	if s.FSGroupPolicy != nil {
		errs = append(errs, check.OneOf(*s.FSGroupPolicy, []storagev1.FSGroupPolicy{storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy}, path.Child("fsGroupPolicy"))...)
	}
	errs = append(errs, validateTokens(s.TokenRequests, path.Child("tokenRequests"))...)
	for _, m := range s.VolumeLifecycleModes {
		errs = append(errs, check.OneOf(m, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral}, path.Child("volumeLifecycleModes"))...)
	}
	if s.SELinuxMount == nil {
		errs = append(errs, field.Required(path.Child("seLinuxMount"), ""))
	}
	if p := s.NodeAllocatableUpdatePeriodSeconds; p != nil && *p < minAllocatable {
		errs = append(errs, field.Invalid(path.Child("nodeAllocatableUpdatePeriodSeconds"), *p, "must be greater than or equal to 10 seconds"))
	}
	if s.ServiceAccountTokenInSecrets != nil && len(s.TokenRequests) == 0 {
		errs = append(errs, field.Invalid(path.Child("serviceAccountTokenInSecrets"), s.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified"))
	}
	return errs
}

// ValidateDriverUpdate checks the new object, and validates immutable fields.
func ValidateDriverUpdate(d, old *storagev1.CSIDriver) field.ErrorList {
	errs := ValidateDriver(d)
	errs = append(errs, validation.ValidateImmutableField(d.Spec.AttachRequired, old.Spec.AttachRequired, field.NewPath("spec", "attachedRequired"))...)
	return append(errs, validation.ValidateImmutableField(d.Spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, field.NewPath("spec", "volumeLifecycleModes"))...)
}

func validateTokens(all []storagev1.TokenRequest, path *field.Path) (errs field.ErrorList) {
	var audiences check.Seen[string]
	for i, t := range all {
		at := path.Index(i)
		if audiences.Again(t.Audience) {
			errs = append(errs, field.Duplicate(at.Child("audience"), t.Audience))
			continue
		}
		switch s := t.ExpirationSeconds; {
		case s == nil:
		case *s < minTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
		case *s > maxTokenSeconds:
			errs = append(errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
		}
	}
	return errs
}

// ValidateNode checks the drivers of a node.
func ValidateNode(n *storagev1.CSINode) (errs field.ErrorList) {
	var names check.Seen[string]
	for i, d := range n.Spec.Drivers {
		path := field.NewPath("spec", "drivers").Index(i)
		errs = append(errs, driverName(d.Name, path.Child("name"))...)
		errs = append(errs, required(path, "nodeID", d.NodeID)...)
		if len(d.NodeID) > maxNodeID {
			errs = append(errs, field.Invalid(path.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
		}
		if a := d.Allocatable; a != nil && a.Count != nil {
			errs = append(errs, check.NotNegative(int64(*a.Count), path.Child("allocatable", "count"))...)
		}
		if names.Again(d.Name) {
			errs = append(errs, field.Duplicate(path.Child("name"), d.Name))
		}
		var keys check.Seen[string]
		for _, key := range d.TopologyKeys {
			if key == "" {
				errs = append(errs, field.Required(path, key))
			}
			if keys.Again(key) {
				errs = append(errs, field.Duplicate(path, key))
			}
			errs = append(errs, check.QualifiedName(key, path)...)
		}
	}
	return errs
}

// ValidateNodeUpdate checks the new object, and that a driver that remains changes only its
// allocatable count.
func ValidateNodeUpdate(n, old *storagev1.CSINode) field.ErrorList {
	errs := ValidateNode(n)
	named := map[string][]storagev1.CSINodeDriver{}
	for _, d := range n.Spec.Drivers {
		named[d.Name] = append(named[d.Name], d)
	}
	for _, was := range old.Spec.Drivers { // their names are unique
		for _, d := range named[was.Name] {
			d.Allocatable, was.Allocatable = nil, nil
			if !equality.Semantic.DeepEqual(d, was) {
				errs = append(errs, field.Invalid(field.NewPath("spec", "drivers"), check.Bare(d), validation.FieldImmutableErrorMsg))
			}
		}
		delete(named, was.Name)
	}
	return errs
}

// mostHealthConditions bounds the conditions that a driver reports about its storage.
const mostHealthConditions = 16

// ValidateNodeStatus checks an update of the subresource status.
func ValidateNodeStatus(n, _ *storagev1.CSINode) (errs field.ErrorList) {
	path := field.NewPath("status", "storageHealth")
	var names check.Seen[string]
	for i := range n.Status.StorageHealth {
		h, at := &n.Status.StorageHealth[i], path.Index(i)
		if names.Again(h.Name) {
			errs = append(errs, field.Duplicate(at, h.Name))
		}
		errs = append(errs, driverName(h.Name, at.Child("name"))...)
		all := at.Child("healthConditions")
		if len(h.HealthConditions) > mostHealthConditions {
			errs = append(errs, field.TooMany(all, len(h.HealthConditions), mostHealthConditions))
			continue
		}
		for j := range h.HealthConditions {
			errs = append(errs, validateHealth(&h.HealthConditions[j], all.Index(j))...)
		}
	}
	return errs
}

// The limits and values of a condition of storage.
const (
	longestHealthReason  = 256
	longestHealthMessage = 1024
)

var (
	healthStatuses    = []storagev1.StorageHealthStatusType{storagev1.StorageDegraded, storagev1.StorageUnreachable}
	healthAccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	healthVolumeModes = []corev1.PersistentVolumeMode{corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock}
)

func validateHealth(c *storagev1.StorageHealthCondition, at *field.Path) field.ErrorList {
	errs := check.OneOf(c.Status, healthStatuses, at.Child("status"))
	reason := at.Child("reason")
	if c.Reason == "" {
		errs = append(errs, field.Required(reason, ""))
	} else {
		for _, wrong := range metav1validation.IsValidConditionReason(c.Reason) {
			errs = append(errs, field.Invalid(reason, c.Reason, wrong))
		}
		if len(c.Reason) > longestHealthReason {
			errs = append(errs, field.TooLong(reason, c.Reason, longestHealthReason))
		}
	}
	if len(c.Message) > longestHealthMessage {
		errs = append(errs, field.TooLong(at.Child("message"), c.Message, longestHealthMessage))
	}
	if m := c.AccessMode; m != nil {
		errs = append(errs, check.OneOf(*m, healthAccessModes, at.Child("accessMode"))...)
	}
	if m := c.VolumeMode; m != nil {
		errs = append(errs, check.OneOf(*m, healthVolumeModes, at.Child("volumeMode"))...)
	}
	return errs
}

// ValidateCapacity checks a CSIStorageCapacity.
func ValidateCapacity(c *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := check.Selector(c.NodeTopology, nil, field.NewPath("nodeTopology"))
	errs = append(errs, check.DNSSubdomain(c.StorageClassName, field.NewPath("storageClassName"))...)
	if q := c.Capacity; q != nil && q.Sign() < 0 {
		errs = append(errs, field.Invalid(field.NewPath("capacity"), q.String(), validation.IsNegativeErrorMsg))
	}
	return errs
}

// ValidateCapacityUpdate checks the new object, and validates immutable fields.
func ValidateCapacityUpdate(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	errs := ValidateCapacity(c)
	if !equality.Semantic.DeepEqual(c.NodeTopology, old.NodeTopology) {
		errs = append(errs, field.Invalid(field.NewPath("nodeTopology"), c.NodeTopology, validation.FieldImmutableErrorMsg))
	}
	if c.StorageClassName != old.StorageClassName {
		errs = append(errs, field.Invalid(field.NewPath("storageClassName"), c.StorageClassName, validation.FieldImmutableErrorMsg))
	}
	return errs
}

// DefaultAttachment sets the defaults of an inline volume.
func DefaultAttachment(a *storagev1.VolumeAttachment) {
	if spec := a.Spec.Source.InlineVolumeSpec; spec != nil {
		check.RoundUp(spec.Capacity)
		defaultSource(&spec.PersistentVolumeSource)
	}
}

// ValidateAttachment checks the attacher, the volume and the node.
func ValidateAttachment(a *storagev1.VolumeAttachment) field.ErrorList {
	path, s := field.NewPath("spec"), &a.Spec.Source
	errs := driverName(a.Spec.Attacher, path.Child("attacher")).WithOrigin("format=k8s-long-name-caseless") // of the declared rule
	switch at := path.Child("source"); {
	case s.InlineVolumeSpec == nil && s.PersistentVolumeName == nil:
		errs = append(errs, field.Required(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case s.InlineVolumeSpec != nil && s.PersistentVolumeName != nil:
		errs = append(errs, field.Forbidden(at, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
	case s.InlineVolumeSpec != nil:
		errs = append(errs, validateInline(s.InlineVolumeSpec, at.Child("inlineVolumeSpec"))...)
	case *s.PersistentVolumeName == "":
		errs = append(errs, field.Required(at.Child("persistentVolumeName"), "must specify non empty persistentVolumeName"))
	}
	errs = append(errs, check.DNSSubdomain(a.Spec.NodeName, path.Child("nodeName"))...)
	errs = append(errs, validateAttachmentStatus(&a.Status)...)
	if s.PersistentVolumeName != nil {
		errs = append(errs, check.DNSSubdomain(*s.PersistentVolumeName, field.NewPath("spec.source.persistentVolumeName"))...)
	}
	return errs
}

// ValidateAttachmentUpdate checks the new object, and that the spec does not change.
func ValidateAttachmentUpdate(a, old *storagev1.VolumeAttachment) field.ErrorList {
	errs := ValidateAttachment(a)
	if !equality.Semantic.DeepEqual(a.Spec, old.Spec) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), check.Bare(a.Spec), validation.FieldImmutableErrorMsg))
	}
	return errs
}

func validateAttachmentStatus(s *storagev1.VolumeAttachmentStatus) (errs field.ErrorList) {
	path, size := field.NewPath("status"), 0
	for k, v := range s.AttachmentMetadata {
		size += len(k) + len(v)
	}
	if size > maxAttachmentBytes {
		errs = append(errs, field.TooLong(path.Child("attachmentMetadata"), "", maxAttachmentBytes))
	}
	for _, e := range []struct {
		name string
		err  *storagev1.VolumeError
	}{{"attachError", s.AttachError}, {"detachError", s.DetachError}} {
		if e.err == nil {
			continue
		}
		if len(e.err.Message) > maxErrorMessage {
			errs = append(errs, field.TooLong(path.Child(e.name, "message"), "", maxErrorMessage))
		}
		if c := e.err.ErrorCode; c != nil && *c < 0 {
			errs = append(errs, field.Invalid(path.Child(e.name, "errorCode"), *c, utilvalidation.InclusiveRangeError(0, math.MaxInt32)))
		}
	}
	return errs
}
