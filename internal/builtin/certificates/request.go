// Package certificates has the rules of the kinds of certificates.k8s.io.
package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"reflect"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Request is a CertificateSigningRequest.
type Request = certificatesv1.CertificateSigningRequest

// SetRequester records the user who creates a request, for approvers and signers.
func SetRequester(o runtime.Object, by authenticationv1.UserInfo) {
	spec := &o.(*Request).Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = by.Username, by.UID, slices.Clone(by.Groups), nil
	for key, values := range by.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		spec.Extra[key] = certificatesv1.ExtraValue(values)
	}
}

// KeepRequest restores the spec, which is immutable.
func KeepRequest(next, current *Request) bool {
	if reflect.DeepEqual(&next.Spec, &current.Spec) {
		return false
	}
	next.Spec = *current.Spec.DeepCopy()
	return true
}

// leastSeconds is the shortest lifetime of a certificate that can be requested.
const leastSeconds = 600

// usages are the known key usages, sorted.
var usages = []string{
	string(certificatesv1.UsageAny), string(certificatesv1.UsageCertSign), string(certificatesv1.UsageClientAuth),
	string(certificatesv1.UsageCodeSigning), string(certificatesv1.UsageContentCommitment), string(certificatesv1.UsageCRLSign),
	string(certificatesv1.UsageDataEncipherment), string(certificatesv1.UsageDecipherOnly), string(certificatesv1.UsageDigitalSignature),
	string(certificatesv1.UsageEmailProtection), string(certificatesv1.UsageEncipherOnly), string(certificatesv1.UsageIPsecEndSystem),
	string(certificatesv1.UsageIPsecTunnel), string(certificatesv1.UsageIPsecUser), string(certificatesv1.UsageKeyAgreement),
	string(certificatesv1.UsageKeyEncipherment), string(certificatesv1.UsageMicrosoftSGC), string(certificatesv1.UsageNetscapeSGC),
	string(certificatesv1.UsageOCSPSigning), string(certificatesv1.UsageSMIME), string(certificatesv1.UsageServerAuth),
	string(certificatesv1.UsageSigning), string(certificatesv1.UsageTimestamping),
}

// legacySigner was the default signer of v1beta1. It is not allowed in v1.
const legacySigner = "kubernetes.io/legacy-unknown"

// ValidateRequest checks a new request, with its signature. Updates need no check: the spec is
// immutable.
func ValidateRequest(r *Request) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if _, err := Parse(r); err != nil {
		errs = append(errs, field.Invalid(path.Child("request"), r.Spec.Request, err.Error()))
	}
	at := path.Child("usages")
	if len(r.Spec.Usages) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	for i, u := range r.Spec.Usages {
		if !slices.Contains(usages, string(u)) {
			errs = append(errs, field.NotSupported(at.Index(i), u, usages))
		}
	}
	var seen check.Seen[certificatesv1.KeyUsage]
	for i, u := range r.Spec.Usages {
		if seen.Again(u) {
			errs = append(errs, field.Duplicate(at.Index(i), u))
		}
	}
	at = path.Child("signerName")
	if r.Spec.SignerName == legacySigner {
		errs = append(errs, field.Invalid(at, r.Spec.SignerName, "the legacy signerName is not allowed via this API version"))
	} else {
		errs = append(errs, check.SignerName(r.Spec.SignerName, at)...)
	}
	if s := r.Spec.ExpirationSeconds; s != nil && *s < leastSeconds {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 600 seconds (10 minutes)"))
	}
	return errs
}

// Parse decodes the PEM of the request, and verifies its signature.
func Parse(r *Request) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	made, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	return made, made.CheckSignature()
}
