package crd

import (
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// objectMeta is the reference to the schema of metadata in version 3.
const objectMeta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// selectableFields is the extension that lists the selectable fields.
const selectableFields = "x-kubernetes-selectable-fields"

// Descriptions of the members of an embedded object.
const (
	embeddedVersionText = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	embeddedKindText    = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

var (
	partialTexts = metav1.PartialObjectMetadata{}.SwaggerDoc()
	typeTexts    = metav1.TypeMeta{}.SwaggerDoc()
)

// openAPI returns the published schema of the version for version 2 or 3 of OpenAPI.
func (v *version) openAPI(number int) (*spec.Schema, error) {
	s, err := v.structural()
	if err != nil {
		return nil, err
	}
	object := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
	if s == nil {
		return object, nil
	}
	has := inside(*s)
	if has&anIntOrString != 0 {
		s = s.DeepCopy().Unfold()
	}
	if number == 2 {
		if s.XPreserveUnknownFields {
			return object, nil // kubectl would reject members that it does not find here
		}
		s = openapiv2.ToStructuralOpenAPIV2(s)
	}
	shown := s.ToKubeOpenAPI()
	addIdentity(shown, typeTexts["apiVersion"], typeTexts["kind"])
	if has&anEmbedded != 0 {
		addEmbedded(shown, number)
	}
	if fields := v.SelectableFields; len(fields) > 0 {
		list := make([]any, len(fields))
		for i, f := range fields {
			list[i] = map[string]any{"fieldPath": strings.TrimPrefix(f.JSONPath, ".")}
		}
		shown.AddExtension(selectableFields, list)
	}
	return shown, nil
}

// structural returns the schema of the version, nil if there is none or it is not a valid
// structural schema. The caller must not change it.
func (v *version) structural() (*structuralschema.Structural, error) {
	if c := v.compiled.Load(); c != nil {
		return c.valid(), nil
	}
	props, err := v.props(func(*apiextensionsv1.JSONSchemaProps) {})
	if err != nil || props == nil {
		return nil, err
	}
	s, err := structuralschema.NewStructural(props)
	if err != nil || len(structuralschema.ValidateStructural(nil, s)) > 0 {
		return nil, nil
	}
	return s, nil
}

// managed returns the schema for managed fields. It compiles the version, because a write
// needs that in any case.
func (v *version) managed() (*structuralschema.Structural, error) {
	c, err := v.schema()
	if err != nil {
		return nil, err
	}
	return c.valid(), nil
}

// addIdentity adds apiVersion, kind and metadata.
func addIdentity(s *spec.Schema, apiVersion, kind string) {
	text := func(description string) spec.Schema { return *spec.StringProperty().WithDescription(description) }
	s.SetProperty("apiVersion", text(apiVersion))
	s.SetProperty("kind", text(kind))
	s.SetProperty("metadata", *spec.RefSchema(objectMeta).WithDescription(partialTexts["metadata"]))
}

// addEmbedded adds them to embedded objects.
func addEmbedded(s *spec.Schema, number int) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		addEmbedded(&p, number)
		s.Properties[name] = p
	}
	if s.Items != nil {
		addEmbedded(s.Items.Schema, number)
	}
	if s.AdditionalProperties != nil {
		addEmbedded(s.AdditionalProperties.Schema, number)
	}
	if keep, ok := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); ok && keep && number == 2 {
		return
	}
	if embedded, ok := s.Extensions.GetBool("x-kubernetes-embedded-resource"); !ok || !embedded {
		return
	}
	addIdentity(s, embeddedVersionText, embeddedKindText)
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(slices.Clip(s.Required), name) // it is the structural schema's
		}
	}
}
