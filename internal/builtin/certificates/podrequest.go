package certificates

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// PodRequest is a PodCertificateRequest.
type PodRequest = certificatesv1.PodCertificateRequest

// The lifetimes of certificates for Pods, in seconds, and the maximum size of a request in bytes.
const (
	dayOfSeconds       = 24 * 60 * 60
	leastPodSeconds    = 60 * 60
	mostPodSeconds     = 91 * dayOfSeconds
	mostOwnPodSeconds  = dayOfSeconds // of the signers of Kubernetes
	longestUID         = 128
	longestStubRequest = 10 << 10
)

// DefaultPodRequest sets the lifetime.
func DefaultPodRequest(r *PodRequest) {
	check.SetIfNil(&r.Spec.MaxExpirationSeconds, dayOfSeconds)
}

// ValidatePodRequest checks a new request, with its signature.
func ValidatePodRequest(r *PodRequest) field.ErrorList {
	path, spec := field.NewPath("spec"), &r.Spec
	var errs check.Errors
	errs.Add(check.SignerName(spec.SignerName, path.Child("signerName"))...)
	errs.Add(check.UserAnnotations(spec.UnverifiedUserAnnotations, path.Child("unverifiedUserAnnotations"))...)
	errs.Each(path, "podName", spec.PodName, validation.NameIsDNSSubdomain(spec.PodName, false))
	validateUID(&errs, path, "podUID", spec.PodUID)
	errs.Each(path, "serviceAccountName", spec.ServiceAccountName, validation.ValidateServiceAccountName(spec.ServiceAccountName, false))
	validateUID(&errs, path, "serviceAccountUID", spec.ServiceAccountUID)
	errs.Each(path, "nodeName", spec.NodeName, validation.NameIsDNSSubdomain(string(spec.NodeName), false))
	validateUID(&errs, path, "nodeUID", spec.NodeUID)
	most := int32(mostPodSeconds)
	if check.IsOwnSigner(spec.SignerName) {
		most = mostOwnPodSeconds
	}
	switch s := spec.MaxExpirationSeconds; {
	case s == nil:
		errs.Required(path, "maxExpirationSeconds", "must be set")
		return errs.List()
	case *s < leastPodSeconds, *s > most:
		errs.Invalid(path, "maxExpirationSeconds", *s, fmt.Sprintf("must be in the range [%d, %d]", leastPodSeconds, most))
	}
	if len(spec.StubPKCS10Request) == 0 {
		errs.Invalid(path, "", field.OmitValueType{}, "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set")
		return errs.List()
	}
	errs.Add(validateStub(spec.StubPKCS10Request)...)
	return errs.List()
}

func validateUID(errs *check.Errors, path *field.Path, name string, uid types.UID) {
	if uid == "" {
		errs.Invalid(path, name, uid, "must not be empty")
	}
	if len(uid) > longestUID {
		errs.Add(field.TooLong(path.Child(name), uid, longestUID))
	}
}

// stubPath is the path of the request in PKCS#10.
var stubPath = field.NewPath("spec", "stubPKCS10Request")

// validateStub checks the key and the signature of a request in PKCS#10.
func validateStub(der []byte) field.ErrorList {
	fault := func(value any, words string) field.ErrorList {
		return field.ErrorList{field.Invalid(stubPath, value, words)}
	}
	if len(der) > longestStubRequest {
		return field.ErrorList{field.TooLong(stubPath, der, longestStubRequest)}
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return fault(field.OmitValueType{}, "must be a valid PKCS#10 CSR")
	}
	switch key := r.PublicKey.(type) {
	case ed25519.PublicKey:
	case *ecdsa.PublicKey:
		if c := key.Curve; c != elliptic.P256() && c != elliptic.P384() && c != elliptic.P521() {
			return fault("curve "+c.Params().Name, "elliptic public keys must use curve P256, P384, or P521")
		}
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits != 3072 && bits != 4096 {
			return fault(fmt.Sprintf("%d-bit modulus", bits), "RSA keys must have modulus size 3072 or 4096")
		}
	default:
		return fault(field.OmitValueType{}, "unknown public key type; supported types are Ed25519, ECDSA, and RSA")
	}
	if r.CheckSignature() != nil {
		return fault(field.OmitValueType{}, "invalid signature")
	}
	return nil
}

// ValidatePodRequestUpdate checks that the spec does not change.
func ValidatePodRequestUpdate(r, old *PodRequest) field.ErrorList {
	if equality.Semantic.DeepEqual(r.Spec, old.Spec) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("spec"), newShownSpec(&r.Spec), validation.FieldImmutableErrorMsg)}
}

// shownSpec is a spec as kube-apiserver shows it in errors. It has two members that v1 does not have.
type shownSpec struct {
	SignerName                string
	PodName                   string
	PodUID                    types.UID
	ServiceAccountName        string
	ServiceAccountUID         types.UID
	NodeName                  types.NodeName
	NodeUID                   types.UID
	MaxExpirationSeconds      *int32
	PKIXPublicKey             []byte
	ProofOfPossession         []byte
	StubPKCS10Request         []byte
	UnverifiedUserAnnotations map[string]string
}

func newShownSpec(s *certificatesv1.PodCertificateRequestSpec) shownSpec {
	return shownSpec{
		SignerName: s.SignerName, PodName: s.PodName, PodUID: s.PodUID, ServiceAccountName: s.ServiceAccountName,
		ServiceAccountUID: s.ServiceAccountUID, NodeName: s.NodeName, NodeUID: s.NodeUID, MaxExpirationSeconds: s.MaxExpirationSeconds,
		StubPKCS10Request: s.StubPKCS10Request, UnverifiedUserAnnotations: s.UnverifiedUserAnnotations,
	}
}
