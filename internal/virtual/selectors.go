package virtual

import (
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// validateSelectors checks the selectors of a review. Operators that this version does not know are
// allowed, and ignored: the decision is then about more objects than the review selects.
func validateSelectors(a *authorizationv1.ResourceAttributes) field.ErrorList {
	if a == nil {
		return nil
	}
	path := field.NewPath("spec.resourceAttributes")
	var errs field.ErrorList
	if s := a.FieldSelector; s != nil {
		path := path.Child("fieldSelector")
		errs = append(errs, validateForms(path, s.RawSelector, len(s.Requirements))...)
		options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r, options, path.Child("requirements").Index(i))...)
		}
	}
	if s := a.LabelSelector; s != nil {
		path := path.Child("labelSelector")
		errs = append(errs, validateForms(path, s.RawSelector, len(s.Requirements))...)
		options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
		for i, r := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r, options, path.Child("requirements").Index(i))...)
		}
	}
	return errs
}

// validateForms requires one of the two forms of a selector.
func validateForms(path *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(path.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(path.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", path))}
	}
	return nil
}

// setSelectors copies the selectors of a review to the attributes. It returns the text for
// evaluationError about the parts that cannot be used.
func setSelectors(a *authz.Attributes, r *authorizationv1.ResourceAttributes) (ignored []string) {
	note := func(name, used string, ok bool) {
		switch {
		case ok:
		case used == "":
			ignored = append(ignored, "spec.resourceAttributes."+name+" ignored due to parse error")
		default:
			ignored = append(ignored, "spec.resourceAttributes."+name+" partially ignored due to parse error")
		}
	}
	if s := r.FieldSelector; s != nil {
		a.FieldSelector = s.RawSelector
		ok := true
		if len(s.Requirements) > 0 {
			a.FieldSelector, ok = fieldText(s.Requirements)
		}
		if _, err := a.FieldRequirements(); err != nil {
			a.FieldSelector, ok = "", false
		}
		note("fieldSelector", a.FieldSelector, ok)
	}
	if s := r.LabelSelector; s != nil {
		a.LabelSelector = s.RawSelector
		ok := true
		if len(s.Requirements) > 0 {
			a.LabelSelector, ok = labelText(s.Requirements)
		}
		if _, err := a.LabelRequirements(); err != nil {
			a.LabelSelector, ok = "", false
		}
		note("labelSelector", a.LabelSelector, ok)
	}
	return ignored
}

// fieldText writes requirements as a field selector. ok is false if some have no such form.
func fieldText(requirements []metav1.FieldSelectorRequirement) (text string, ok bool) {
	operators := map[metav1.FieldSelectorOperator]string{metav1.FieldSelectorOpIn: "=", metav1.FieldSelectorOpNotIn: "!="}
	var terms []string
	for _, r := range requirements {
		operator := operators[r.Operator]
		if operator != "" && len(r.Values) == 1 && !strings.ContainsAny(r.Key, `=!,\`) {
			terms = append(terms, r.Key+operator+fields.EscapeValue(r.Values[0]))
		}
	}
	return strings.Join(terms, ","), len(terms) == len(requirements)
}

// labelText writes requirements as a label selector. ok is false if some have no such form.
func labelText(requirements []metav1.LabelSelectorRequirement) (text string, ok bool) {
	operators := map[metav1.LabelSelectorOperator]selection.Operator{
		metav1.LabelSelectorOpIn: selection.In, metav1.LabelSelectorOpNotIn: selection.NotIn,
		metav1.LabelSelectorOpExists: selection.Exists, metav1.LabelSelectorOpDoesNotExist: selection.DoesNotExist,
	}
	var terms []string
	for _, r := range requirements {
		one, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if err == nil {
			terms = append(terms, one.String())
		}
	}
	return strings.Join(terms, ","), len(terms) == len(requirements)
}
