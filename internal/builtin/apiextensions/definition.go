// Package apiextensions has the rules of CustomResourceDefinitions. The library of
// apiextensions-apiserver validates them, with their schemas and validation rules.
package apiextensions

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metavalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// Definition is a CustomResourceDefinition.
type Definition = apiextensionsv1.CustomResourceDefinition

// Default sets the names that follow from the kind, and the conversion strategy.
func Default(d *Definition) { apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d) }

// NewStatus sets the stored versions of a new definition: its storage version.
func NewStatus(d *Definition) { d.Status.StoredVersions = withStorage(nil, d) }

// KeepStored adds the storage version to status.storedVersions.
func KeepStored(next, _ *Definition) bool {
	had := len(next.Status.StoredVersions)
	next.Status.StoredVersions = withStorage(next.Status.StoredVersions, next)
	return len(next.Status.StoredVersions) != had
}

func withStorage(all []string, d *Definition) []string {
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i < 0 || slices.Contains(all, d.Spec.Versions[i].Name) {
		return all
	}
	return append(slices.Clone(all), d.Spec.Versions[i].Name)
}

// Held reports whether a definition must be kept because it is not marked for deletion yet, or
// still has its finalizer. Its objects are deleted first.
func Held(d *Definition) bool {
	return d.DeletionTimestamp == nil || apihelpers.CRDHasFinalizer(d, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// PrepareDelete marks a definition for deletion. Its finalizer keeps it until its objects
// are deleted.
func PrepareDelete(d *Definition) {
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Terminating) {
		return
	}
	if !apihelpers.CRDHasFinalizer(d, apiextensionsv1.CustomResourceCleanupFinalizer) {
		d.Finalizers = append(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
	}
	apihelpers.SetCRDCondition(d, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().UTC().Truncate(time.Second)),
		Reason: "InstanceDeletionPending", Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
	})
}

// internal converts a definition to the library's internal version, with the metadata that the
// library's rules read; the server checks metadata itself. The result shares memory with the
// definition and must not be modified.
func internal(d *Definition) (*apiextensions.CustomResourceDefinition, error) {
	celenv.Base() // the library uses the base environment
	made := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(d, made, nil); err != nil {
		return nil, err
	}
	dropUnusable(&made.Spec)
	made.ObjectMeta = metav1.ObjectMeta{Name: d.Name, ResourceVersion: "1"}
	for _, name := range []string{apiextensionsv1.KubeAPIApprovedAnnotation} {
		if text, ok := d.Annotations[name]; ok {
			made.Annotations = map[string]string{name: text}
		}
	}
	return made, nil
}

// dropUnusable drops the selectable fields of versions whose schema has unsupported members, such
// as "id". The library rejects such a schema, but it looks up the fields in the schema first, and
// panics.
func dropUnusable(spec *apiextensions.CustomResourceDefinitionSpec) {
	unusable := func(v *apiextensions.CustomResourceValidation) bool {
		if v == nil || v.OpenAPIV3Schema == nil {
			return false
		}
		_, err := structuralschema.NewStructural(v.OpenAPIV3Schema)
		return err != nil
	}
	if len(spec.SelectableFields) > 0 && unusable(spec.Validation) {
		spec.SelectableFields = nil
	}
	for i := range spec.Versions {
		if v := &spec.Versions[i]; len(v.SelectableFields) > 0 && (unusable(v.Schema) || v.Schema == nil && unusable(spec.Validation)) {
			v.SelectableFields = nil
		}
	}
}

func failed(err error) field.ErrorList { return field.ErrorList{field.InternalError(nil, err)} }

// maxVersions limits the versions of a definition: each adds all of its operations to the OpenAPI
// document, which is built again after a change.
const maxVersions = 100

// tooMany rejects a definition with too many versions, unless the stored definition has as many.
func tooMany(d, old *Definition) field.ErrorList {
	if n := len(d.Spec.Versions); n > maxVersions && (old == nil || n > len(old.Spec.Versions)) {
		return field.ErrorList{field.TooMany(field.NewPath("spec", "versions"), n, maxVersions)}
	}
	return nil
}

// maxNamesBytes limits the short names and categories of a definition. Discovery repeats them for
// each version, and every client reads them.
const maxNamesBytes = 64 << 10

// repeatedNames returns the bytes of the short names and categories in discovery, which repeats
// them for each version. Each name costs some bytes beside its text.
func repeatedNames(names *apiextensionsv1.CustomResourceDefinitionNames, versions int) int {
	const each = 4
	n := 0
	for _, name := range names.ShortNames {
		n += len(name) + each
	}
	for _, name := range names.Categories {
		n += len(name) + each
	}
	return n * versions
}

// longNames rejects names that take too many bytes in discovery, unless the stored definition has
// as many. Of returns the names of a definition; path is their path.
func longNames(d, old *Definition, path *field.Path, of func(*Definition) *apiextensionsv1.CustomResourceDefinitionNames) field.ErrorList {
	versions := len(d.Spec.Versions)
	n := repeatedNames(of(d), versions)
	if n <= maxNamesBytes || old != nil && n <= repeatedNames(of(old), len(old.Spec.Versions)) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, fmt.Sprintf("the short names and categories have %d bytes, repeated for each of the %d versions; must have at most %d", n, versions, maxNamesBytes))}
}

func wantedNames(d *Definition) *apiextensionsv1.CustomResourceDefinitionNames { return &d.Spec.Names }

func acceptedNames(d *Definition) *apiextensionsv1.CustomResourceDefinitionNames {
	return &d.Status.AcceptedNames
}

// Validate checks a new definition.
func Validate(d *Definition) field.ErrorList {
	if errs := slices.Concat(tooMany(d, nil), longNames(d, nil, field.NewPath("spec", "names"), wantedNames), checkCosts(d)); len(errs) > 0 {
		return errs
	}
	made, err := internal(d)
	if err != nil {
		return failed(err)
	}
	errs := own(crdvalidation.ValidateCustomResourceDefinition(context.Background(), made))
	if d.Spec.Group == ReservedGroup {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "group"), "the group is reserved for the server"))
	}
	return errs
}

// ReservedGroup is the API group that names the keys of this server in etcd. No definition may use
// it.
const ReservedGroup = "tidemark.dev"

// own returns the errors without those of metadata.name that the generic checks of metadata report,
// too.
func own(errs field.ErrorList) field.ErrorList {
	shorten(errs)
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return e.Field == "metadata.name" && !strings.HasPrefix(e.Detail, "must be spec.names.plural")
	})
}

// ValidateUpdate checks an update. It ignores errors that the old definition has, too. If the spec
// is unchanged, it does not check the schemas again: that takes long, they were checked when they
// were stored, and most updates change only metadata or status.
func ValidateUpdate(d, old *Definition) field.ErrorList {
	if errs := append(tooMany(d, old), longNames(d, old, field.NewPath("spec", "names"), wantedNames)...); errs != nil {
		return errs
	}
	if reflect.DeepEqual(d.Spec, old.Spec) {
		d, old = withoutSchemas(d), withoutSchemas(old)
	} else if errs := checkCosts(d); len(errs) > 0 {
		return errs
	}
	made, err := internal(d)
	if err != nil {
		return failed(err)
	}
	was, err := internal(old)
	if err != nil {
		return failed(err)
	}
	return shorten(crdvalidation.ValidateCustomResourceDefinitionUpdate(context.Background(), made, was))
}

// shorten shortens the errors of rules that do not compile.
func shorten(errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		if strings.Contains(e.Detail, "compilation failed: ") {
			e.Detail = celenv.Shorten(e.Detail)
		}
	}
	return errs
}

// withoutSchemas returns a copy of a definition whose versions have a minimal schema and no
// selectable fields. It shares memory with d.
func withoutSchemas(d *Definition) *Definition {
	bare := *d
	bare.Spec.Versions = slices.Clone(d.Spec.Versions)
	for i := range bare.Spec.Versions {
		v := &bare.Spec.Versions[i]
		if v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}
		}
		v.SelectableFields = nil
	}
	return &bare
}

// ValidateStatus checks an update of the status.
func ValidateStatus(d, old *Definition) field.ErrorList {
	if errs := longNames(d, old, field.NewPath("status", "acceptedNames"), acceptedNames); errs != nil {
		return errs
	}
	d, old = withoutSchemas(d), withoutSchemas(old) // the status does not depend on them
	made, err := internal(d)
	if err != nil {
		return failed(err)
	}
	was, err := internal(old)
	if err != nil {
		return failed(err)
	}
	// The library's function for both has different parameters in k8s.io v0.36 and v0.37.
	errs := metavalidation.ValidateObjectMetaUpdate(&made.ObjectMeta, &was.ObjectMeta, field.NewPath("metadata"))
	return append(errs, crdvalidation.ValidateCustomResourceDefinitionStatus(&made.Status, field.NewPath("status"))...)
}

// Warnings warns about unknown formats, which are not validated. For an update, it warns about new
// ones only.
func Warnings(d, old *Definition) []string {
	known := map[string]bool{}
	if old != nil {
		for _, format := range unknownFormats(old) {
			known[format] = true
		}
	}
	var all []string
	for _, format := range unknownFormats(d) {
		if !known[format] {
			all = append(all, `unrecognized format "`+format+`"`)
		}
	}
	return all
}

func unknownFormats(d *Definition) []string {
	var all []string
	for i := range d.Spec.Versions {
		if s := d.Spec.Versions[i].Schema; s != nil && s.OpenAPIV3Schema != nil {
			eachFormat(*s.OpenAPIV3Schema, func(kind, format string) {
				one := &spec.Schema{SchemaProps: spec.SchemaProps{Format: format, Type: []string{kind}}}
				all = append(all, apivalidation.GetUnrecognizedFormats(one, environment.DefaultCompatibilityVersion())...)
			})
		}
	}
	return all
}

// eachFormat calls f for each format in a schema. The schema is passed by value: properties
// are map values, and taking their address would copy each to the heap.
func eachFormat(s apiextensionsv1.JSONSchemaProps, f func(kind, format string)) {
	if s.Format != "" {
		f(s.Type, s.Format)
	}
	for _, list := range [][]apiextensionsv1.JSONSchemaProps{s.AllOf, s.OneOf, s.AnyOf} {
		for i := range list {
			eachFormat(list[i], f)
		}
	}
	if s.Not != nil {
		eachFormat(*s.Not, f)
	}
	if s.Items != nil {
		if s.Items.Schema != nil {
			eachFormat(*s.Items.Schema, f)
		}
		for i := range s.Items.JSONSchemas {
			eachFormat(s.Items.JSONSchemas[i], f)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		eachFormat(*s.AdditionalProperties.Schema, f)
	}
	for _, name := range names(s.Properties) {
		eachFormat(s.Properties[name], f)
	}
}

func names(all map[string]apiextensionsv1.JSONSchemaProps) []string {
	made := make([]string, 0, len(all))
	for name := range all {
		made = append(made, name)
	}
	slices.Sort(made)
	return made
}
