package integration_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
)

// TestControlCertificate: the control API makes certificates that are their own authority.
func TestControlCertificate(t *testing.T) {
	a := startControl(t)
	var c struct{ Certificate, Key string }
	a.do(http.StatusCreated, "POST", "/control/v1/certificates", `{"hosts":["127.0.0.1","hook.example.com"]}`, &c)
	pair, err := tls.X509KeyPair([]byte(c.Certificate), []byte(c.Key))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(c.Certificate))
	for host, ok := range map[string]bool{"127.0.0.1": true, "hook.example.com": true, "127.0.0.2": false} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); (err == nil) != ok {
			t.Errorf("the certificate for %s: %v", host, err)
		}
	}
	for _, body := range []string{`{}`, `{"hosts":[""]}`, `{"hosts":["ü"]}`, `{"hosts":[` + strings.Repeat(`"a",`, 100) + `"a"]}`} {
		a.do(http.StatusBadRequest, "POST", "/control/v1/certificates", body, nil)
	}
}
