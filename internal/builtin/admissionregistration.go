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
	return group("admissionregistration.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy", New: object[admissionregistrationv1.MutatingAdmissionPolicy],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Categories:     inAPIExtensions,
			Generation:     true,
			Default:        defaults(admissionregistration.DefaultMutatingPolicy),
			Validate:       validates(admissionregistration.ValidateMutatingPolicy),
			ValidateUpdate: updates(admissionregistration.ValidateMutatingPolicyUpdate),
			Warnings:       warnOfStaticName,
		},
		{
			Resource: "mutatingadmissionpolicybindings", Kind: "MutatingAdmissionPolicyBinding", New: object[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Categories:     inAPIExtensions,
			Generation:     true,
			Default:        defaults(admissionregistration.DefaultMutatingBinding),
			Validate:       validates(admissionregistration.ValidateMutatingBinding),
			ValidateUpdate: updates(admissionregistration.ValidateMutatingBindingUpdate),
			Warnings:       warnOfStaticName,
		},
		{
			Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration", New: object[admissionregistrationv1.MutatingWebhookConfiguration],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Categories:     inAPIExtensions,
			Generation:     true,
			Default:        defaults(admissionregistration.DefaultMutatingWebhooks),
			Validate:       validates(admissionregistration.ValidateMutatingWebhooks),
			ValidateUpdate: updates(admissionregistration.ValidateMutatingWebhooksUpdate),
			Warnings:       warnOfStaticName,
		},
		{
			Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy", New: object[admissionregistrationv1.ValidatingAdmissionPolicy],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Categories:     inAPIExtensions,
			Generation:     true,
			Subresources:   []resource.Subresource{statusWith(updates(admissionregistration.ValidateValidatingPolicyStatus))},
			StatusKeeps:    allMetadata,
			Default:        defaults(admissionregistration.DefaultValidatingPolicy),
			Validate:       validates(admissionregistration.ValidateValidatingPolicy),
			ValidateUpdate: updates(admissionregistration.ValidateValidatingPolicyUpdate),
			Warnings:       warnOfStaticName,
		},
		{
			Resource: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding", New: object[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Categories:     inAPIExtensions,
			Generation:     true,
			Default:        defaults(admissionregistration.DefaultValidatingBinding),
			Validate:       validates(admissionregistration.ValidateValidatingBinding),
			ValidateUpdate: updates(admissionregistration.ValidateValidatingBindingUpdate),
			Warnings:       warnOfStaticName,
		},
		{
			Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration", New: object[admissionregistrationv1.ValidatingWebhookConfiguration],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Categories:     inAPIExtensions,
			Generation:     true,
			Default:        defaults(admissionregistration.DefaultValidatingWebhooks),
			Validate:       validates(admissionregistration.ValidateValidatingWebhooks),
			ValidateUpdate: updates(admissionregistration.ValidateValidatingWebhooksUpdate),
			Warnings:       warnOfStaticName,
		},
	}})
}

// warnOfStaticName is the Warnings of all of them.
func warnOfStaticName(o, old runtime.Object) []string {
	if old != nil {
		return nil
	}
	return admissionregistration.WarnOfName(o.(metav1.Object))
}
