package tidemark_test

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestSNI checks that a name selects its certificate, and that the administrator's kubeconfig
// works with any of them.
func TestSNI(t *testing.T) {
	dir := t.TempDir()
	c, err := newAuthority(t).GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	writePair(t, dir, c)
	s := servertest.Start(t, &tidemark.Server{TLS: tidemark.TLS{SNI: []tidemark.SNICertificate{{
		CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), Names: []string{"*.example.com", "127.0.0.1"},
	}}}})
	for name, want := range map[string]bool{"api.example.com": true, "": true, "localhost": false, "apiserver-loopback-client": false} {
		if got := servedBy(t, s, name).Equal(c.Leaf); got != want {
			t.Errorf("%q gets the certificate: %v", name, got)
		}
	}
	servertest.WantCode(t, s.RESTConfig(), defaultNamespace, http.StatusOK, "")
}

// TestTLSRefused checks the errors of wrong settings, and the warnings of unwise ones.
func TestTLSRefused(t *testing.T) {
	for _, row := range []struct {
		tls       tidemark.TLS
		err, warn string
	}{
		{tidemark.TLS{MinVersion: 0x0300}, "TLS version 0x300", ""},
		{tidemark.TLS{CipherSuites: []uint16{0x1234}}, "cipher suite 0x1234", ""},
		{tidemark.TLS{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}, "HTTP/2 requires the cipher suite TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ""},
		{tidemark.TLS{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}, MinVersion: tls.VersionTLS13}, "", ""},
		{tidemark.TLS{CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_RC4_128_SHA}}, "", "TLS_RSA_WITH_RC4_128_SHA"},
		{tidemark.TLS{CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256}}, "", "ECDSA"},
		{tidemark.TLS{SNI: []tidemark.SNICertificate{{CertFile: "absent.crt", KeyFile: "absent.key"}}}, "absent.crt", ""},
	} {
		var logged bytes.Buffer
		s := &tidemark.Server{TLS: row.tls, Logger: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelWarn}))}
		err := s.Start(t.Context())
		if (err != nil) != (row.err != "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%+v: %v, want %q", row.tls, err, row.err)
		}
		servertest.Stop(t, s)
		if text := logged.String(); !strings.Contains(text, row.warn) || row.warn == "" && text != "" {
			t.Errorf("%+v: logged %q, want %q", row.tls, text, row.warn)
		}
	}
}
