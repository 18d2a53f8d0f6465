package crd

import (
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// objectMeta is the type of metadata among the schemas of OpenAPI, as version 3 names it.
const objectMeta = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// selectableFields tells clients by which fields they can select.
const selectableFields = "x-kubernetes-selectable-fields"

// What clients are told of an object within an object.
const (
	embeddedVersionText = "apiVersion defines the versioned schema of this representation of an object. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources"
	embeddedKindText    = "kind is a string value representing the type of this object. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds"
)

var (
	partialTexts = metav1.PartialObjectMetadata{}.SwaggerDoc()
	typeTexts    = metav1.TypeMeta{}.SwaggerDoc()
)

// openAPI makes the schema of a version as clients are shown it.
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
			return object, nil // kubectl would refuse members that it does not find here
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

// structural is the schema of a version, nil where there is none or it breaks the rules of
// structural schemas. It is not the caller's to change.
func (v *version) structural() (*structuralschema.Structural, error) {
	if c := v.compiled.Load(); c != nil {
		return c.valid(), nil
	}
	props, err := v.props()
	if err != nil || props == nil {
		return nil, err
	}
	s, err := structuralschema.NewStructural(props)
	if err != nil || len(structuralschema.ValidateStructural(nil, s)) > 0 {
		return nil, nil
	}
	return s, nil
}

// managed is structural of a version that is written to: compiled, as it will be needed.
// It fails where compiling does.
func (v *version) managed() (*structuralschema.Structural, error) {
	c, err := v.schema()
	if err != nil {
		return nil, err
	}
	return c.valid(), nil
}

// addIdentity adds what every object has.
func addIdentity(s *spec.Schema, apiVersion, kind string) {
	text := func(description string) spec.Schema { return *spec.StringProperty().WithDescription(description) }
	s.SetProperty("apiVersion", text(apiVersion))
	s.SetProperty("kind", text(kind))
	s.SetProperty("metadata", *spec.RefSchema(objectMeta).WithDescription(partialTexts["metadata"]))
}

// addEmbedded adds the same to the objects that stand within objects.
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
