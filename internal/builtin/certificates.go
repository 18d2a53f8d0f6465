package builtin

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// certificatesGroup has requests for certificates, and the certificates that clients trust.
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
		{
			Names:   resource.Names{Resource: "clustertrustbundles", Kind: "ClusterTrustBundle"},
			New:     object[certificatesv1.ClusterTrustBundle],
			Display: resource.Display{Fields: fields("spec.signerName"), FieldError: notSupported},
			Strategy: resource.Strategy{
				Metadata:       resource.MetadataRules{ValidateName: certificates.AnyName},
				Validate:       validates(certificates.ValidateTrustBundle),
				ValidateUpdate: updates(certificates.ValidateTrustBundleUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "podcertificaterequests", Kind: "PodCertificateRequest"},
			New:   object[certificatesv1.PodCertificateRequest], Namespaced: true,
			Subresources: []resource.Subresource{statusWith(updates(certificates.ValidatePodRequestStatus))},
			Display:      resource.Display{Fields: fields("spec.signerName", "spec.podName", "spec.nodeName"), FieldError: notSupported},
			Strategy: resource.Strategy{
				Metadata: recheckUpdate, Status: statusAlone,
				Default:        defaults(certificates.DefaultPodRequest),
				Validate:       validates(certificates.ValidatePodRequest),
				ValidateUpdate: updates(certificates.ValidatePodRequestUpdate),
			},
		},
	}})
}
