package admissionregistration

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// DefaultValidatingBinding sets the defaults of the matched resources.
func DefaultValidatingBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	defaultResources(b.Spec.MatchResources)
}

// DefaultMutatingBinding sets the defaults of the matched resources.
func DefaultMutatingBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	defaultResources(b.Spec.MatchResources)
}

// ValidateValidatingBinding checks the policy, parameters, matched resources and actions of a
// binding.
func ValidateValidatingBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	s, path := &b.Spec, field.NewPath("spec")
	errs := validateBinding(s.PolicyName, s.ParamRef, s.MatchResources, path)
	return append(errs, validateActions(s.ValidationActions, path.Child("validationActions"))...)
}

// ValidateValidatingBindingUpdate checks the new object like a created one.
func ValidateValidatingBindingUpdate(b, _ *admissionregistrationv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	return ValidateValidatingBinding(b)
}

// ValidateMutatingBinding checks the policy, parameters and matched resources of a binding.
func ValidateMutatingBinding(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	s, path := &b.Spec, field.NewPath("spec")
	errs := validateBinding(s.PolicyName, s.ParamRef, s.MatchResources, path)
	return append(errs, validateMutable(s.MatchResources, path.Child("matchResources"))...)
}

// ValidateMutatingBindingUpdate checks the new object like a created one.
func ValidateMutatingBindingUpdate(b, _ *admissionregistrationv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	return ValidateMutatingBinding(b)
}

func validateBinding(policy string, params *admissionregistrationv1.ParamRef, match *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("policyName")
	if policy == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		for _, wrong := range validation.NameIsDNSSubdomain(policy, false) {
			errs = append(errs, field.Invalid(at, policy, wrong))
		}
	}
	if params != nil {
		errs = append(errs, validateParams(params, path.Child("paramRef"))...)
	}
	return append(errs, validateResources(match, path.Child("matchResources"))...)
}

// validateParams checks the reference to the parameters: a name or a label selector.
func validateParams(p *admissionregistrationv1.ParamRef, path *field.Path) field.ErrorList {
	const exclusive = "name and selector are mutually exclusive"
	var errs field.ErrorList
	both := p.Name != "" && p.Selector != nil
	if p.Name != "" {
		for _, wrong := range content.IsPathSegmentName(p.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), p.Name, wrong))
		}
	}
	if both {
		errs = append(errs, field.Forbidden(path.Child("name"), exclusive))
	}
	errs = append(errs, validateSelector(p.Selector, path.Child("selector"))...)
	if both {
		errs = append(errs, field.Forbidden(path.Child("selector"), exclusive))
	}
	if p.Name == "" && p.Selector == nil {
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}
	at := path.Child("parameterNotFoundAction")
	if p.ParameterNotFoundAction == nil || *p.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, supported(p.ParameterNotFoundAction, at, admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction)...)
}

func validateActions(all []admissionregistrationv1.ValidationAction, path *field.Path) field.ErrorList {
	const deny, warn = admissionregistrationv1.Deny, admissionregistrationv1.Warn
	var errs field.ErrorList
	var seen check.Seen[admissionregistrationv1.ValidationAction]
	for i, a := range all {
		errs = append(errs, supported(&a, path.Index(i), admissionregistrationv1.Audit, deny, warn)...)
		if seen.Again(a) {
			errs = append(errs, field.Duplicate(path.Index(i), a))
		}
	}
	if slices.Contains(all, deny) && slices.Contains(all, warn) {
		errs = append(errs, field.Invalid(path, all, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if len(all) == 0 {
		errs = append(errs, field.Required(path, "at least one validation action is required"))
	}
	return errs
}
