package virtual

import (
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Tokens for webhooks belong to an alpha feature of Kubernetes that this server does not have. Requests for
// them are refused as in kube-apiserver with the feature off: after validation.

// webhookTokens is the gate of that feature.
const webhookTokens = "APIServerWebhookAuthenticationToken"

// isWebhook reports whether a kind is one of webhook configurations.
func isWebhook(kind schema.GroupVersionKind) bool {
	return kind.GroupVersion() == admissionregistrationv1.SchemeGroupVersion &&
		(kind.Kind == "ValidatingWebhookConfiguration" || kind.Kind == "MutatingWebhookConfiguration")
}

// checkAttestations returns the errors of spec.attestations. The second result reports whether other errors of the
// request do not count.
func checkAttestations(s *authenticationv1.TokenRequestSpec) (errs field.ErrorList, alone bool) {
	spec := field.NewPath("spec")
	path := spec.Child("attestations")
	ref := s.BoundObjectRef
	if ref == nil || !isWebhook(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)) {
		if len(s.Attestations) == 0 {
			return nil, false
		}
		return field.ErrorList{field.Invalid(path, s.Attestations, "attestations may only be specified with a webhook bound object reference")}, true
	}
	if len(s.Audiences) != 1 {
		errs = append(errs, field.Invalid(spec.Child("audiences"), s.Audiences, "must be length 1 when bound to a webhook config"))
	}
	if len(s.Attestations) != 1 {
		return append(errs, field.Invalid(path, s.Attestations, "webhook bound requests require exactly one admissionReviewAPIGroups attestation")), false
	}
	key := slices.Collect(maps.Keys(s.Attestations))[0]
	at, values := path.Key(key), s.Attestations[key]
	switch {
	case key != authenticationv1.AttestationAdmissionReviewAPIGroups:
		errs = append(errs, field.NotSupported(at, key, []string{authenticationv1.AttestationAdmissionReviewAPIGroups}))
	case len(values) != 1:
		errs = append(errs, field.Invalid(at, values, "must specify a single value"))
	case values[0] == "":
		errs = append(errs, field.Invalid(at.Index(0), "", "may not be an empty string"))
	case values[0] != "*":
		for _, message := range validation.IsDNS1123Subdomain(values[0]) {
			errs = append(errs, field.Invalid(at.Index(0), values[0], "must specify a valid API Group: "+message))
		}
	}
	return errs, false
}

// cannotBind returns the message for a kind that no token can be bound to.
func cannotBind(kind schema.GroupVersionKind) string {
	text := "cannot bind token to object of type " + kind.String()
	if isWebhook(kind) {
		text += fmt.Sprintf(" (feature gate %s is disabled)", webhookTokens)
	}
	return text
}
