package admissionregistration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	mostAnnotations      = 20
	longestAnnotationCEL = 5 << 10 // bytes
)

// DefaultValidatingPolicy sets the defaults of the failure policy and of the matched resources.
func DefaultValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) {
	fill(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultResources(p.Spec.MatchConstraints)
}

// DefaultMutatingPolicy sets the defaults of the failure policy and of the matched resources.
func DefaultMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) {
	fill(&p.Spec.FailurePolicy, admissionregistrationv1.Fail)
	defaultResources(p.Spec.MatchConstraints)
}

// validatePolicy checks the fields that both kinds of policies share, except for their expressions.
func validatePolicy(failure *admissionregistrationv1.FailurePolicyType, params *admissionregistrationv1.ParamKind, match *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	errs := validateFailurePolicy(failure, path.Child("failurePolicy"))
	if params != nil {
		errs = append(errs, validateParamKind(params, path.Child("paramKind"))...)
	}
	at := path.Child("matchConstraints")
	if match == nil {
		return append(errs, field.Required(at, ""))
	}
	errs = append(errs, validateResources(match, at)...)
	if len(match.ResourceRules) == 0 {
		errs = append(errs, field.Required(at.Child("resourceRules"), ""))
	}
	return errs
}

// ValidateValidatingPolicy checks a new validating policy.
func ValidateValidatingPolicy(p *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	return validateValidatingPolicy(p, nil)
}

// ValidateValidatingPolicyUpdate checks the new object.
func ValidateValidatingPolicyUpdate(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	return validateValidatingPolicy(p, old)
}

func validateValidatingPolicy(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	s, path := &p.Spec, field.NewPath("spec")
	e := newExpressions(s.ParamKind, len(s.Variables) > 0)
	sameConditions := false
	if old != nil {
		e.storedInValidating(&old.Spec)
		sameConditions = sameExpressions(s.ParamKind, old.Spec.ParamKind, s.MatchConditions, old.Spec.MatchConditions)
	}
	errs := validatePolicy(s.FailurePolicy, s.ParamKind, s.MatchConstraints, path)
	if !sameConditions {
		errs = append(errs, validateConditions(s.MatchConditions, e, path.Child("matchConditions"))...)
	}
	errs = append(errs, validateVariables(s.Variables, e, path.Child("variables"))...)
	notes := path.Child("auditAnnotations")
	if len(s.Validations)+len(s.AuditAnnotations) == 0 {
		const words = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(path.Child("validations"), words), field.Required(notes, words))
	}
	for i := range s.Validations {
		errs = append(errs, validateValidation(&s.Validations[i], e, path.Child("validations").Index(i))...)
	}
	if len(s.AuditAnnotations) > mostAnnotations {
		errs = append(errs, field.Invalid(notes, check.Bare(s.AuditAnnotations), fmt.Sprintf("must not have more than %d auditAnnotations", mostAnnotations)))
	}
	var keys check.Seen[string]
	for i, a := range s.AuditAnnotations {
		errs = append(errs, validateAnnotation(p.Name, &a, e, notes.Index(i))...)
		if keys.Again(a.Key) {
			errs = append(errs, field.Duplicate(notes.Index(i).Child("key"), a.Key))
		}
	}
	return errs
}

// storedInValidating sets the expressions of the stored policy.
func (e *expressions) storedInValidating(s *admissionregistrationv1.ValidatingAdmissionPolicySpec) {
	e.conditions = conditionTexts(s.MatchConditions)
	for i := range s.Validations {
		e.validations = append(e.validations, s.Validations[i].Expression)
		e.messages = append(e.messages, s.Validations[i].MessageExpression)
	}
	for i := range s.AuditAnnotations {
		e.annotations = append(e.annotations, s.AuditAnnotations[i].ValueExpression)
	}
}

// sameExpressions reports whether the match conditions and the kind of the parameters are
// unchanged, so that the conditions need no check.
func sameExpressions(params, oldParams *admissionregistrationv1.ParamKind, all, old []admissionregistrationv1.MatchCondition) bool {
	return equality.Semantic.DeepEqual(params, oldParams) && equality.Semantic.DeepEqual(all, old)
}

// ValidateValidatingPolicyStatus checks the status.
func ValidateValidatingPolicyStatus(p, _ *admissionregistrationv1.ValidatingAdmissionPolicy) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("status")
	if t := p.Status.TypeChecking; t != nil {
		for i, w := range t.ExpressionWarnings {
			at := path.Child("typeChecking", "expressionWarnings").Index(i)
			if w.Warning == "" {
				errs = append(errs, field.Required(at.Child("warning"), ""))
			}
			if blank(w.FieldRef) {
				errs = append(errs, field.Required(at.Child("fieldRef"), ""))
			}
		}
	}
	return append(errs, metav1validation.ValidateConditions(p.Status.Conditions, path.Child("conditions"))...)
}

// mutable are the operations that a mutating policy can match: all but DELETE.
var mutable = []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll, admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update}

func validateMutable(m *admissionregistrationv1.MatchResources, path *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for i := range m.ResourceRules {
		for _, o := range m.ResourceRules[i].Operations {
			errs = append(errs, supported(&o, path.Child("resourceRules", "operations"), mutable...)...)
		}
	}
	return errs
}

// ValidateMutatingPolicy checks a new mutating policy.
func ValidateMutatingPolicy(p *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	return validateMutatingPolicy(p, nil)
}

// ValidateMutatingPolicyUpdate checks the new object.
func ValidateMutatingPolicyUpdate(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	return validateMutatingPolicy(p, old)
}

func validateMutatingPolicy(p, old *admissionregistrationv1.MutatingAdmissionPolicy) field.ErrorList {
	s, path := &p.Spec, field.NewPath("spec")
	e := newExpressions(s.ParamKind, true)
	sameConditions := false
	if old != nil {
		e.storedInMutating(&old.Spec)
		sameConditions = sameExpressions(s.ParamKind, old.Spec.ParamKind, s.MatchConditions, old.Spec.MatchConditions)
	}
	errs := validatePolicy(s.FailurePolicy, s.ParamKind, s.MatchConstraints, path)
	errs = append(errs, validateMutable(s.MatchConstraints, path.Child("matchConstraints"))...)
	if !sameConditions {
		errs = append(errs, validateConditions(s.MatchConditions, e, path.Child("matchConditions"))...)
	}
	errs = append(errs, validateVariables(s.Variables, e, path.Child("variables"))...)
	if len(s.Mutations) == 0 {
		errs = append(errs, field.Required(path.Child("mutations"), "mutations must contain at least one item"))
	}
	for i := range s.Mutations {
		errs = append(errs, validateMutation(&s.Mutations[i], e, path.Child("mutations").Index(i))...)
	}
	if s.ReinvocationPolicy == "" {
		return append(errs, field.Required(path.Child("reinvocationPolicy"), ""))
	}
	return append(errs, validateReinvocation(&s.ReinvocationPolicy, path.Child("reinvocationPolicy"))...)
}

// storedInMutating sets the expressions of the stored policy.
func (e *expressions) storedInMutating(s *admissionregistrationv1.MutatingAdmissionPolicySpec) {
	e.conditions = conditionTexts(s.MatchConditions)
	for i := range s.Mutations {
		if a := s.Mutations[i].ApplyConfiguration; a != nil {
			e.applied = append(e.applied, a.Expression)
		}
	}
}

// validateParamKind checks the kind of the parameters.
func validateParamKind(k *admissionregistrationv1.ParamKind, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := path.Child("apiVersion")
	group, version, ok := strings.Cut(k.APIVersion, "/")
	if !ok {
		group, version = "", k.APIVersion
	}
	join := func(wrong []string) string { return strings.Join(wrong, ",") }
	switch {
	case k.APIVersion == "":
		errs = append(errs, field.Required(at, ""))
	case strings.Contains(version, "/"):
		errs = append(errs, field.Invalid(at, k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion))
	default:
		if wrong := validation.IsDNS1123Subdomain(group); group != "" && len(wrong) > 0 {
			errs = append(errs, field.Invalid(at, group, join(wrong)))
		}
		if version == "" {
			errs = append(errs, field.Invalid(at, k.APIVersion, "version must be specified"))
		} else if wrong := validation.IsDNS1035Label(version); len(wrong) > 0 {
			errs = append(errs, field.Invalid(at, version, join(wrong)))
		}
	}
	if k.Kind == "" {
		errs = append(errs, field.Required(path.Child("kind"), ""))
	} else if wrong := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(wrong) > 0 {
		errs = append(errs, field.Invalid(path.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+join(wrong)))
	}
	return errs
}

func validateVariables(all []admissionregistrationv1.Variable, e *expressions, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range all {
		at := path.Index(i)
		if blank(v.Name) {
			errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
		} else if !isIdentifier(v.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		if blank(v.Expression) {
			errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
		} else {
			errs = append(errs, e.compose(&v, at.Child("expression"))...)
		}
	}
	return errs
}

// reserved are the words that cannot be identifiers in CEL.
var reserved = strings.Fields("true false null in as break const continue else for function if import let loop package namespace return var void while")

// isIdentifier reports whether a name can be a variable in CEL.
func isIdentifier(name string) bool {
	for i, c := range name {
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != "" && !slices.Contains(reserved, name)
}

var reasons = []metav1.StatusReason{metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge}

func validateValidation(v *admissionregistrationv1.Validation, e *expressions, path *field.Path) field.ErrorList {
	const nothing = "must be non-empty if specified"
	var errs field.ErrorList
	if at := path.Child("expression"); blank(v.Expression) {
		errs = append(errs, field.Required(at, "expression is not specified"))
	} else {
		errs = append(errs, e.validation(v.Expression, at)...)
	}
	switch at := path.Child("messageExpression"); {
	case v.MessageExpression == "":
	case blank(v.MessageExpression):
		errs = append(errs, field.Invalid(at, v.MessageExpression, nothing))
	default:
		errs = append(errs, e.message(v.MessageExpression, at)...)
	}
	switch at := path.Child("message"); {
	case v.Message != "" && blank(v.Message):
		errs = append(errs, field.Invalid(at, v.Message, nothing))
	case strings.ContainsAny(strings.TrimSpace(v.Message), "\r\n"):
		errs = append(errs, field.Invalid(at, v.Message, "must not contain line breaks"))
	}
	return append(errs, supported(v.Reason, path.Child("reason"), reasons...)...)
}

func validateAnnotation(policy string, a *admissionregistrationv1.AuditAnnotation, e *expressions, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if policy == "" {
		errs = append(errs, field.Invalid(path.Child("key"), a.Key, "requires metadata.name be non-empty"))
	} else {
		errs = append(errs, validateQualified(policy+"/"+a.Key, path.Child("key"))...)
	}
	switch at, text := path.Child("valueExpression"), strings.TrimSpace(a.ValueExpression); {
	case text == "":
		errs = append(errs, field.Required(at, "valueExpression is not specified"))
	case len(text) > longestAnnotationCEL:
		errs = append(errs, field.Required(at, fmt.Sprintf("must not exceed %d bytes in length", longestAnnotationCEL)))
	default:
		errs = append(errs, e.annotation(a.ValueExpression, at)...)
	}
	return errs
}

// validateMutation checks that a mutation has the one field that its patch type needs, and its
// expression.
func validateMutation(m *admissionregistrationv1.Mutation, e *expressions, path *field.Path) field.ErrorList {
	patch := part{at: path.Child("jsonPatch"), name: "jsonPatch", there: m.JSONPatch != nil, returns: patchesType}
	if patch.there {
		patch.text = m.JSONPatch.Expression
	}
	apply := part{at: path.Child("applyConfiguration"), name: "applyConfiguration", there: m.ApplyConfiguration != nil, returns: appliedType}
	if apply.there {
		apply.text = m.ApplyConfiguration.Expression
	}
	switch at := path.Child("patchType"); m.PatchType {
	case admissionregistrationv1.PatchTypeJSONPatch:
		return append(patch.wanted(m.PatchType, e), apply.unwanted(m.PatchType)...)
	case admissionregistrationv1.PatchTypeApplyConfiguration:
		return append(apply.wanted(m.PatchType, e), patch.unwanted(m.PatchType)...)
	case "":
		return field.ErrorList{field.Required(at, "")}
	default:
		return supported(&m.PatchType, at, admissionregistrationv1.PatchTypeApplyConfiguration, admissionregistrationv1.PatchTypeJSONPatch)
	}
}

// part is the field of a mutation for one patch type.
type part struct {
	at      *field.Path
	name    string
	there   bool
	text    string // the expression
	returns *cel.Type
}

func (p *part) wanted(t admissionregistrationv1.PatchType, e *expressions) field.ErrorList {
	at := p.at.Child("expression")
	switch {
	case !p.there:
		return field.ErrorList{field.Required(p.at, fmt.Sprintf("must be specified when patchType is %s", t))}
	case blank(p.text):
		return field.ErrorList{field.Required(at, "")}
	}
	return e.patch(p.text, p.returns, at)
}

func (p *part) unwanted(t admissionregistrationv1.PatchType) field.ErrorList {
	if !p.there {
		return nil
	}
	return field.ErrorList{field.Invalid(p.at, "{"+p.name+"}", fmt.Sprintf("must not be specified when patchType is %s", t))}
}
