package core

import (
	"crypto/tls"

	corev1 "k8s.io/api/core/v1"
)

// SecretWarnings warns about a certificate that does not match its key.
func SecretWarnings(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
