package builtin

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/admissionregistration"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// admissionregistrationGroup is the policies and webhooks that writes pass.
func admissionregistrationGroup() resource.Group {
	types := []resource.Type{
		{
			Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy", New: object[admissionregistrationv1.MutatingAdmissionPolicy],
			Default:        defaults(admissionregistration.DefaultMutatingPolicy),
			Validate:       validates(admissionregistration.ValidateMutatingPolicy),
			ValidateUpdate: updates(admissionregistration.ValidateMutatingPolicyUpdate),
		},
		{
			Resource: "mutatingadmissionpolicybindings", Kind: "MutatingAdmissionPolicyBinding", New: object[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			Default:        defaults(admissionregistration.DefaultMutatingBinding),
			Validate:       validates(admissionregistration.ValidateMutatingBinding),
			ValidateUpdate: updates(admissionregistration.ValidateMutatingBindingUpdate),
		},
		{
			Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration", New: object[admissionregistrationv1.MutatingWebhookConfiguration],
			Default:        defaults(admissionregistration.DefaultMutatingWebhooks),
			Validate:       validates(admissionregistration.ValidateMutatingWebhooks),
			ValidateUpdate: updates(admissionregistration.ValidateMutatingWebhooksUpdate),
		},
		{
			Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy", New: object[admissionregistrationv1.ValidatingAdmissionPolicy],
			Subresources:   []resource.Subresource{statusWith(updates(admissionregistration.ValidateValidatingPolicyStatus))},
			StatusKeeps:    allMetadata,
			Default:        defaults(admissionregistration.DefaultValidatingPolicy),
			Validate:       validates(admissionregistration.ValidateValidatingPolicy),
			ValidateUpdate: updates(admissionregistration.ValidateValidatingPolicyUpdate),
		},
		{
			Resource: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding", New: object[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			Default:        defaults(admissionregistration.DefaultValidatingBinding),
			Validate:       validates(admissionregistration.ValidateValidatingBinding),
			ValidateUpdate: updates(admissionregistration.ValidateValidatingBindingUpdate),
		},
		{
			Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration", New: object[admissionregistrationv1.ValidatingWebhookConfiguration],
			Default:        defaults(admissionregistration.DefaultValidatingWebhooks),
			Validate:       validates(admissionregistration.ValidateValidatingWebhooks),
			ValidateUpdate: updates(admissionregistration.ValidateValidatingWebhooksUpdate),
		},
	}
	for i := range types {
		t := &types[i]
		t.AnyFinalizer, t.MetadataOnce, t.Generation = true, true, true
		t.Categories, t.Warnings = inAPIExtensions, warnOfStaticName
	}
	return group("admissionregistration.k8s.io", version{"v1", types})
}

// warnOfStaticName is the Warnings of all of them.
func warnOfStaticName(o, old runtime.Object) []string {
	if old != nil {
		return nil
	}
	return admissionregistration.WarnOfName(o.(metav1.Object))
}
