package registry

import (
	"context"
	"crypto/rand"
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

// placeNamespace gives an object the namespace of the request: row A8.
func placeNamespace(t Target, meta metav1.Object) error {
	switch got := meta.GetNamespace(); {
	case !t.Type.Namespaced, got == "":
		meta.SetNamespace(t.Namespace)
	case got != t.Namespace:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// checkName compares the name of a body with the one of the URL: row A8.
func checkName(t Target, meta metav1.Object) error {
	switch name := meta.GetName(); {
	case name == "":
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", t.Name))
	case name != t.Name:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", name, t.Name))
	}
	return nil
}

// bodyVersion is the resourceVersion of a body; "" and "0" are none.
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

// invalid is the answer to an object that breaks rules: row F8.
func invalid(t *resource.Type, meta metav1.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	kind := t.GroupVersionKind().GroupKind()
	if o, ok := meta.(runtime.Object); ok && t.Custom != nil { // it may say that it is another
		kind.Kind = o.GetObjectKind().GroupVersionKind().Kind
	}
	return resource.Invalid(kind, meta.GetName(), errs)
}

// maxName bounds the names of kinds that have no bound of their own, in bytes: roles,
// bindings, events, requests for certificates. Other kinds stop at 253 or less. An Event
// is named after its object with 17 characters more, so that 253 would not do.
const maxName = 1024

// newName checks the name of a new object, or what it is generated from: by the rules of
// its kind, and by what can be kept, shown and named in a URL.
func newName(t *resource.Type) validation.ValidateNameFunc {
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

// validateNew checks what every new object has to keep to: row A7.
func validateNew(t *resource.Type, meta metav1.Object) field.ErrorList {
	return validateMeta(t, meta, newName(t))
}

// validate checks what every object has to keep to. Its name is what it was when the
// object was created.
func validate(t *resource.Type, meta metav1.Object) field.ErrorList {
	return validateMeta(t, meta, t.Strategy.Metadata.ValidateName)
}

func validateMeta(t *resource.Type, meta metav1.Object, name validation.ValidateNameFunc) field.ErrorList {
	path := field.NewPath("metadata")
	errs := validation.ValidateObjectMetaAccessor(plain(meta), t.Namespaced, name, path)
	for i, name := range meta.GetFinalizers() {
		if !t.Strategy.Metadata.AnyFinalizer && !strings.Contains(name, "/") && !standardFinalizer(name) {
			errs = append(errs, field.Invalid(path.Child("finalizers").Index(i), name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// validateUpdate checks what validate does, and that the update neither makes
// another object of it, nor begins a deletion or holds one back. Nothing else can
// be wrong: names and other system fields are the old ones. Kinds say what is wrong
// again, and so does the wire.
func validateUpdate(t *resource.Type, subresource string, meta, old metav1.Object) field.ErrorList {
	errs := validate(t, meta)
	changed := meta.GetUID() != old.GetUID() || meta.GetDeletionTimestamp() != nil || meta.GetDeletionGracePeriodSeconds() != nil
	if !changed && len(errs) == 0 {
		return nil
	}
	update := validation.ValidateObjectMetaAccessorUpdate(meta, old, field.NewPath("metadata"))
	recheck := t.Strategy.Metadata.Recheck
	once := recheck == resource.RecheckUpdate
	if s := t.Subresource(subresource); s != nil {
		once = !s.MetadataAsNew
	}
	switch {
	case recheck == resource.RecheckNothing:
		return slices.Concat(errs, update)
	case once:
		return slices.Concat(errs, update, update)
	}
	return slices.Concat(errs, update, errs, update)
}

// timesChecked is how often an update of the object itself reports an error that both
// halves of validateUpdate find.
func (w *write) timesChecked() int {
	switch w.stored().Strategy.Metadata.Recheck {
	case resource.RecheckNothing:
		return 2
	case resource.RecheckUpdate:
		return 3
	}
	return 4
}

// standardFinalizer tells the finalizers that need no domain.
func standardFinalizer(name string) bool {
	return name == "kubernetes" || name == metav1.FinalizerOrphanDependents || name == metav1.FinalizerDeleteDependents
}

// generateName makes a name from its base: row G4.
func generateName(base string) string {
	const (
		letters = "bcdfghjklmnpqrstvwxz2456789"
		random  = 5
		longest = 63 - random
	)
	if len(base) > longest {
		at := longest
		for at > 0 && !utf8.RuneStart(base[at]) { // a part of a letter is no text
			at--
		}
		base = base[:at]
	}
	var b [random]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return base + string(b[:])
}

// clearStatus empties the status of an object whose kind keeps it apart.
func clearStatus(t *resource.Type, o runtime.Object) {
	if t.Subresource("status") != nil {
		t.Parts().ClearStatus(o)
	}
}

// sameDesired tells whether nothing changed but metadata and status: row G6.
func sameDesired(t *resource.Type, a, b runtime.Object) bool {
	ma, mb := a.(metav1.Object), b.(metav1.Object)
	counts := t.Strategy.Generation.CountMetadata
	return t.Parts().SameDesired(a, b) &&
		(!counts.Has(resource.Labels) || equality.Semantic.DeepEqual(ma.GetLabels(), mb.GetLabels())) &&
		(!counts.Has(resource.Annotations) || equality.Semantic.DeepEqual(ma.GetAnnotations(), mb.GetAnnotations()))
}

// toStored defaults an object in the client's version and converts it to the one of
// all further steps.
func toStored(ctx context.Context, t *resource.Type, o runtime.Object) (runtime.Object, error) {
	if t.Strategy.Default != nil {
		t.Strategy.Default(o)
	}
	if t.Conversion == nil || t.Conversion.PerRequest {
		return o, nil
	}
	return t.Conversion.ToStored(ctx, o)
}

// objectKey is how errors of kube-apiserver name the place of an object.
func objectKey(t Target) string {
	place := keyPlaces[t.Type.Collection]
	if place == "" {
		place = t.Type.Resource
		if t.Type.Custom != nil {
			place = t.Type.Group + "/" + place
		}
	}
	return "/" + place + "/" + strings.TrimPrefix(t.key(), "/")
}

// keyPlaces are those of collections that have other names than their resources.
var keyPlaces = map[string]string{
	"services":                           "services/specs",
	"endpoints":                          "services/endpoints",
	"replicationcontrollers":             "controllers",
	"nodes":                              "minions",
	"ingresses.networking.k8s.io":        "ingress",
	"apiservices.apiregistration.k8s.io": "apiregistration.k8s.io/apiservices",
	definitionsCollection:                "apiextensions.k8s.io/customresourcedefinitions",
}
