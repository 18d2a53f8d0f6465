package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"sync"
)

// FrontProxyName is the common name of the certificate of FrontProxy.
const FrontProxyName = "front-proxy-client"

// frontProxy is the certificate that follows from one of the authority.
type frontProxy struct {
	mu   sync.Mutex
	of   *x509.Certificate // guarded by mu
	made *tls.Certificate
	pem  []byte
}

// FrontProxy returns a client certificate by which extension servers recognize this server as one that names users, and its
// authority as PEM, which is the certificate itself. So nothing that the Authority signs is such a certificate. The key
// follows from that of the Authority: servers with one authority have one certificate, and none is kept.
func (a *Authority) FrontProxy() (certificate *tls.Certificate, authority []byte, err error) {
	ca, f := a.fresh().ca, &a.proxy
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == ca.cert {
		return f.made, f.pem, nil
	}
	secret, err := ca.key.Bytes()
	if err != nil {
		return nil, nil, err
	}
	scalar := derive(secret, "front proxy key")
	scalar[0] &= 0x7f // below the order of the curve
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), scalar)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(derive(ca.cert.Raw, "front proxy serial number")[:16]), Subject: pkix.Name{CommonName: FrontProxyName},
		NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	made, err := sign(nil, template, pair{template, key}, key) // a deterministic signature (RFC 6979)
	if err != nil {
		return nil, nil, err
	}
	f.of, f.made, f.pem = ca.cert, made.tls(), made.certPEM()
	return f.made, f.pem, nil
}

// derive returns 32 bytes that follow from a secret, and from which the secret cannot be computed.
func derive(secret []byte, what string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("tidemark " + what))
	return h.Sum(nil)
}
