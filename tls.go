package tidemark

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// TLS configures the connections of a Server. Its zero value means a certificate of the server's own certificate authority
// for all names, TLS 1.2 and above, and the cipher suites of package crypto/tls.
type TLS struct {
	// CertFile and KeyFile hold a serving certificate (PEM, with its chain) and its key; they are read again when they
	// change. Empty: the server's own certificate authority issues one.
	CertFile, KeyFile string
	// Names are names and IP addresses at which clients reach the server, for its own certificate, in
	// addition to localhost, the names and addresses of the Service "kubernetes", and the addresses of Listen. An existing
	// certificate without them is issued again. With CertFile they have no effect. Nil: none.
	Names []string
	// SNI are certificates for single names, besides the default certificate. Nil: none.
	SNI []SNICertificate
	// MinVersion is the lowest version of TLS, a constant of package crypto/tls; zero:
	// tls.VersionTLS12.
	MinVersion uint16
	// CipherSuites are the cipher suites for TLS 1.2 and below, constants of package
	// crypto/tls. Nil: the default of that package. HTTP/2 requires one with
	// AES_128_GCM_SHA256, unless MinVersion is tls.VersionTLS13. Start logs a warning for
	// each insecure one.
	CipherSuites []uint16
}

// SNICertificate is a serving certificate for the clients that ask for one of its names. Its
// files are read again when they change.
type SNICertificate struct {
	// CertFile and KeyFile hold the certificate (PEM, with its chain) and its key.
	CertFile, KeyFile string
	// Names are DNS names, a "*" in place of the first label, or IP addresses. An address is
	// for clients that connect to it and send no name. Names take precedence over patterns.
	// Nil: the DNS names of the certificate, after the names that other certificates list.
	Names []string
}

// minVersion returns the lowest version of TLS.
func (t *TLS) minVersion() uint16 {
	if t.MinVersion == 0 {
		return tls.VersionTLS12
	}
	return t.MinVersion
}

// Check returns an error for files without their counterpart, and for names, versions and cipher suites that are not valid. It
// opens no file.
func (t *TLS) Check() error {
	for _, name := range t.Names {
		if net.ParseIP(name) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("the name for the certificate, %q, is neither a DNS name nor an IP address", name)
		}
	}
	if v := t.minVersion(); v < tls.VersionTLS10 || v > tls.VersionTLS13 {
		return fmt.Errorf("TLS version %#x: want one from tls.VersionTLS10 to tls.VersionTLS13", v)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		return errors.New("a serving certificate needs both files, that of the certificate and that of its private key")
	}
	for _, id := range t.CipherSuites {
		if !suiteOf(tls.InsecureCipherSuites(), id) && !suiteOf(tls.CipherSuites(), id) {
			return fmt.Errorf("cipher suite %#04x is not supported", id)
		}
	}
	if len(t.CipherSuites) == 0 || t.minVersion() >= tls.VersionTLS13 {
		return nil // the suites of TLS 1.3 are fixed
	}
	const rsa, ecdsa = tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
	if !slices.Contains(t.CipherSuites, rsa) && !slices.Contains(t.CipherSuites, ecdsa) {
		return fmt.Errorf("HTTP/2 requires the cipher suite %s or %s: add one, or set the minimal version to TLS 1.3", tls.CipherSuiteName(ecdsa), tls.CipherSuiteName(rsa))
	}
	return nil
}

func suiteOf(all []*tls.CipherSuite, id uint16) bool {
	return slices.ContainsFunc(all, func(c *tls.CipherSuite) bool { return c.ID == id })
}

func (t *TLS) config() world.TLS {
	c := world.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, Names: t.Names, MinVersion: t.minVersion(), CipherSuites: t.CipherSuites}
	for _, one := range t.SNI {
		c.SNI = append(c.SNI, serving.Pair(one))
	}
	return c
}
