package world

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// openAuthority must be called after openStore, which locks the data directory.
func (p *process) openAuthority(objects *store.Store, random func([]byte)) error {
	hosts := append([]string{p.Listen.Addresses[0], loopbackName}, p.TLS.Names...)
	for _, a := range p.Listen.Addresses[1:] {
		if _, socket := socketPath(a); !socket {
			hosts = append(hosts, a)
		}
	}
	if p.Listen.Advertise != "" {
		hosts = append(hosts, p.Listen.Advertise)
	}
	for _, ip := range addresses.First(p.Services.Ranges) {
		hosts = append(hosts, ip.String())
	}
	hosts = append(hosts, serviceAddresses(objects)...)
	c := pki.Config{Dir: p.pkiDir(), Hosts: hosts, Now: p.Now, Log: p.logOf(logCertificates)}
	if p.InProcess { // otherwise clients would trust a key that can be guessed
		c.Random = random
	}
	var err error
	p.authority, err = pki.Open(c)
	return err
}

// serviceAddresses returns the cluster IPs of the stored Service `kubernetes`. It keeps them when
// the range of Services changes.
func serviceAddresses(objects *store.Store) []string {
	o := objects.Any().Get("services", "default/kubernetes")
	if o == nil {
		return nil
	}
	service, err := registry.Decode[corev1.Service](o)
	if err != nil { // clients cannot read it either
		return nil
	}
	return service.Spec.ClusterIPs
}

// certificate returns the function that selects the serving certificate, and one that returns the certificates that
// clients of other machines get.
func (p *process) certificate(log *slog.Logger) (get func(*tls.ClientHelloInfo) (*tls.Certificate, error), each func() []*tls.Certificate, err error) {
	own, t := p.authority, &p.TLS
	issued := func() []*tls.Certificate {
		c, err := own.GetCertificate(nil)
		if err != nil {
			return nil
		}
		return []*tls.Certificate{c}
	}
	if !t.own() {
		return own.GetCertificate, issued, nil
	}
	byDefault := issued
	c := serving.CertificatesConfig{Default: own.GetCertificate, Now: p.Now, Log: log}
	if t.CertFile != "" {
		given, err := serving.Pair{CertFile: t.CertFile, KeyFile: t.KeyFile}.Reloaded(p.Now, log)
		if err != nil {
			return nil, nil, err
		}
		byDefault = func() []*tls.Certificate { return []*tls.Certificate{given.Get()} }
		c.Default = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return given.Get(), nil }
	}
	c.Pairs = t.SNI
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

func suiteOf(all []*tls.CipherSuite, id uint16) bool {
	return slices.ContainsFunc(all, func(c *tls.CipherSuite) bool { return c.ID == id })
}

// warn logs a warning for valid settings that are insecure or exclude clients.
func (t *TLS) warn(log *slog.Logger) {
	for _, id := range t.CipherSuites {
		if suiteOf(tls.InsecureCipherSuites(), id) {
			log.Warn("an insecure cipher suite is enabled", "suite", tls.CipherSuiteName(id))
		}
	}
	if len(t.CipherSuites) > 0 && t.MinVersion < tls.VersionTLS13 && !slices.ContainsFunc(t.CipherSuites, forOwn) {
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

const (
	// The serving certificate is about to end in the last part of its lifetime, at most certificateSoon before its end. The
	// server is not ready in the last part at all, at most certificateLast before the end.
	certificateSoon, certificateSoonPart = 14 * 24 * time.Hour, 4
	certificateLast, certificateLastPart = time.Hour, 20
)

// certificateCheck fails when a serving certificate is about to end.
func (p *process) certificateCheck() httpapi.Check {
	left := func() (of *x509.Certificate, left time.Duration) {
		if of = p.firstToEnd(); of == nil {
			return nil, 0
		}
		return of, of.NotAfter.Sub(p.clock())
	}
	part := func(of *x509.Certificate, n int) time.Duration {
		return of.NotAfter.Sub(of.NotBefore) / time.Duration(n)
	}
	return httpapi.Check{Name: "serving-certificate",
		Probe: func() error {
			of, left := left()
			if of == nil || left >= min(certificateLast, part(of, certificateLastPart)) {
				return nil
			}
			return fmt.Errorf("the serving certificate of %v ends at %v", of.DNSNames, of.NotAfter.UTC())
		},
		Note: func() string {
			of, left := left()
			if of == nil || left >= min(certificateSoon, part(of, certificateSoonPart)) {
				return ""
			}
			return fmt.Sprintf(", a certificate ends in %v", left.Round(time.Minute))
		},
	}
}

// firstToEnd returns the serving certificate that ends first; nil: the server has none.
func (p *process) firstToEnd() (first *x509.Certificate) {
	if p.certificates == nil {
		return nil
	}
	for _, c := range p.certificates() {
		if c.Leaf != nil && (first == nil || c.Leaf.NotAfter.Before(first.NotAfter)) {
			first = c.Leaf
		}
	}
	return first
}
