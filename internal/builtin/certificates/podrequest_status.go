package certificates

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

const (
	longestChain = 100 << 10 // bytes
	// clockSkew is how far the beginning of a certificate may be from the current time.
	clockSkew = 5 * time.Minute
	// refreshMargin is the time between the renewal of a certificate and either end of its validity.
	refreshMargin = 10 * time.Minute
)

// The conditions that end a request for a Pod. At most one of them is present, and it is true.
var endings = []string{
	certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied,
	certificatesv1.PodCertificateRequestConditionTypeFailed,
}

func hasCondition(r *PodRequest, types ...string) bool {
	return slices.ContainsFunc(r.Status.Conditions, func(c metav1.Condition) bool {
		return c.Status == metav1.ConditionTrue && slices.Contains(types, c.Type)
	})
}

// ValidatePodRequestStatus checks an update of the subresource status, which issues a certificate, or denies or fails the
// request.
func ValidatePodRequestStatus(r, old *PodRequest) field.ErrorList {
	path := field.NewPath("status")
	errs := validateEndings(r.Status.Conditions)
	errs = append(errs, check.Conditions(r.Status.Conditions, path.Child("conditions"))...)
	if len(errs) > 0 {
		return errs
	}
	equal := func(want certificatesv1.PodCertificateRequestStatus, words string) field.ErrorList {
		if equality.Semantic.DeepEqual(r.Status, want) {
			return nil
		}
		return field.ErrorList{field.Invalid(path, field.OmitValueType{}, words)}
	}
	switch {
	case hasCondition(old, endings...):
		return equal(old.Status, "immutable after PodCertificateRequest is issued, denied, or failed")
	case hasCondition(r, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed):
		return equal(certificatesv1.PodCertificateRequestStatus{Conditions: r.Status.Conditions},
			"non-condition status fields must be empty when denying or failing the PodCertificateRequest")
	case hasCondition(r, certificatesv1.PodCertificateRequestConditionTypeIssued):
		return validateIssued(r)
	}
	return equal(old.Status, `status is immutable unless transitioning to "Issued", "Denied", or "Failed"`)
}

func validateEndings(all []metav1.Condition) (errs field.ErrorList) {
	found := false
	for i, c := range all {
		// kube-apiserver shows the index as the name of a member.
		at := field.NewPath("status", "conditions", fmt.Sprintf("[%d]", i))
		if !slices.Contains(endings, c.Type) {
			errs = append(errs, field.NotSupported(at.Child("type"), c.Type, endings))
			continue
		}
		if found {
			errs = append(errs, field.Invalid(at.Child("type"), c.Type, `There may be at most one condition with type "Issued", "Denied", or "Failed"`))
		}
		found = true
		if c.Status != metav1.ConditionTrue {
			errs = append(errs, field.NotSupported(at.Child("status"), c.Status, []metav1.ConditionStatus{metav1.ConditionTrue}))
		}
	}
	return errs
}

// validateIssued checks an issued certificate, and that the times of the status are those of the certificate.
func validateIssued(r *PodRequest) field.ErrorList {
	s, at := &r.Status, field.NewPath("status", "certificateChain")
	fault := func(words string) field.ErrorList {
		return field.ErrorList{field.Invalid(at, s.CertificateChain, words)}
	}
	if len(s.CertificateChain) > longestChain {
		return field.ErrorList{field.TooLong(at, s.CertificateChain, longestChain)}
	}
	block, rest := pem.Decode([]byte(s.CertificateChain))
	switch {
	case block == nil:
		return fault("issued certificate chain must contain at least one certificate")
	case block.Type != "CERTIFICATE":
		return fault("issued certificate chain must consist entirely of CERTIFICATE PEM blocks")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fault("leaf certificate does not parse as valid X.509")
	}
	errs := validateLeafNames(leaf, at)
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return append(errs, field.Invalid(stubPath, field.OmitValueType{}, "must be a valid PKCS#10 CSR"))
	}
	if key, ok := asked.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !key.Equal(leaf.PublicKey) {
		return append(errs, fault("leaf certificate was not issued to the requested public key")...)
	}
	if errs = append(errs, requireTimes(s)...); len(errs) > 0 {
		return errs
	}
	if errs := validateTimes(r, leaf, at); len(errs) > 0 {
		return errs
	}
	for block, rest := pem.Decode(rest); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return fault("issued certificate chain must consist entirely of CERTFICATE PEM blocks")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fault("intermediate certificate does not parse as valid X.509")
		}
	}
	return nil
}

// validateLeafNames checks the names in a certificate that Go accepts and other programs do not.
func validateLeafNames(leaf *x509.Certificate, at *field.Path) (errs field.ErrorList) {
	for _, name := range leaf.DNSNames {
		if name == "" {
			errs = append(errs, field.Invalid(at, name, "leaf certificate should not contain empty DNSName"))
		}
		if strings.Contains(name, "..") {
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not contain '..'"))
		}
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") {
			errs = append(errs, field.Invalid(at, name, "leaf certificate's DNSName should not start or end with '.'"))
		}
	}
	for _, address := range leaf.EmailAddresses {
		if _, err := mail.ParseAddress(address); err != nil {
			errs = append(errs, field.Invalid(at, address, "leaf certificate should not contain invalid EmailAddress"))
		}
	}
	return errs
}

// The paths of the times.
var (
	notBeforePath = field.NewPath("status", "notBefore")
	notAfterPath  = field.NewPath("status", "notAfter")
	refreshPath   = field.NewPath("status", "beginRefreshAt")
)

func requireTimes(s *certificatesv1.PodCertificateRequestStatus) (errs field.ErrorList) {
	if s.NotBefore == nil {
		errs = append(errs, field.Required(notBeforePath, "must be present and consistent with the issued certificate"))
	}
	if s.NotAfter == nil {
		errs = append(errs, field.Required(notAfterPath, "must be present and consistent with the issued certificate"))
	}
	if s.BeginRefreshAt == nil {
		errs = append(errs, field.Required(refreshPath, "must be present and in the range [notbefore+10min, notafter-10min]"))
	}
	return errs
}

// validateTimes returns the first fault of the times of an issued certificate.
func validateTimes(r *PodRequest, leaf *x509.Certificate, at *field.Path) field.ErrorList {
	s, now := &r.Status, time.Now()
	lifetime, most := leaf.NotAfter.Sub(leaf.NotBefore), *r.Spec.MaxExpirationSeconds
	switch {
	case !s.NotBefore.Time.Equal(leaf.NotBefore):
		return field.ErrorList{field.Invalid(notBeforePath, s.NotBefore.Time, "must be set to the NotBefore time encoded in the leaf certificate")}
	case s.NotBefore.Sub(now).Abs() >= clockSkew:
		return field.ErrorList{field.Invalid(notBeforePath, s.NotBefore.Time, "must be set to within 5 minutes of kube-apiserver's current time")}
	case !s.NotAfter.Time.Equal(leaf.NotAfter):
		return field.ErrorList{field.Invalid(notAfterPath, s.NotAfter.Time, "must be set to the NotAfter time encoded in the leaf certificate")}
	case lifetime < time.Hour:
		return field.ErrorList{field.Invalid(at, lifetime, "leaf certificate lifetime must be >= 1 hour")}
	case lifetime > time.Duration(most)*time.Second:
		return field.ErrorList{field.Invalid(at, lifetime, fmt.Sprintf("leaf certificate lifetime must be <= spec.maxExpirationSeconds (%v)", most))}
	case s.BeginRefreshAt.Time.Before(s.NotBefore.Add(refreshMargin)):
		return field.ErrorList{field.Invalid(refreshPath, s.BeginRefreshAt.Time, "must be at least 10 minutes after status.notBefore")}
	case s.BeginRefreshAt.Time.After(s.NotAfter.Add(-refreshMargin)):
		return field.ErrorList{field.Invalid(refreshPath, s.BeginRefreshAt.Time, "must be at least 10 minutes before status.notAfter")}
	}
	return nil
}
