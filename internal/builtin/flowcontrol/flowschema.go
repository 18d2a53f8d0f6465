// Package flowcontrol has the rules of the kinds of flowcontrol.apiserver.k8s.io.
package flowcontrol

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	defaultPrecedence = 1000
	highestPrecedence = 10000
	exempt            = flowcontrolv1.FlowSchemaNameExempt
	catchAll          = flowcontrolv1.FlowSchemaNameCatchAll
	every             = "*"
)

// DefaultFlowSchema sets the default precedence.
func DefaultFlowSchema(f *flowcontrolv1.FlowSchema) {
	if f.Spec.MatchingPrecedence == 0 {
		f.Spec.MatchingPrecedence = defaultPrecedence
	}
}

// ValidateFlowSchema checks the level and the rules of a schema. The mandatory FlowSchemas are
// immutable.
func ValidateFlowSchema(f *flowcontrolv1.FlowSchema) field.ErrorList {
	path := field.NewPath("spec")
	errs := validateFlows(f.Name, &f.Spec, path)
	if fixed, ok := fixedSchemas[f.Name]; ok && !equality.Semantic.DeepEqual(f.Spec, fixed) {
		errs = append(errs, field.Invalid(path, check.Bare(f.Spec), fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name)))
	}
	return append(errs, validateSchemaStatus(f)...)
}

// ValidateFlowSchemaUpdate checks the new object like a created one.
func ValidateFlowSchemaUpdate(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return ValidateFlowSchema(f)
}

// ValidateFlowSchemaStatus checks the status.
func ValidateFlowSchemaStatus(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateSchemaStatus(f)
}

func validateSchemaStatus(f *flowcontrolv1.FlowSchema) field.ErrorList {
	return validateTypes(len(f.Status.Conditions), func(i int) string { return string(f.Status.Conditions[i].Type) })
}

// validateTypes checks that the types of conditions are set and unique.
func validateTypes(n int, at func(int) string) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range n {
		path, t := field.NewPath("status", "conditions").Index(i).Child("type"), at(i)
		if seen[t] {
			errs = append(errs, field.Duplicate(path, t))
		}
		seen[t] = true
		if t == "" {
			errs = append(errs, field.Required(path, ""))
		}
	}
	return errs
}

var distinguishers = []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}

func validateFlows(name string, s *flowcontrolv1.FlowSchemaSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	at, p := path.Child("matchingPrecedence"), s.MatchingPrecedence
	if p <= 0 {
		errs = append(errs, field.Invalid(at, p, "must be a positive value"))
	}
	if p > highestPrecedence {
		errs = append(errs, field.Invalid(at, p, fmt.Sprintf("must not be greater than %v", highestPrecedence)))
	}
	if p == 1 && name != exempt {
		errs = append(errs, field.Invalid(at, p, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if d := s.DistinguisherMethod; d != nil && !slices.Contains(distinguishers, d.Type) {
		errs = append(errs, field.NotSupported(path.Child("distinguisherMethod", "type"), check.Bare(d), distinguishers))
	}
	at = path.Child("priorityLevelConfiguration", "name")
	if level := s.PriorityLevelConfiguration.Name; level == "" {
		errs = append(errs, field.Required(at, "must reference a priority level"))
	} else {
		for _, wrong := range validation.NameIsDNSSubdomain(level, false) {
			errs = append(errs, field.Invalid(at, level, wrong))
		}
	}
	for i := range s.Rules {
		errs = append(errs, validateRule(&s.Rules[i], path.Child("rules").Index(i))...)
	}
	return errs
}

func validateRule(r *flowcontrolv1.PolicyRulesWithSubjects, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(path.Child("subjects"), "subjects must contain at least one value"))
	}
	for i := range r.Subjects {
		errs = append(errs, validateSubject(&r.Subjects[i], path.Child("subjects").Index(i))...)
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(path, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	for i := range r.ResourceRules {
		errs = append(errs, validateResourceRule(&r.ResourceRules[i], path.Child("resourceRules").Index(i))...)
	}
	for i := range r.NonResourceRules {
		errs = append(errs, validatePathRule(&r.NonResourceRules[i], path.Child("nonResourceRules").Index(i))...)
	}
	return errs
}

var subjectKinds = []flowcontrolv1.SubjectKind{flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser}

func validateSubject(s *flowcontrolv1.Subject, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.Kind {
	case flowcontrolv1.SubjectKindServiceAccount:
		errs = validateAccount(s.ServiceAccount, path.Child("serviceAccount"))
	case flowcontrolv1.SubjectKindUser:
		errs = validateNamed(s.User != nil, func() string { return s.User.Name }, "user", path)
	case flowcontrolv1.SubjectKindGroup:
		errs = validateNamed(s.Group != nil, func() string { return s.Group.Name }, "group", path)
	default:
		return field.ErrorList{field.NotSupported(path.Child("kind"), s.Kind, subjectKinds)}
	}
	for _, other := range []struct {
		kind  flowcontrolv1.SubjectKind
		name  string
		there bool
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
	} {
		if other.there && other.kind != s.Kind {
			errs = append(errs, field.Forbidden(path.Child(other.name), fmt.Sprintf("%s is forbidden when subject kind is not '%s'", other.name, other.kind)))
		}
	}
	return errs
}

// validateNamed checks a user or a group of a subject.
func validateNamed(there bool, name func() string, what string, path *field.Path) field.ErrorList {
	at := path.Child(what)
	switch {
	case !there:
		kind := strings.ToUpper(what[:1]) + what[1:]
		return field.ErrorList{field.Required(at, fmt.Sprintf("%s is required when subject kind is '%s'", what, kind))}
	case name() == "":
		return field.ErrorList{field.Required(at.Child("name"), "")}
	}
	return nil
}

func validateAccount(a *flowcontrolv1.ServiceAccountSubject, path *field.Path) field.ErrorList {
	if a == nil {
		return field.ErrorList{field.Required(path, "serviceAccount is required when subject kind is 'ServiceAccount'")}
	}
	var errs field.ErrorList
	if a.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else if a.Name != every {
		for _, wrong := range validation.ValidateServiceAccountName(a.Name, false) {
			errs = append(errs, field.Invalid(path.Child("name"), a.Name, wrong))
		}
	}
	if a.Namespace == "" {
		return append(errs, field.Required(path.Child("namespace"), "must specify namespace for service account"))
	}
	for _, wrong := range validation.ValidateNamespaceName(a.Namespace, false) {
		errs = append(errs, field.Invalid(path.Child("namespace"), a.Namespace, wrong))
	}
	return errs
}

var verbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validateVerbs(all []string, path *field.Path) field.ErrorList {
	known := func(v string) bool { return slices.Contains(verbs, v) }
	switch {
	case len(all) == 0:
		return field.ErrorList{field.Required(path, "verbs must contain at least one value")}
	case slices.Contains(all, every):
		return onlyEvery(all, "verbs", path)
	case slices.ContainsFunc(all, func(v string) bool { return !known(v) }):
		return field.ErrorList{field.NotSupported(path, all, verbs)}
	}
	return nil
}

// onlyEvery checks that "*" is the only entry of a list.
func onlyEvery(all []string, what string, path *field.Path) field.ErrorList {
	if len(all) > 1 && slices.Contains(all, every) {
		return field.ErrorList{field.Invalid(path, all, fmt.Sprintf("if '*' is present, must not specify other %s", what))}
	}
	return nil
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	if len(r.APIGroups) == 0 {
		errs = append(errs, field.Required(path.Child("apiGroups"), "resource rules must supply at least one api group"))
	}
	errs = append(errs, onlyEvery(r.APIGroups, "api groups", path.Child("apiGroups"))...)
	if len(r.Resources) == 0 {
		errs = append(errs, field.Required(path.Child("resources"), "resource rules must supply at least one resource"))
	}
	errs = append(errs, onlyEvery(r.Resources, "resources", path.Child("resources"))...)
	at := path.Child("namespaces")
	switch {
	case len(r.Namespaces) == 0 && !r.ClusterScope:
		return append(errs, field.Required(at, "resource rules that are not cluster scoped must supply at least one namespace"))
	case slices.Contains(r.Namespaces, every):
		return append(errs, onlyEvery(r.Namespaces, "namespaces", at)...)
	}
	for i, namespace := range r.Namespaces {
		for _, wrong := range validation.ValidateNamespaceName(namespace, false) {
			errs = append(errs, field.Invalid(at.Index(i), namespace, "each member of this list must be '*' or a DNS-1123 label; "+wrong))
		}
	}
	return errs
}

func validatePathRule(r *flowcontrolv1.NonResourcePolicyRule, path *field.Path) field.ErrorList {
	errs := validateVerbs(r.Verbs, path.Child("verbs"))
	at := path.Child("nonResourceURLs")
	switch {
	case len(r.NonResourceURLs) == 0:
		return append(errs, field.Required(at, "nonResourceURLs must contain at least one value"))
	case slices.Contains(r.NonResourceURLs, every):
		return append(errs, onlyEvery(r.NonResourceURLs, "non-resource URLs", at)...)
	}
	for i, u := range r.NonResourceURLs {
		if wrong := wrongPath(u); wrong != "" {
			errs = append(errs, field.Invalid(at.Index(i), u, wrong))
		}
	}
	return errs
}

// wrongPath returns the error of a non-resource path, or "". A path may end in "*".
func wrongPath(path string) string {
	stars := strings.Count(path, every)
	switch {
	case path == "":
		return "must not be empty"
	case path == "/":
	case path[0] != '/':
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1 || stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}
