package celenv

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ruleWork is the least work of a rule or message expression. The library makes an environment for each, which takes
// a millisecond and 100 KiB.
const ruleWork = MaxWorkOfAll / 1000

// CheckRules returns errors for the rules of a custom resource's schema that take too long to type-check. It adds the work
// of the rules, at least ruleWork for each, to *work, and refuses all further rules once that exceeds MaxWorkOfAll.
func CheckRules(s *apiextensionsv1.JSONSchemaProps, path *field.Path, work *int) field.ErrorList {
	var errs field.ErrorList
	eachText(s, path, func(text *string, deepest int, path *field.Path) {
		if *text == "" {
			return
		}
		n, err := 0, ErrWorkOfAll
		if *work <= MaxWorkOfAll-ruleWork {
			n, err = Work(*text, deepest)
		}
		if *work += max(n, ruleWork); err != nil {
			errs = append(errs, field.Invalid(path, *text, "compilation failed: "+err.Error()))
		}
	})
	return errs
}

// costlyText replaces a stored expression that takes too long to type-check. It does not compile, so objects are refused
// with an error that contains it.
const costlyText = "expression_takes_too_long_to_check"

// DisableCostlyRules replaces the rules and message expressions of a stored schema that take more than MaxWork to
// type-check with costlyText.
func DisableCostlyRules(s *apiextensionsv1.JSONSchemaProps) {
	eachText(s, nil, func(text *string, deepest int, _ *field.Path) {
		if _, err := Work(*text, deepest); err != nil {
			*text = costlyText
		}
	})
}

// eachText calls check for each rule and message expression of a schema.
func eachText(s *apiextensionsv1.JSONSchemaProps, path *field.Path, check func(text *string, deepest int, path *field.Path)) {
	deepest := 1
	partsOf(s, &deepest)
	eachRule(s, path, func(r *apiextensionsv1.ValidationRule, path *field.Path) {
		check(&r.Rule, deepest, path.Child("rule"))
		check(&r.MessageExpression, deepest, path.Child("messageExpression"))
	})
}

// eachRule calls f for each rule of a schema.
func eachRule(s *apiextensionsv1.JSONSchemaProps, path *field.Path, f func(r *apiextensionsv1.ValidationRule, path *field.Path)) {
	if s == nil {
		return
	}
	for i := range s.XValidations {
		f(&s.XValidations[i], path.Child("x-kubernetes-validations").Index(i))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		eachRule(&p, path.Child("properties").Key(name), f)
	}
	for i := range s.AllOf {
		eachRule(&s.AllOf[i], path.Child("allOf").Index(i), f)
	}
	if s.Items != nil {
		eachRule(s.Items.Schema, path.Child("items"), f)
	}
	if s.AdditionalProperties != nil {
		eachRule(s.AdditionalProperties.Schema, path.Child("additionalProperties"), f)
	}
}

// partsOf returns the number of parts of a schema's type, and sets the largest of those in it: see Deepest.
func partsOf(s *apiextensionsv1.JSONSchemaProps, most *int) int {
	if s == nil {
		return 1
	}
	parts := 1
	if s.Items != nil {
		parts = 1 + partsOf(s.Items.Schema, most)
	}
	if s.AdditionalProperties != nil {
		parts = 2 + partsOf(s.AdditionalProperties.Schema, most)
	}
	for name := range s.Properties {
		p := s.Properties[name]
		partsOf(&p, most)
	}
	*most = max(*most, parts)
	return parts
}
