package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// admissionregistrationGroup is the policies and webhooks that writes pass.
func admissionregistrationGroup() resource.Group {
	return group("admissionregistration.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy", New: object[admissionregistrationv1.MutatingAdmissionPolicy],
			Categories: inAPIExtensions,
			Generation: true,
		},
		{
			Resource: "mutatingadmissionpolicybindings", Kind: "MutatingAdmissionPolicyBinding", New: object[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			Categories: inAPIExtensions,
			Generation: true,
		},
		{
			Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration", New: object[admissionregistrationv1.MutatingWebhookConfiguration],
			Categories: inAPIExtensions,
			Generation: true,
		},
		{
			Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy", New: object[admissionregistrationv1.ValidatingAdmissionPolicy],
			Categories:   inAPIExtensions,
			Generation:   true,
			Subresources: []resource.Subresource{status},
			StatusKeeps:  allMetadata,
		},
		{
			Resource: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding", New: object[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			Categories: inAPIExtensions,
			Generation: true,
		},
		{
			Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration", New: object[admissionregistrationv1.ValidatingWebhookConfiguration],
			Categories: inAPIExtensions,
			Generation: true,
		},
	}})
}
