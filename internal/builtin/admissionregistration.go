package builtin

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/admissionregistration"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// admissionregistrationGroup has the admission policies and webhook configurations.
func admissionregistrationGroup() resource.Group {
	types := []resource.Type{
		{
			Names: resource.Names{Resource: "mutatingadmissionpolicies", Kind: "MutatingAdmissionPolicy"},
			New:   object[admissionregistrationv1.MutatingAdmissionPolicy],
			Strategy: resource.Strategy{
				Default:        defaults(admissionregistration.DefaultMutatingPolicy),
				Validate:       validates(admissionregistration.ValidateMutatingPolicy),
				ValidateUpdate: updates(admissionregistration.ValidateMutatingPolicyUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "mutatingadmissionpolicybindings", Kind: "MutatingAdmissionPolicyBinding"},
			New:   object[admissionregistrationv1.MutatingAdmissionPolicyBinding],
			Strategy: resource.Strategy{
				Default:        defaults(admissionregistration.DefaultMutatingBinding),
				Validate:       validates(admissionregistration.ValidateMutatingBinding),
				ValidateUpdate: updates(admissionregistration.ValidateMutatingBindingUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "mutatingwebhookconfigurations", Kind: "MutatingWebhookConfiguration"},
			New:   object[admissionregistrationv1.MutatingWebhookConfiguration],
			Strategy: resource.Strategy{
				Default:        defaults(admissionregistration.DefaultMutatingWebhooks),
				Validate:       validates(admissionregistration.ValidateMutatingWebhooks),
				ValidateUpdate: updates(admissionregistration.ValidateMutatingWebhooksUpdate),
			},
		},
		{
			Names:        resource.Names{Resource: "validatingadmissionpolicies", Kind: "ValidatingAdmissionPolicy"},
			New:          object[admissionregistrationv1.ValidatingAdmissionPolicy],
			Subresources: []resource.Subresource{statusWith(updates(admissionregistration.ValidateValidatingPolicyStatus))},
			Strategy: resource.Strategy{
				Status:         statusAlone,
				Default:        defaults(admissionregistration.DefaultValidatingPolicy),
				Validate:       validates(admissionregistration.ValidateValidatingPolicy),
				ValidateUpdate: updates(admissionregistration.ValidateValidatingPolicyUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "validatingadmissionpolicybindings", Kind: "ValidatingAdmissionPolicyBinding"},
			New:   object[admissionregistrationv1.ValidatingAdmissionPolicyBinding],
			Strategy: resource.Strategy{
				Default:        defaults(admissionregistration.DefaultValidatingBinding),
				Validate:       validates(admissionregistration.ValidateValidatingBinding),
				ValidateUpdate: updates(admissionregistration.ValidateValidatingBindingUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "validatingwebhookconfigurations", Kind: "ValidatingWebhookConfiguration"},
			New:   object[admissionregistrationv1.ValidatingWebhookConfiguration],
			Strategy: resource.Strategy{
				Default:        defaults(admissionregistration.DefaultValidatingWebhooks),
				Validate:       validates(admissionregistration.ValidateValidatingWebhooks),
				ValidateUpdate: updates(admissionregistration.ValidateValidatingWebhooksUpdate),
			},
		},
	}
	for i := range types {
		t := &types[i]
		t.Categories = inAPIExtensions
		t.Strategy.Metadata = resource.MetadataRules{AnyFinalizer: true, Recheck: resource.RecheckNew}
		t.Strategy.Generation = counted
		if strings.HasSuffix(t.Resource, "webhookconfigurations") {
			t.Strategy.Generation = countedExactly
		}
	}
	return group("admissionregistration.k8s.io", version{"v1", types})
}
