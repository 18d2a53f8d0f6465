package admissionregistration

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	defaultTimeout = 10 // seconds
	longestTimeout = 30
	defaultPort    = 443
)

// DefaultValidatingWebhooks sets the defaults of each webhook.
func DefaultValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		h := &c.Webhooks[i]
		fill(&h.FailurePolicy, admissionregistrationv1.Fail)
		fill(&h.MatchPolicy, admissionregistrationv1.Equivalent)
		fill(&h.NamespaceSelector, metav1.LabelSelector{})
		fill(&h.ObjectSelector, metav1.LabelSelector{})
		fill(&h.TimeoutSeconds, defaultTimeout)
		defaultWebhook(&h.ClientConfig, h.Rules)
	}
}

// DefaultMutatingWebhooks sets the defaults of each webhook.
func DefaultMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		h := &c.Webhooks[i]
		fill(&h.FailurePolicy, admissionregistrationv1.Fail)
		fill(&h.MatchPolicy, admissionregistrationv1.Equivalent)
		fill(&h.NamespaceSelector, metav1.LabelSelector{})
		fill(&h.ObjectSelector, metav1.LabelSelector{})
		fill(&h.TimeoutSeconds, defaultTimeout)
		fill(&h.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultWebhook(&h.ClientConfig, h.Rules)
	}
}

func defaultWebhook(c *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
	if c.Service != nil {
		fill(&c.Service.Port, defaultPort)
	}
	for i := range rules {
		defaultRule(&rules[i].Rule)
	}
}

// ValidateValidatingWebhooks checks a new validating configuration.
func ValidateValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(commonOf(c.Webhooks), nil)
}

// ValidateValidatingWebhooksUpdate checks the new object.
func ValidateValidatingWebhooksUpdate(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(commonOf(c.Webhooks), commonOf(old.Webhooks))
}

// ValidateMutatingWebhooks checks a new mutating configuration.
func ValidateMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(c.Webhooks, nil)
}

// ValidateMutatingWebhooksUpdate checks the new object.
func ValidateMutatingWebhooksUpdate(c, old *admissionregistrationv1.MutatingWebhookConfiguration) field.ErrorList {
	return validateWebhooks(c.Webhooks, old.Webhooks)
}

// commonOf converts validating webhooks to mutating ones, whose type has all of their fields.
func commonOf(all []admissionregistrationv1.ValidatingWebhook) []admissionregistrationv1.MutatingWebhook {
	out := make([]admissionregistrationv1.MutatingWebhook, len(all))
	for i := range all {
		h := &all[i]
		out[i] = admissionregistrationv1.MutatingWebhook{
			Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy, MatchPolicy: h.MatchPolicy,
			NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects, TimeoutSeconds: h.TimeoutSeconds,
			AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions,
		}
	}
	return out
}

// validateWebhooks checks webhooks, given the stored ones. It does not check unchanged match
// conditions again.
func validateWebhooks(all, old []admissionregistrationv1.MutatingWebhook) field.ErrorList {
	var errs field.ErrorList
	e := newExpressions(nil, false)
	for i := range old {
		e.conditions = append(e.conditions, conditionTexts(old[i].MatchConditions)...)
	}
	same := len(old) > 0 && slices.EqualFunc(all, old, func(h, old admissionregistrationv1.MutatingWebhook) bool {
		return slices.Equal(h.MatchConditions, old.MatchConditions)
	})
	names := map[string]bool{}
	for i := range all {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateWebhook(&all[i], path)...)
		if !same {
			errs = append(errs, validateConditions(all[i].MatchConditions, e, path.Child("matchConditions"))...)
		}
		errs = append(errs, validateReviews(all[i].AdmissionReviewVersions, path.Child("admissionReviewVersions"))...)
		if name := all[i].Name; name != "" && names[name] {
			errs = append(errs, field.Duplicate(path.Child("name"), name))
		}
		names[all[i].Name] = true
	}
	return errs
}

// sideEffects are the side effects that v1 allows: none, or none on dry-run.
var sideEffects = []admissionregistrationv1.SideEffectClass{admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun}

func validateWebhook(h *admissionregistrationv1.MutatingWebhook, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.Name)
	for i := range h.Rules {
		errs = append(errs, validateRule(&h.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, validateFailurePolicy(h.FailurePolicy, path.Child("failurePolicy"))...)
	errs = append(errs, validateMatchPolicy(h.MatchPolicy, path.Child("matchPolicy"))...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	}
	errs = append(errs, supported(h.SideEffects, path.Child("sideEffects"), sideEffects...)...)
	if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > longestTimeout) {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *t, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, validateSelector(h.NamespaceSelector, path.Child("namespaceSelector"))...)
	errs = append(errs, validateSelector(h.ObjectSelector, path.Child("objectSelector"))...)
	errs = append(errs, validateReinvocation(h.ReinvocationPolicy, path.Child("reinvocationPolicy"))...)
	return append(errs, validateClient(&h.ClientConfig, path.Child("clientConfig"))...)
}

// reviews are the versions of AdmissionReview.
var reviews = []string{"v1", "v1beta1"}

func validateReviews(versions []string, path *field.Path) field.ErrorList {
	words := strings.Join(reviews, ", ")
	if len(versions) == 0 {
		return field.ErrorList{field.Required(path, "must specify one of "+words)}
	}
	var errs field.ErrorList
	known := false
	var seen check.Seen[string]
	for i, v := range versions {
		if seen.Again(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, "duplicate version"))
			continue
		}
		for _, wrong := range validation.IsDNS1035Label(v) {
			errs = append(errs, field.Invalid(path.Index(i), v, wrong))
		}
		known = known || slices.Contains(reviews, v)
	}
	if !known {
		errs = append(errs, field.Invalid(path, versions, "must include at least one of "+words))
	}
	return errs
}

// validateClient checks the URL or the service of a webhook.
func validateClient(c *admissionregistrationv1.WebhookClientConfig, path *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return validateURL(*c.URL, path.Child("url"))
	}
	return validateService(c.Service, path.Child("service"))
}

func validateURL(text string, path *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(text)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(path, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(path, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(path, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(path, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

// validateService checks the service of a webhook. As in kube-apiserver, the errors of a missing
// name and a missing namespace have each other's path.
func validateService(s *admissionregistrationv1.ServiceReference, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if p := s.Port; p != nil {
		if wrong := validation.IsValidPortNum(int(*p)); wrong != nil {
			errs = append(errs, field.Invalid(path.Child("port"), *p, "port is not valid: "+strings.Join(wrong, ", ")))
		}
	}
	if s.Path != nil {
		errs = append(errs, validatePath(*s.Path, path.Child("path"))...)
	}
	return errs
}

func validatePath(text string, path *field.Path) field.ErrorList {
	switch text {
	case "", "/":
		return nil
	case "//":
		return field.ErrorList{field.Invalid(path, text, "segment[0] may not be empty")}
	}
	var errs field.ErrorList
	if text[0] != '/' {
		errs = append(errs, field.Invalid(path, text, "must start with a '/'"))
	}
	for i, segment := range strings.Split(strings.TrimSuffix(text[1:], "/"), "/") {
		if segment == "" {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, wrong := range validation.IsDNS1123Subdomain(segment) {
			errs = append(errs, field.Invalid(path, text, fmt.Sprintf("segment[%d]: %v", i, wrong)))
		}
	}
	return errs
}
