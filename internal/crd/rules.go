package crd

import (
	"maps"
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// manyProperties is from how many on it pays to leave out those that no rule names:
// CEL makes a map of all of them each time that a rule looks at one.
const manyProperties = 8

// narrow leaves out of the schemas that rules look through what they never name. What
// the rules say stays the same: those that take an object as a whole, to compare it
// perhaps, keep all of it.
func narrow(v *cel.Validator) {
	if v == nil {
		return
	}
	narrow(v.Items)
	narrow(v.AdditionalProperties)
	for name, p := range v.Properties {
		narrow(&p)
		v.Properties[name] = p
	}
	if s := v.Schema; s != nil && s.Type == "object" && !s.XEmbeddedResource && len(s.Properties) > manyProperties && len(s.XValidations) > 0 {
		v.Schema = withNamed(s)
	}
}

var (
	selves = regexp.MustCompile(`\b(?:self|oldSelf)\b`)
	named  = regexp.MustCompile(`\b(?:self|oldSelf)\.\??([A-Za-z_][A-Za-z0-9_]*)`)
)

// metadataSeen are the parts of metadata that rules can name.
var metadataSeen = regexp.MustCompile(`\.metadata\.(?:name|generateName)\b`)

// comparesMetadata tells whether rules of a whole object may take its metadata as a
// whole, to compare it: all of it counts then, not what they can name alone.
func comparesMetadata(s *structuralschema.Structural) bool {
	for _, r := range s.XValidations {
		names := map[string]bool{}
		r.Rule, r.MessageExpression = metadataSeen.ReplaceAllString(r.Rule, ".seen"), metadataSeen.ReplaceAllString(r.MessageExpression, ".seen")
		if !namesOf(r, names) || names["metadata"] {
			return true
		}
	}
	return false
}

// withNamed is the schema of an object with those properties alone that its rules name;
// the schema itself where that is not clear.
func withNamed(s *structuralschema.Structural) *structuralschema.Structural {
	names := map[string]bool{}
	for _, r := range s.XValidations {
		if r.OptionalOldSelf != nil || !namesOf(r, names) {
			return s
		}
	}
	narrowed := *s
	narrowed.Properties = maps.Clone(s.Properties)
	maps.DeleteFunc(narrowed.Properties, func(name string, _ structuralschema.Structural) bool {
		escaped, ok := apiservercel.Escape(name)
		return !ok || !names[escaped]
	})
	return &narrowed
}

// namesOf adds the properties that a rule names. It is not clear which where the
// object stands alone.
func namesOf(r apiextensionsv1.ValidationRule, names map[string]bool) (clear bool) {
	for _, text := range []string{r.Rule, r.MessageExpression} {
		found := named.FindAllStringSubmatch(text, -1)
		if len(found) != len(selves.FindAllString(text, -1)) {
			return false
		}
		for _, each := range found {
			names[each[1]] = true
		}
	}
	return true
}
