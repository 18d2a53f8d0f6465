package control

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"time"
)

// maxHosts limits the hosts of a certificate.
const maxHosts = 100

// certificate is a certificate and its key, as PEM.
type certificate struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// certify makes a certificate for webhooks that a test serves itself.
func (h *handler) certify(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Hosts []string `json:"hosts"`
	}
	if err := readJSON(w, r, maxBodyBytes, &body); err != nil {
		return err
	}
	if n := len(body.Hosts); n == 0 || n > maxHosts {
		return badRequest("the body has %d hosts, want 1 to %d", n, maxHosts)
	}
	for _, host := range body.Hosts {
		if host == "" {
			return badRequest("a host is empty, want a DNS name or an IP address")
		}
	}
	c, err := selfSigned(body.Hosts)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, c)
	return nil
}

// selfSigned makes a serving certificate that signs itself, for a year.
func selfSigned(hosts []string) (certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return certificate{}, badRequest("the hosts %q: %v", hosts, err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return certificate{}, err
	}
	return certificate{
		Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})),
	}, nil
}
