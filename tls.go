package tidemark

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/serving"
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

// warn logs a warning for what is valid and unwise.
func (t *TLS) warn(log *slog.Logger) {
	for _, id := range t.CipherSuites {
		if suiteOf(tls.InsecureCipherSuites(), id) {
			log.Warn("an insecure cipher suite is enabled", "suite", tls.CipherSuiteName(id))
		}
	}
	if len(t.CipherSuites) > 0 && t.minVersion() < tls.VersionTLS13 && !slices.ContainsFunc(t.CipherSuites, forOwn) {
		log.Warn("clients with TLS 1.2 cannot use the certificate of the server's own authority: its key is ECDSA, and no cipher suite is for that")
	}
}

// forOwn reports whether a cipher suite works with the keys of the server's own authority.
func forOwn(id uint16) bool {
	switch id {
	case tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256, tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA:
		return true
	}
	return false
}

// ownCertificates reports whether the user configured a serving certificate. Then clients on
// this machine select the server's own certificate by a name.
func (s *Server) ownCertificates() bool { return s.TLS.CertFile != "" || len(s.TLS.SNI) > 0 }

// certificate returns the function that selects the serving certificate, and one that returns the certificates that
// clients of other machines get.
func (s *Server) certificate(own *pki.Authority, log *slog.Logger) (get func(*tls.ClientHelloInfo) (*tls.Certificate, error), each func() []*tls.Certificate, err error) {
	issued := func() []*tls.Certificate {
		c, err := own.GetCertificate(nil)
		if err != nil {
			return nil
		}
		return []*tls.Certificate{c}
	}
	if !s.ownCertificates() {
		return own.GetCertificate, issued, nil
	}
	byDefault := issued
	c := serving.CertificatesConfig{Default: own.GetCertificate, Now: s.now, Log: log}
	if s.TLS.CertFile != "" {
		given, err := serving.Pair{CertFile: s.TLS.CertFile, KeyFile: s.TLS.KeyFile}.Reloaded(s.now, log)
		if err != nil {
			return nil, nil, err
		}
		byDefault = func() []*tls.Certificate { return []*tls.Certificate{given.Get()} }
		c.Default = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return given.Get(), nil }
	}
	for _, p := range s.TLS.SNI {
		c.Pairs = append(c.Pairs, serving.Pair(p))
	}
	all, err := serving.NewCertificates(c)
	if err != nil {
		return nil, nil, err
	}
	each = func() []*tls.Certificate { return append(byDefault(), all.All()...) }
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == loopbackName {
			return own.GetCertificate(hello)
		}
		return all.Get(hello)
	}, each, nil
}
