package storage

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/claimspec"
)

// NewClaimStatus sets the status of a new claim.
func NewClaimStatus(c *corev1.PersistentVolumeClaim) {
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
}

// PrepareClaim makes dataSource and dataSourceRef agree. It drops a dataSource that is neither a
// claim nor a snapshot.
func PrepareClaim(c *corev1.PersistentVolumeClaim) {
	prepareSources(&c.Spec, &corev1.PersistentVolumeClaimSpec{})
}

// PrepareClaimUpdate is PrepareClaim for an update.
func PrepareClaimUpdate(c, old *corev1.PersistentVolumeClaim) bool {
	source, ref := c.Spec.DataSource, c.Spec.DataSourceRef
	prepareSources(&c.Spec, &old.Spec)
	return c.Spec.DataSource != source || c.Spec.DataSourceRef != ref
}

func prepareSources(spec, old *corev1.PersistentVolumeClaimSpec) {
	if r := spec.DataSourceRef; r != nil && r.Namespace != nil && *r.Namespace != "" && old.DataSourceRef == nil {
		spec.DataSourceRef = nil // the feature of sources in other namespaces is off in 1.37
	}
	if old.DataSource == nil && old.DataSourceRef == nil && spec.DataSourceRef == nil && !isOldSource(spec.DataSource) {
		spec.DataSource = nil
	}
	normalizeSources(spec)
}

func isOldSource(s *corev1.TypedLocalObjectReference) bool {
	if s == nil {
		return false
	}
	group := ""
	if s.APIGroup != nil {
		group = *s.APIGroup
	}
	return s.Kind == "PersistentVolumeClaim" && group == "" || s.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}

func normalizeSources(spec *corev1.PersistentVolumeClaimSpec) {
	s, r := spec.DataSource, spec.DataSourceRef
	switch {
	case s != nil && r == nil:
		spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: copied(s.APIGroup), Kind: s.Kind, Name: s.Name}
	case s == nil && r != nil && (r.Namespace == nil || *r.Namespace == ""):
		spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: copied(r.APIGroup), Kind: r.Kind, Name: r.Name}
	}
}

func copied(s *string) *string {
	if s == nil {
		return nil
	}
	return ptr(*s)
}

// ValidateClaim checks a claim.
func ValidateClaim(c *corev1.PersistentVolumeClaim) field.ErrorList {
	return claimspec.Validate(&c.Spec, nil, field.NewPath("spec"))
}

// ValidateClaimUpdate checks the new object, and validates immutable fields. Mutable are a missing
// volumeName, the requests of a bound claim, which can grow, and its attributes class.
func ValidateClaimUpdate(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	errs := claimspec.Validate(&c.Spec, &old.Spec, spec)
	now, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	normalizeSources(was)
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName
	}
	errs = append(errs, alignClass(c, old, now)...)
	const storage = corev1.ResourceStorage
	if c.Status.Phase == corev1.ClaimBound {
		if now.Resources.Requests != nil {
			now.Resources.Requests[storage] = was.Resources.Requests[storage]
		}
		now.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(spec, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"+
			diff.Diff(check.BareJSON(was), check.BareJSON(now))))
	}
	size, before, has := c.Spec.Resources.Requests[storage], old.Spec.Resources.Requests[storage], old.Status.Capacity[storage]
	if size.Cmp(before) < 0 && size.Cmp(has) <= 0 {
		errs = append(errs, field.Forbidden(spec.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
	}
	errs = append(errs, validation.ValidateImmutableField(c.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Status.CurrentVolumeAttributesClassName == nil || check.Equal(c.Spec.VolumeAttributesClassName, old.Spec.VolumeAttributesClassName) {
		return errs
	}
	switch n := c.Spec.VolumeAttributesClassName; {
	case n == nil:
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"))
	case *n == "":
		errs = append(errs, field.Forbidden(spec.Child("volumeAttributesClassName"), "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil"))
	}
	return errs
}

// alignClass handles the changes of the storage class that are allowed: setting a missing one, and
// replacing the annotation by the field. For those, it sets the class in now to the old one.
func alignClass(c, old *corev1.PersistentVolumeClaim, now *corev1.PersistentVolumeClaimSpec) field.ErrorList {
	oldNote, noted := old.Annotations[classAnnotation]
	note, still := c.Annotations[classAnnotation]
	name, was := c.Spec.StorageClassName, old.Spec.StorageClassName
	if noted && was == nil && name != nil && *name == oldNote && (!still || note == oldNote) {
		now.StorageClassName = nil
		return nil
	}
	if was == nil && name != nil && (!noted || *name == oldNote) {
		now.StorageClassName = nil
	}
	if note != oldNote {
		return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations", classAnnotation), note, validation.FieldImmutableErrorMsg)}
	}
	return nil
}

var resizeStatuses = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
}

// ValidateClaimStatus checks the capacity and the allocated resources.
func ValidateClaimStatus(c, _ *corev1.PersistentVolumeClaim) (errs field.ErrorList) {
	path := field.NewPath("status")
	for name, q := range c.Status.Capacity {
		errs = append(errs, notNegative(q, path.Child("capacity").Key(string(name)))...)
	}
	at := path.Child("allocatedResourceStatuses")
	for name, s := range check.Sorted(c.Status.AllocatedResourceStatuses) {
		errs = append(errs, claimResource(name, at)...)
		if len(check.OneOf(s, resizeStatuses, at)) > 0 {
			errs = append(errs, field.NotSupported(at, name, resizeStatuses))
		}
	}
	at = path.Child("allocatedResources")
	for name, q := range check.Sorted(c.Status.AllocatedResources) {
		faults := claimResource(name, at)
		if len(faults) == 0 {
			faults = notNegative(q, at.Key(string(name)))
		}
		if len(faults) == 0 {
			faults = check.Quantity(nil, corev1.ResourceStorage, q, at.Key(string(name)))
		}
		errs = append(errs, faults...)
	}
	return errs
}

// claimResource checks that a name is storage or an extended resource.
func claimResource(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := check.QualifiedName(string(name), path); len(errs) > 0 {
		return errs
	}
	if check.OfKubernetes(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.NotSupported(path, string(name), []corev1.ResourceName{corev1.ResourceStorage})}
	}
	return nil
}

// ClaimWarnings warns about the deprecated annotation, and about sizes with a fraction of a byte.
func ClaimWarnings(c, _ *corev1.PersistentVolumeClaim) (all []string) {
	if _, ok := c.Annotations[classAnnotation]; ok {
		all = append(all, "metadata.annotations["+classAnnotation+`]: deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	return append(all, claimspec.Warnings(&c.Spec, field.NewPath("spec"))...)
}
