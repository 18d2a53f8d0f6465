// Package storagemigration has the rules of the kinds of storagemigration.k8s.io.
package storagemigration

import (
	"strings"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Migration is a StorageVersionMigration.
type Migration = migrationv1.StorageVersionMigration

// Validate checks a new migration.
func Validate(m *Migration) (errs field.ErrorList) {
	path, r := field.NewPath("spec", "resource"), &m.Spec.Resource
	if r.Resource == "" {
		errs = append(errs, field.Required(path.Child("resource"), "resource is required to be set"))
	} else if wrong := validation.IsDNS1035Label(r.Resource); len(wrong) > 0 {
		errs = append(errs, field.Invalid(path.Child("resource"), r.Resource, strings.Join(wrong, ",")))
	}
	if r.Group != "" {
		if wrong := validation.IsDNS1123Subdomain(r.Group); len(wrong) > 0 {
			errs = append(errs, field.Invalid(path.Child("group"), r.Group, strings.Join(wrong, ",")))
		}
	}
	return errs
}

// ValidateUpdate checks the new object, and that the spec does not change.
func ValidateUpdate(m, old *Migration) field.ErrorList {
	errs := Validate(m)
	if !equality.Semantic.DeepEqual(m.Spec, old.Spec) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), check.Bare(m.Spec), apivalidation.FieldImmutableErrorMsg))
	}
	return errs
}

// ValidateStatus checks an update of the subresource status: a migration ends once, and keeps its resource version.
func ValidateStatus(m, old *Migration) (errs field.ErrorList) {
	s, path := &m.Status, field.NewPath("status")
	at := path.Child("resourceVersion")
	if v := s.ResourceVersion; v != "" {
		if _, err := resourceversion.CompareResourceVersion(v, v); err != nil {
			errs = append(errs, field.Invalid(at, v, err.Error()))
		}
	}
	conditions := path.Child("conditions")
	errs = append(errs, check.Conditions(s.Conditions, conditions)...)
	if v := old.Status.ResourceVersion; v != "" && v != s.ResourceVersion {
		errs = append(errs, field.Invalid(at, s.ResourceVersion, apivalidation.FieldImmutableErrorMsg))
	}
	succeeded, failed := string(migrationv1.MigrationSucceeded), string(migrationv1.MigrationFailed)
	is := meta.IsStatusConditionTrue
	if is(s.Conditions, succeeded) && is(s.Conditions, failed) {
		errs = append(errs, field.Invalid(conditions, s.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	if is(old.Status.Conditions, succeeded) && !is(s.Conditions, succeeded) {
		errs = append(errs, field.Invalid(conditions, s.Conditions, "Success condition cannot be set to false once it is true"))
	}
	if is(old.Status.Conditions, failed) && !is(s.Conditions, failed) {
		errs = append(errs, field.Invalid(conditions, s.Conditions, "Failed condition cannot be set to false once it is true"))
	}
	return errs
}
