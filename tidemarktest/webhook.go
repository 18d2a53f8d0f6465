package tidemarktest

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Webhooks are the webhooks under test: configurations that name a Service, and conversions of
// definitions that do. In each Env they call a port of this machine instead. The fields are named as
// in envtest.WebhookInstallOptions.
type Webhooks struct {
	// Paths are files and directories with MutatingWebhookConfigurations and
	// ValidatingWebhookConfigurations.
	Paths []string
	// Conversion redirects the conversion webhooks of World.CRDDirectoryPaths. With Paths it is implied.
	Conversion bool
	// LocalServingHost is the host on which the webhooks are served; empty: 127.0.0.1.
	LocalServingHost string
	// LocalServingPort is their port; zero: a free one for each Env.
	LocalServingPort int
}

func (w *Webhooks) used() bool { return len(w.Paths) > 0 || w.Conversion }

// WebhookServer is where the webhooks of an Env are called.
type WebhookServer struct {
	// Host and Port are the address to listen on.
	Host string
	Port int
	// Certificate is the certificate to serve with.
	Certificate tls.Certificate
	// CAData is the certificate that the API server trusts, as PEM.
	CAData []byte

	listener net.Listener // holds the port until Listen
	key      []byte       // PEM
}

// server reserves a port, and makes a certificate for its host.
func (w *Webhooks) server() (*WebhookServer, error) {
	host := cmp.Or(w.LocalServingHost, "127.0.0.1")
	listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(w.LocalServingPort)))
	if err != nil {
		return nil, err
	}
	s := &WebhookServer{Host: host, Port: listener.Addr().(*net.TCPAddr).Port, listener: listener}
	if err := s.certify(); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return s, nil
}

// certify makes a certificate that signs itself.
func (s *WebhookServer) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	if ip := net.ParseIP(s.Host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{s.Host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	s.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	s.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
	s.Certificate, err = tls.X509KeyPair(s.CAData, s.key)
	return err
}

// URL is the base of the webhooks' addresses.
func (s *WebhookServer) URL() string {
	return "https://" + net.JoinHostPort(s.Host, strconv.Itoa(s.Port))
}

// CertDir writes the certificate and its key to a temporary directory of the test, as tls.crt and
// tls.key, for servers that read them there.
func (s *WebhookServer) CertDir(t TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := s.WriteCertDir(dir); err != nil {
		t.Fatalf("tidemarktest: %v", err)
	}
	return dir
}

// WriteCertDir writes the certificate and its key to a directory, as tls.crt and tls.key.
func (s *WebhookServer) WriteCertDir(dir string) error {
	for name, content := range map[string][]byte{"tls.crt": s.CAData, "tls.key": s.key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Listen returns the listener of the address. It is called once, by callers that serve themselves;
// those that only take a host and a port, as controller-runtime does, call Release.
func (s *WebhookServer) Listen() net.Listener { return s.listener }

// Release gives up the port, so that another server can listen on it.
func (s *WebhookServer) Release() error { return s.close() }

// Serve serves the webhooks with a handler until the test ends.
func (s *WebhookServer) Serve(t TB, h http.Handler) {
	server := httptest.NewUnstartedServer(h)
	server.Listener.Close()
	server.Listener = s.listener
	server.TLS = &tls.Config{Certificates: []tls.Certificate{s.Certificate}}
	server.StartTLS()
	t.Cleanup(server.Close)
}

// close closes the listener. The receiver may be nil.
func (s *WebhookServer) close() error {
	if s == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
