package virtual

import (
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestAttestations: the messages are those of kube-apiserver v1.37.2.
func TestAttestations(t *testing.T) {
	type values = map[string]authenticationv1.AttestationValue
	hook := func(version string) *authenticationv1.BoundObjectReference {
		return &authenticationv1.BoundObjectReference{APIVersion: "admissionregistration.k8s.io/" + version, Kind: "MutatingWebhookConfiguration", Name: "x"}
	}
	const groups = authenticationv1.AttestationAdmissionReviewAPIGroups
	seconds, one := int64(600), []string{"x"}
	for _, row := range []struct {
		name string
		spec authenticationv1.TokenRequestSpec
		want string
	}{
		{"none", authenticationv1.TokenRequestSpec{Audiences: one}, ""},
		{"an empty map", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{}}, ""},
		{"without a webhook", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{"a": nil}},
			`spec.attestations: Invalid value: {"a":null}: attestations may only be specified with a webhook bound object reference`},
		{"for another version", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{groups: {"*"}}, BoundObjectRef: hook("v1beta1")},
			`spec.attestations: Invalid value: {"admissionReviewAPIGroups":["*"]}: attestations may only be specified with a webhook bound object reference`},
		{"all groups", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{groups: {"*"}}, BoundObjectRef: hook("v1")}, ""},
		{"two audiences", authenticationv1.TokenRequestSpec{Audiences: []string{"x", "y"}, Attestations: values{groups: {"apps"}}, BoundObjectRef: hook("v1")},
			`spec.audiences: Invalid value: ["x","y"]: must be length 1 when bound to a webhook config`},
		{"no attestation", authenticationv1.TokenRequestSpec{Audiences: one, BoundObjectRef: hook("v1")},
			"spec.attestations: Invalid value: null: webhook bound requests require exactly one admissionReviewAPIGroups attestation"},
		{"an unknown key", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{"a": {"b"}}, BoundObjectRef: hook("v1")},
			`spec.attestations[a]: Unsupported value: "a": supported values: "admissionReviewAPIGroups"`},
		{"two values", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{groups: {"a", "b"}}, BoundObjectRef: hook("v1")},
			`spec.attestations[admissionReviewAPIGroups]: Invalid value: ["a","b"]: must specify a single value`},
		{"an empty value", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{groups: {""}}, BoundObjectRef: hook("v1")},
			`spec.attestations[admissionReviewAPIGroups][0]: Invalid value: "": may not be an empty string`},
		{"no group", authenticationv1.TokenRequestSpec{Audiences: one, Attestations: values{groups: {"A"}}, BoundObjectRef: hook("v1")},
			`spec.attestations[admissionReviewAPIGroups][0]: Invalid value: "A": must specify a valid API Group: a lowercase RFC 1123 subdomain must consist of`},
	} {
		row.spec.ExpirationSeconds = &seconds
		err := checkSpec(&row.spec)
		if row.want == "" && err != nil || row.want != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: got %v, want %s", row.name, err, row.want)
		}
	}
	// Attestations without a webhook are the only error; otherwise the lifetime comes first.
	seconds = 1
	err := checkSpec(&authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Attestations: values{"a": nil}})
	if err == nil || strings.Contains(err.Error(), "10 minutes") {
		t.Errorf("got %v", err)
	}
	err = checkSpec(&authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: one, BoundObjectRef: hook("v1")})
	if err == nil || !strings.Contains(err.Error(), "[spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes, spec.attestations: ") {
		t.Errorf("got %v", err)
	}
	for kind, want := range map[schema.GroupVersionKind]string{
		{Version: "v1", Kind: "Foo"}: "cannot bind token to object of type /v1, Kind=Foo",
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}: "cannot bind token to object of type admissionregistration.k8s.io/v1, Kind=ValidatingWebhookConfiguration (feature gate APIServerWebhookAuthenticationToken is disabled)",
	} {
		if got := cannotBind(kind); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
