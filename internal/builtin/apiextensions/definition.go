// Package apiextensions is the rules of the kinds of apiextensions.k8s.io, as far as
// they are about a definition by itself: its names and its versions. Its schemas are
// not looked at here.
package apiextensions

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Definition is what makes a custom resource.
type Definition = apiextensionsv1.CustomResourceDefinition

// Default fills in the names that follow from the kind, and how versions are
// converted.
func Default(d *Definition) { apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(d) }

// NewStatus tells in which version objects may be stored.
func NewStatus(d *Definition) { d.Status.StoredVersions = withStorage(nil, d) }

// KeepStored adds the version that is stored from now on.
func KeepStored(next, _ *Definition) {
	next.Status.StoredVersions = withStorage(next.Status.StoredVersions, next)
}

func withStorage(all []string, d *Definition) []string {
	i := slices.IndexFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	if i < 0 || slices.Contains(all, d.Spec.Versions[i].Name) {
		return all
	}
	return append(slices.Clone(all), d.Spec.Versions[i].Name)
}

// Validate checks the names, the group, the scope and the versions of a definition.
func Validate(d *Definition) field.ErrorList {
	var errs field.ErrorList
	s, path := &d.Spec, field.NewPath("spec")
	if d.Name != s.Names.Plural+"."+s.Group {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), d.Name, `must be spec.names.plural+"."+spec.group`))
	}
	errs = append(errs, validateSpec(s, path)...)
	return append(errs, validateStored(d)...)
}

// ValidateUpdate lets no definition become that of another resource; once it is
// established, its kind and scope stay too.
func ValidateUpdate(d, old *Definition) field.ErrorList {
	s, was, path := &d.Spec, &old.Spec, field.NewPath("spec")
	errs := validateSpec(s, path)
	if established(old) {
		errs = append(errs, apivalidation.ValidateImmutableField(s.Scope, was.Scope, path.Child("scope"))...)
		errs = append(errs, apivalidation.ValidateImmutableField(s.Names.Kind, was.Names.Kind, path.Child("names", "kind"))...)
	}
	errs = append(errs, apivalidation.ValidateImmutableField(s.Group, was.Group, path.Child("group"))...)
	errs = append(errs, apivalidation.ValidateImmutableField(s.Names.Plural, was.Names.Plural, path.Child("names", "plural"))...)
	return append(errs, validateStored(d)...)
}

func established(d *Definition) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
}

var scopes = []apiextensionsv1.ResourceScope{apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped}

func join(wrong []string) string { return strings.Join(wrong, ",") }

func validateSpec(s *apiextensionsv1.CustomResourceDefinitionSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("group")
	if wrong := validation.IsDNS1123Subdomain(s.Group); s.Group == "" {
		errs = append(errs, field.Required(at, ""))
	} else if len(wrong) > 0 {
		errs = append(errs, field.Invalid(at, s.Group, join(wrong)))
	} else if !strings.Contains(s.Group, ".") {
		errs = append(errs, field.Invalid(at, s.Group, "should be a domain with at least one dot"))
	}
	at = path.Child("scope")
	if s.Scope == "" {
		errs = append(errs, field.Required(at, ""))
	} else if !slices.Contains(scopes, s.Scope) {
		errs = append(errs, field.NotSupported(at, s.Scope, scopes))
	}
	errs = append(errs, validateVersions(s.Versions, path.Child("versions"))...)
	at = path.Child("names")
	for _, n := range []struct{ field, name string }{{"plural", s.Names.Plural}, {"singular", s.Names.Singular}, {"kind", s.Names.Kind}, {"listKind", s.Names.ListKind}} {
		if n.name == "" {
			errs = append(errs, field.Required(at.Child(n.field), ""))
		}
	}
	return append(errs, validateNames(&s.Names, at)...)
}

func validateVersions(all []apiextensionsv1.CustomResourceDefinitionVersion, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range all {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			errs = append(errs, field.Required(path.Index(i).Child("schema", "openAPIV3Schema"), ""))
		}
	}
	names, stored := map[string]bool{}, 0
	for i, v := range all {
		if wrong := validation.IsDNS1035Label(v.Name); len(wrong) > 0 {
			errs = append(errs, field.Invalid(path.Index(i).Child("name"), v.Name, join(wrong)))
		}
		names[v.Name] = true
		if v.Storage {
			stored++
		}
	}
	if len(names) < len(all) {
		errs = append(errs, field.Invalid(path, shown(all), "must contain unique version names"))
	}
	if stored != 1 {
		errs = append(errs, field.Invalid(path, shown(all), "must have exactly one version marked as storage version"))
	}
	// The wire has the first version a second time, by itself.
	if len(all) > 0 && all[0].Name != "" {
		if wrong := validation.IsDNS1035Label(all[0].Name); len(wrong) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("spec", "version"), all[0].Name, join(wrong)))
		}
	}
	return errs
}

// shown is how errors show versions: what they all have the same is not theirs.
func shown(all []apiextensionsv1.CustomResourceDefinitionVersion) any {
	all = slices.Clone(all)
	same := func(of func(v *apiextensionsv1.CustomResourceDefinitionVersion) any) bool {
		return !slices.ContainsFunc(all, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return !equality.Semantic.DeepEqual(of(&v), of(&all[0]))
		})
	}
	schema := same(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.Schema })
	subresources := same(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.Subresources })
	columns := same(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.AdditionalPrinterColumns })
	fields := same(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.SelectableFields })
	for i := range all {
		v := &all[i]
		if schema {
			v.Schema = nil
		}
		if subresources {
			v.Subresources = nil
		}
		if columns {
			v.AdditionalPrinterColumns = nil
		}
		if fields {
			v.SelectableFields = nil
		}
	}
	return check.Bare(all)
}

// validateNames checks the names that are there.
func validateNames(n *apiextensionsv1.CustomResourceDefinitionNames, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	check := func(at *field.Path, name, checked, words string) {
		if wrong := validation.IsDNS1035Label(checked); len(wrong) > 0 {
			errs = append(errs, field.Invalid(at, name, words+join(wrong)))
		}
	}
	const mixed = "may have mixed case, but should otherwise match: "
	for _, x := range []struct{ field, name, checked, words string }{
		{"plural", n.Plural, n.Plural, ""},
		{"singular", n.Singular, n.Singular, ""},
		{"kind", n.Kind, strings.ToLower(n.Kind), mixed},
		{"listKind", n.ListKind, strings.ToLower(n.ListKind), mixed},
	} {
		if x.name != "" {
			check(path.Child(x.field), x.name, x.checked, x.words)
		}
	}
	for i, name := range n.ShortNames {
		check(path.Child("shortNames").Index(i), name, name, "")
	}
	if n.Kind != "" && n.Kind == n.ListKind {
		errs = append(errs, field.Invalid(path.Child("listKind"), n.ListKind, "kind and listKind may not be the same"))
	}
	for i, name := range n.Categories {
		check(path.Child("categories").Index(i), name, name, "")
	}
	return errs
}

// validateStored: what may be stored in a version is readable only as long as the
// version is there.
func validateStored(d *Definition) field.ErrorList {
	path, stored := field.NewPath("status", "storedVersions"), d.Status.StoredVersions
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(path, stored, "must have at least one stored version")}
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	for _, v := range d.Spec.Versions {
		if v.Storage && (seen[v.Name] || !slices.Contains(stored, v.Name)) {
			errs = append(errs, field.Invalid(path, stored, "must have the storage version "+v.Name))
		}
		seen[v.Name] = true
	}
	for i, name := range stored {
		if !seen[name] {
			errs = append(errs, field.Invalid(path.Index(i), name, "missing from spec.versions; "+name+" was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in "+name+" and removes "+name+" from status.storedVersions"))
		}
	}
	return errs
}
