package pki_test

import (
	"bytes"
	"crypto/x509"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/pki"
)

// TestFrontProxy: the certificate is valid for clients by its own authority alone, and stays the same after a restart.
func TestFrontProxy(t *testing.T) {
	dir := t.TempDir()
	var last []byte
	for range 2 {
		a, err := pki.Open(pki.Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		c, authority, err := a.FrontProxy()
		if err != nil {
			t.Fatal(err)
		}
		if last != nil && !bytes.Equal(last, authority) {
			t.Error("the certificate changed with a restart")
		}
		last = authority
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(authority)
		clients := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: clients}); err != nil || c.Leaf.Subject.CommonName != pki.FrontProxyName {
			t.Errorf("the certificate of %v: %v", c.Leaf.Subject, err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), KeyUsages: clients}); err == nil {
			t.Error("the authority of clients has signed the certificate")
		}
		if again, _, err := a.FrontProxy(); err != nil || again != c {
			t.Errorf("a second call returns another certificate, %v", err)
		}
	}
}
