package builtin

import (
	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// certificatesGroup is requests to sign certificates.
func certificatesGroup() resource.Group {
	return group("certificates.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "certificatesigningrequests", Kind: "CertificateSigningRequest", New: object[certificatesv1.CertificateSigningRequest],
			ShortNames:          []string{"csr"},
			UnconditionalUpdate: true,
			Subresources: []resource.Subresource{
				{Name: "approval", Verbs: getPatchUpdate, Set: approveCertificate},
				{Name: "status", Verbs: getPatchUpdate, Set: signCertificate},
			},
			Fields:        fields("spec.signerName"),
			FieldError:    notSupported,
			ValidateName:  pathSegment,
			SetCreator:    setRequester,
			PrepareUpdate: keepRequest,
		},
	}})
}
