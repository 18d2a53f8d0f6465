package controller

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/certificates"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// signers are the signers whose approved requests the loop issues, each with the rules for its requests.
var signers = map[string]func(*x509.CertificateRequest, []certificatesv1.KeyUsage) error{
	certificatesv1.KubeAPIServerClientSignerName:        checkClient,
	certificatesv1.KubeAPIServerClientKubeletSignerName: checkKubeletClient,
	certificatesv1.KubeletServingSignerName:             checkKubeletServing,
}

// signer issues the certificates of approved CertificateSigningRequests.
type signer struct{ follower }

func newSigner(l *Loops, q *queue) loop {
	return &signer{follower{l: l, queue: q, collection: requestCollection}}
}

// sync issues the certificate of a request, or sets its condition Failed if the request is against the rules of its
// signer.
func (s *signer) sync(ctx context.Context, i item) error {
	if s.l.c.Sign == nil {
		return nil
	}
	o := s.l.store.Any().Get(i.collection, i.key)
	if o == nil {
		return nil
	}
	r, err := registry.Decode[certificatesv1.CertificateSigningRequest](o)
	if err != nil || !issuable(r) {
		return err
	}
	asked, invalid := certificates.Parse(r)
	if invalid == nil {
		invalid = signers[r.Spec.SignerName](asked, r.Spec.Usages)
	}
	var certificate []byte
	if invalid == nil {
		if certificate, err = s.l.c.Sign(templateOf(r, asked), asked.PublicKey, lifeOf(r)); err != nil {
			return fmt.Errorf("the certificate cannot be issued: %w", err)
		}
	}
	return s.l.edit(ctx, i.object, "status", func(m metav1.Object) error {
		next := m.(*certificatesv1.CertificateSigningRequest)
		if next.UID != r.UID || !issuable(next) {
			return errLeave
		}
		if invalid != nil {
			next.Status.Conditions = append(next.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
				Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: invalid.Error(),
			})
			return nil
		}
		next.Status.Certificate = certificate
		return nil
	})
}

// issuable reports whether a request is for one of the signers, is approved, and has no outcome yet.
func issuable(r *certificatesv1.CertificateSigningRequest) bool {
	if signers[r.Spec.SignerName] == nil || r.DeletionTimestamp != nil || len(r.Status.Certificate) > 0 {
		return false
	}
	approved := false
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		case certificatesv1.CertificateApproved:
			approved = approved || c.Status == corev1.ConditionTrue
		}
	}
	return approved
}

// lifeOf returns the requested lifetime of the certificate. Sign shortens it to the longest one.
func lifeOf(r *certificatesv1.CertificateSigningRequest) time.Duration {
	const shortest = 10 * time.Minute // as validation requires
	if r.Spec.ExpirationSeconds == nil {
		return math.MaxInt64
	}
	return max(shortest, time.Duration(*r.Spec.ExpirationSeconds)*time.Second)
}

// templateOf returns the requested certificate. It copies the common attributes of the subject and the alternative names,
// and drops other extensions and attributes. One of those attributes would set the user's UID.
func templateOf(r *certificatesv1.CertificateSigningRequest, asked *x509.CertificateRequest) *x509.Certificate {
	subject := asked.Subject
	subject.Names, subject.ExtraNames = nil, nil
	t := &x509.Certificate{
		// A request gets one certificate, and its UID is unique.
		SerialNumber: new(big.Int).SetBytes(serialOf(string(r.UID))),
		Subject:      subject,
		DNSNames:     asked.DNSNames, IPAddresses: asked.IPAddresses, EmailAddresses: asked.EmailAddresses, URIs: asked.URIs,
	}
	for _, u := range r.Spec.Usages { // the rules of the signers allow no others
		switch u {
		case certificatesv1.UsageDigitalSignature:
			t.KeyUsage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			t.KeyUsage |= x509.KeyUsageKeyEncipherment
		case certificatesv1.UsageClientAuth:
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
		case certificatesv1.UsageServerAuth:
			t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}
	}
	return t
}

// serialOf returns a positive serial number of 127 bits.
func serialOf(uid string) []byte {
	sum := sha256.Sum256([]byte(uid))
	sum[0] = sum[0]&0x7f | 0x40
	return sum[:16]
}

// checkUsages requires a usage, and allows those for the key in addition.
func checkUsages(usages []certificatesv1.KeyUsage, required certificatesv1.KeyUsage) error {
	allowed := []certificatesv1.KeyUsage{required, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	for _, u := range usages {
		if !slices.Contains(allowed, u) {
			return fmt.Errorf("the usage %q is not allowed: want %q, with or without %q and %q", u, allowed[0], allowed[1], allowed[2])
		}
	}
	if !slices.Contains(usages, required) {
		return fmt.Errorf("the usage %q is missing", required)
	}
	return nil
}

func checkClient(_ *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	return checkUsages(usages, certificatesv1.UsageClientAuth)
}

// checkKubelet checks the subject and the usages of a kubelet's request.
func checkKubelet(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage, required certificatesv1.KeyUsage) error {
	const group, prefix = "system:nodes", "system:node:"
	if !slices.Equal(r.Subject.Organization, []string{group}) {
		return fmt.Errorf("the organizations of the subject are %q: want only %q", r.Subject.Organization, group)
	}
	if !strings.HasPrefix(r.Subject.CommonName, prefix) {
		return fmt.Errorf("the common name of the subject is %q: it must begin with %q", r.Subject.CommonName, prefix)
	}
	if err := checkUsages(usages, required); err != nil {
		return err
	}
	if !slices.Contains(usages, certificatesv1.UsageDigitalSignature) {
		return fmt.Errorf("the usage %q is missing", certificatesv1.UsageDigitalSignature)
	}
	return nil
}

func checkKubeletClient(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	if len(r.DNSNames)+len(r.IPAddresses)+len(r.EmailAddresses)+len(r.URIs) > 0 {
		return errors.New("subject alternative names are not allowed")
	}
	return checkKubelet(r, usages, certificatesv1.UsageClientAuth)
}

func checkKubeletServing(r *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch {
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return errors.New("a DNS name or an IP address is missing in the subject alternative names")
	case len(r.EmailAddresses)+len(r.URIs) > 0:
		return errors.New("email addresses and URIs are not allowed in the subject alternative names")
	}
	return checkKubelet(r, usages, certificatesv1.UsageServerAuth)
}
