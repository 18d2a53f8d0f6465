package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"time"
)

// pair is a certificate with its private key. The zero value means that there is none.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newKey makes a private key: ECDSA P-256, which every client knows, and which
// takes microseconds to make and to sign with.
func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// due returns when to renew: after two thirds of the lifetime.
func (p pair) due() time.Time {
	return p.cert.NotBefore.Add(p.cert.NotAfter.Sub(p.cert.NotBefore) / 3 * 2)
}

// good reports whether the pair exists, is valid and not due. If the clock was set back to
// before NotBefore, it is not valid.
func (p pair) good(now time.Time) bool {
	return p.cert != nil && !now.Before(p.cert.NotBefore) && now.Before(p.due())
}

// names reports whether the certificate is valid for all hosts.
func (p pair) names(hosts []string) bool {
	return !slices.ContainsFunc(hosts, func(h string) bool { return p.cert.VerifyHostname(h) != nil })
}

func (p pair) tls() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.cert.Raw}, PrivateKey: p.key, Leaf: p.cert}
}

func (p pair) certPEM() []byte { return certificatePEM(p.cert.Raw) }

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (p pair) keyPEM() ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(p.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// parsePair reads a certificate and its key from PEM.
func parsePair(b []byte) (pair, error) {
	c, err := tls.X509KeyPair(b, b)
	if err != nil {
		return pair{}, err
	}
	key, ok := c.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return pair{}, fmt.Errorf("the private key is a %T, not an ECDSA key", c.PrivateKey)
	}
	if c.Leaf == nil {
		return pair{}, errors.New("there is no certificate")
	}
	return pair{c.Leaf, key}, nil
}

// seededCA returns the authority that follows from a source of random bytes and the time.
func seededCA(random func([]byte), now time.Time) (pair, error) {
	var scalar, serial [32]byte
	random(scalar[:])
	scalar[0] &= 0x7f // below the order of the curve
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar[:])
	if err != nil {
		return pair{}, err
	}
	random(serial[:])
	template := caTemplate(now)
	template.SerialNumber = new(big.Int).SetBytes(serial[:16])
	return sign(nil, template, pair{template, key}, key) // without randomness: a deterministic signature (RFC 6979)
}

// selfSign issues the certificate of an authority.
func selfSign(key *ecdsa.PrivateKey, now time.Time) (pair, error) {
	template := caTemplate(now)
	return sign(rand.Reader, template, pair{template, key}, key)
}

func caTemplate(now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "tidemark-ca"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
}

// issue issues a certificate with a new key, valid from now on for life, and not longer than the
// authority.
func (p pair) issue(template *x509.Certificate, now time.Time, life time.Duration) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template.NotBefore, template.NotAfter = now.Add(-backdate), now.Add(life)
	if p.cert.NotAfter.Before(template.NotAfter) {
		template.NotAfter = p.cert.NotAfter
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	return sign(rand.Reader, template, p, key)
}

// issueClient issues a client certificate with its key, as PEM.
func (p pair) issueClient(user string, groups []string, now time.Time, life time.Duration) (cert, key []byte, err error) {
	made, err := p.issue(clientTemplate(user, groups), now, life)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err := made.keyPEM()
	return made.certPEM(), keyPEM, err
}

func sign(random io.Reader, template *x509.Certificate, by pair, key *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(random, template, by.cert, key.Public(), by.key)
	if err != nil {
		return pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return pair{cert, key}, err
}

func servingTemplate(hosts []string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "tidemark"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return t
}

func clientTemplate(user string, groups []string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}
