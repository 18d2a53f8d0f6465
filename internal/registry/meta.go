package registry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// setNamespace gives an object the namespace of the request. A different namespace in the body is
// an error.
func setNamespace(t Target, meta metav1.Object) error {
	switch got := meta.GetNamespace(); {
	case !t.Type.Namespaced, got == "":
		meta.SetNamespace(t.Namespace)
	case got != t.Namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// checkName compares the name in a body with the name in the URL.
func checkName(t Target, meta metav1.Object) error {
	switch name := meta.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", t.Name))
	case name != t.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, t.Name))
	}
	return nil
}

// bodyVersion returns the resourceVersion of a body; zero for "" and "0".
func bodyVersion(meta metav1.Object) (store.Revision, error) {
	text := meta.GetResourceVersion()
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("metadata.resourceVersion %q is not a decimal number", text))
	}
	return store.Revision(n), nil
}

// invalid returns the error for an object that is not valid, nil if there are no errs.
func invalid(t *resource.Type, meta metav1.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	kind := t.GroupVersionKind().GroupKind()
	if o, ok := meta.(runtime.Object); ok && t.Custom != nil { // the object's own kind may differ
		kind.Kind = o.GetObjectKind().GroupVersionKind().Kind
	}
	return resource.Invalid(kind, meta.GetName(), errs)
}

// maxName limits the names of kinds without a limit of their own, in bytes: roles, bindings,
// events, certificate requests. Other kinds allow 253 or less. The name of an Event is the name of
// its object with 17 characters more, so 253 would be too short.
const maxName = 1024

// nameRules returns the validation of the name of a new object, or of its generateName: the rules
// of the kind, and the limits of the store and of URLs.
func nameRules(t *resource.Type) validation.ValidateNameFunc {
	return func(name string, prefix bool) []string {
		wrong := t.Strategy.Metadata.ValidateName(name, prefix)
		switch {
		case len(wrong) > 0:
		case len(name) > maxName:
			return []string{fmt.Sprintf("must be no more than %d bytes", maxName)}
		case strings.IndexByte(name, 0) >= 0:
			return []string{"may not contain a zero byte"}
		case !utf8.ValidString(name):
			return []string{"must be valid UTF-8"}
		}
		return wrong
	}
}

// validateNewMeta validates the metadata of a new object.
func validateNewMeta(t *resource.Type, meta metav1.Object) field.ErrorList {
	return append(validateMeta(t, meta, nameRules(t)), validateFinalizers(t, meta)...)
}

// validateMeta validates the metadata that all kinds share.
func validateMeta(t *resource.Type, meta metav1.Object, name validation.ValidateNameFunc) field.ErrorList {
	return validation.ValidateObjectMetaAccessor(withoutValidLabels(meta), t.Namespaced, name, field.NewPath("metadata"))
}

// validateFinalizers checks that each finalizer has a domain or is a standard one, if the kind
// requires it.
func validateFinalizers(t *resource.Type, meta metav1.Object) (errs field.ErrorList) {
	if t.Strategy.Metadata.AnyFinalizer {
		return nil
	}
	for i, name := range meta.GetFinalizers() {
		if !strings.Contains(name, "/") && !standardFinalizer(name) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// validateMetaUpdate validates the metadata of an update: that it is valid, and that it neither
// changes the name or the UID, nor begins or delays a deletion. Other system fields are restored
// before, so they cannot be wrong. As in kube-apiserver, some kinds report the same errors twice.
func validateMetaUpdate(t *resource.Type, subresource string, meta, old metav1.Object) field.ErrorList {
	// The name is checked only by the rules of the kind, since it cannot change.
	errs := validateMeta(t, meta, t.Strategy.Metadata.ValidateName)
	finalizers := validateFinalizers(t, meta)
	changed := meta.GetName() != old.GetName() || meta.GetNamespace() != old.GetNamespace() || meta.GetUID() != old.GetUID() || meta.GetDeletionTimestamp() != nil || meta.GetDeletionGracePeriodSeconds() != nil
	if !changed && len(errs) == 0 && len(finalizers) == 0 {
		return nil
	}
	update := validation.ValidateObjectMetaAccessorUpdate(meta, old, field.NewPath("metadata"))
	recheck := t.Strategy.Metadata.Recheck
	if s := t.Subresource(subresource); s != nil && recheck != resource.RecheckNothing {
		recheck = resource.RecheckUpdate
		if s.MetadataAsNew {
			recheck = resource.RecheckAll
		}
	}
	switch recheck {
	case resource.RecheckNothing:
		return slices.Concat(errs, update)
	case resource.RecheckNew:
		return slices.Concat(errs, update, errs, finalizers)
	case resource.RecheckNewTwice:
		return slices.Concat(errs, update, errs, finalizers, errs, finalizers)
	case resource.RecheckUpdate:
		return slices.Concat(errs, update, update, finalizers)
	}
	return slices.Concat(errs, update, update, finalizers, errs, finalizers)
}

// standardFinalizer reports whether a finalizer needs no domain.
func standardFinalizer(name string) bool {
	return name == "kubernetes" || name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
}

// withSuffix returns the base, shortened if needed, with five random characters.
func (r *Registry) withSuffix(base string) string {
	const (
		letters = "bcdfghjklmnpqrstvwxz2456789"
		random  = 5
		longest = 63 - random
	)
	if len(base) > longest {
		at := longest
		for at > 0 && !utf8.RuneStart(base[at]) { // do not cut inside a character
			at--
		}
		base = base[:at]
	}
	var b [random]byte
	r.random(b[:])
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return base + string(b[:])
}

// clearStatus empties the status of an object whose kind has a status subresource.
func clearStatus(t *resource.Type, o runtime.Object) {
	if t.Subresource("status") != nil {
		t.Parts().ClearStatus(o)
	}
}

// sameDesired reports whether only metadata and status differ. Some kinds count labels or
// annotations as desired state.
func sameDesired(t *resource.Type, a, b runtime.Object) bool {
	ma, mb := a.(metav1.Object), b.(metav1.Object)
	counts := t.Strategy.Generation.CountMetadata
	return t.Parts().SameDesired(a, b) && (!t.Strategy.Generation.Exact || resource.IdenticalDesired(a, b)) &&
		(!counts.Has(resource.Labels) || equality.Semantic.DeepEqual(ma.GetLabels(), mb.GetLabels())) &&
		(!counts.Has(resource.Annotations) || equality.Semantic.DeepEqual(ma.GetAnnotations(), mb.GetAnnotations()))
}
