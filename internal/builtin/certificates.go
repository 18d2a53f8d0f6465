package builtin

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// certificatesGroup has CertificateSigningRequests.
func certificatesGroup() resource.Group {
	return group("certificates.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "certificatesigningrequests", Kind: "CertificateSigningRequest", ShortNames: []string{"csr"}},
			New:   object[certificatesv1.CertificateSigningRequest],
			Subresources: []resource.Subresource{
				{Name: "approval", Verbs: getPatchUpdate, MetadataAsNew: true, Set: certificates.Approve, Validate: updates(certificates.ValidateApproval)},
				{Name: "status", Verbs: getPatchUpdate, MetadataAsNew: true, Set: certificates.Sign, Validate: updates(certificates.ValidateStatus)},
			},
			Display: resource.Display{Fields: fields("spec.signerName"), FieldError: notSupported},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: resource.MetadataRules{ValidateName: pathSegment},
				SetCreator:    certificates.SetRequester,
				PrepareUpdate: prepares(certificates.KeepRequest),
				Validate:      validates(certificates.ValidateRequest),
			},
		},
	}})
}
